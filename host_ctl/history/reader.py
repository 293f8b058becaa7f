# SPDX-License-Identifier: Apache-2.0
"""Reads a history in order of time, also while a controller writes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from host_ctl.errors import InputError
from host_ctl.history.records import SUFFIX, Damage, Found, FrameKey, read_frame, walk

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class ReadCounts:
    """What reading met with."""

    frames: int = 0
    repeats: int = 0
    damaged: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame of the history, still encoded."""

    key: FrameKey
    data: bytes


def segments_of(directory: Path) -> list[Path]:
    """Return the segments of a history, oldest first. Raises InputError when it is none."""
    if not directory.is_dir():
        raise InputError(f"{directory} is no folder of a history: give the one that history.directory names")
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if path.stem.isdecimal())


def read_range(
    directory: Path, from_ns: int | None = None, to_ns: int | None = None, counts: ReadCounts | None = None
) -> Iterator[StoredFrame]:
    """Yield the frames that overlap [from, to), each once, by begin, machine, NIC, life and sequence.

    Times are those of the controller's clock. Damaged frames are counted and left out.
    """
    counts = ReadCounts() if counts is None else counts
    places = _list_range(directory, from_ns, to_ns, counts)
    for place in places:
        path, found = place
        try:
            data = read_frame(path, found)
        except FileNotFoundError:
            counts.gone += 1  # the ring has moved on meanwhile
            continue
        if data is None:
            counts.damaged += 1
            _LOG.warning("history: the frame at byte %d of %s is damaged: left out", found.offset, path)
            continue
        counts.frames += 1
        yield StoredFrame(found.key, data)


def _list_range(
    directory: Path, from_ns: int | None, to_ns: int | None, counts: ReadCounts
) -> list[tuple[Path, Found]]:
    places: dict[tuple[str, str, str, int], tuple[Path, Found]] = {}
    paths = segments_of(directory)
    for path in paths:
        for found in _walk_if_there(path, counts):
            if isinstance(found, Damage):
                # The last segment's end may just be being written.
                counts.damaged += path != paths[-1]
            elif _overlaps(found.key, from_ns, to_ns):
                counts.repeats += found.key.identity in places
                places.setdefault(found.key.identity, (path, found))
    return sorted(places.values(), key=lambda place: (place[1].key.begin_ns, place[1].key.identity))


def _walk_if_there(path: Path, counts: ReadCounts) -> Iterator[Found | Damage]:
    try:
        yield from walk(path)
    except FileNotFoundError:
        counts.gone += 1


def _overlaps(key: FrameKey, from_ns: int | None, to_ns: int | None) -> bool:
    return (from_ns is None or key.end_ns > from_ns) and (to_ns is None or key.begin_ns < to_ns)
