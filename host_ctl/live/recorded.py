# SPDX-License-Identifier: Apache-2.0
"""Frames of a recorded session in the order in which they would have come from the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dpu_app.wire.errors import PulseWireError
from dpu_app.wire.frame import Frame, encode_frame
from dpu_app.wire.frame_file import read_frames
from host_ctl.errors import InputError, printable
from host_ctl.history.records import FrameKey
from host_ctl.ingest.frame_series import is_frame_file
from host_ctl.ingest.naming import CaptureFiles
from host_ctl.live.intake import Arrived


def recorded(captures: Sequence[CaptureFiles]) -> list[Arrived]:
    """The frames of all NICs by their end; a frame counts as received when it ended.

    Readings of the system clock say when that was; NICs without any are taken to have begun together.
    Raises InputError when there is no file of frames, or one cannot be read at all.
    """
    found: list[Arrived] = []
    for files in captures:
        frames = list(_frames(files))
        if frames:
            found += _arrived(files, frames)
    if not found:
        raise InputError("there are no files of frames: live analysis cannot be repeated from captures")
    return sorted(found, key=lambda each: (each.key.end_ns, each.key.identity))


def _frames(files: CaptureFiles) -> Iterator[Frame]:
    for path in files.paths:
        if not is_frame_file(path):
            continue
        try:
            with path.open("rb") as file:
                yield from read_frames(file)
        except OSError as error:
            name = printable(path.name)
            raise InputError(f"{name} cannot be read: {error.strerror or error}") from error
        except PulseWireError:
            return  # what follows the damage cannot be told apart; what is before it counts


def _arrived(files: CaptureFiles, frames: Sequence[Frame]) -> Iterator[Arrived]:
    shifts: dict[str, int] = {}
    for frame in frames:
        if frame.clock_pairs:
            nic_ns, system_ns = frame.clock_pairs[0]
            shifts.setdefault(frame.boot_id, system_ns - nic_ns)
    for frame in frames:
        shift_ns = shifts.get(frame.boot_id, -frames[0].begin_ns)
        end_ns = frame.end_ns + shift_ns
        data = encode_frame(frame)
        yield Arrived(
            FrameKey(
                files.machine,
                files.nic,
                frame.boot_id,
                frame.sequence,
                end_ns,
                frame.begin_ns + shift_ns,
                end_ns,
            ),
            len(data),
            partial(bytes, data),
        )
