# SPDX-License-Identifier: Apache-2.0
"""Turns files of frames, as software DPUs leave them, into the series of a NIC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG

from dpu_app.wire.errors import PulseWireError
from dpu_app.wire.frame import Frame
from dpu_app.wire.frame_file import SUFFIX, read_frames
from host_ctl.errors import printable
from host_ctl.ingest.series import JOINED_TABLES, NicSeries, join_frames

_MAX_TABLE_BYTES = 2 << 30  # of one NIC, decompressed


def is_frame_file(path: Path) -> bool:
    """Whether a file holds frames, by its name."""
    return path.suffix == SUFFIX


def why_no_frames(path: Path) -> str | None:
    """What keeps a file from being read as frames, in one line; None when its first frame can be read."""
    name = printable(path.name)
    try:
        if not S_ISREG(path.stat().st_mode):
            return f"{name} is no regular file"
        with path.open("rb") as file:
            if next(read_frames(file), None) is None:
                return f"{name} holds no frame"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}"
    except PulseWireError as error:
        return f"{name}: {error}"
    return None


def series_of_frames(
    machine: str, nic: str, addresses: tuple[str, ...], paths: Sequence[Path]
) -> tuple[NicSeries | None, list[str]]:
    """The joined frames of one NIC, and remarks on what could not be used.

    What the files are called decides whose they are, as for captures; frames of another life of the sending
    process than the one with most frames are left out, since their flow numbers mean something else.
    """
    remarks: list[str] = []
    frames: list[Frame] = []
    for path in paths:
        problem = _read_into(frames, path)
        if problem is not None:
            remarks.append(problem)
    if not frames:
        return None, remarks
    lives = Counter((f.boot_id, f.nic.machine, f.nic.nic) for f in frames)
    (kept, count), *others = lives.most_common()
    if others:
        remarks.append(f"{machine}/{nic}: {len(frames) - count} frames of other lives or NICs were left out")
    chosen = [f for f in frames if (f.boot_id, f.nic.machine, f.nic.nic) == kept]
    packets = sum(f.packets.get("roce", 0) for f in chosen)
    if not any(len(f.tables.flows) for f in chosen):
        return None, [*remarks, f"{machine}/{nic}: no packet in its frames is RoCEv2"]
    witness_ns = max(f.end_ns for f in chosen) if any(f.final for f in chosen) else None
    return join_frames(
        chosen, named=(machine, nic, addresses), witness_ns=witness_ns, packets=packets
    ), remarks


def _read_into(frames: list[Frame], path: Path) -> str | None:
    """Append a file's frames up to where it is damaged; what was wrong with it, if anything."""
    name = printable(path.name)
    held = sum(_table_bytes(frame) for frame in frames)
    try:
        with path.open("rb") as file:
            for frame in read_frames(file):
                held += _table_bytes(frame)
                if held > _MAX_TABLE_BYTES:
                    return (
                        f"{name}: more than {_MAX_TABLE_BYTES >> 20} MiB of tables; what follows is left out"
                    )
                for table in JOINED_TABLES:  # damage inside of a table shows when it is read
                    getattr(frame.tables, table)
                frames.append(frame)
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}"
    except PulseWireError as error:
        return f"{name}: {error}; the frames before it are used"
    return None


def _table_bytes(frame: Frame) -> int:
    sections = frame.tables.sections()
    return sum(sections[name].raw_bytes for name in JOINED_TABLES if name in sections)
