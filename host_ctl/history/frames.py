# SPDX-License-Identifier: Apache-2.0
"""Keeps frames on disk: segments that are only appended to, in a ring that is bounded by bytes.

What `append` has returned for survives crashes. Frames are read by `host_ctl.history.reader`, which needs
nothing of the writer, also from other processes and while this one writes.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host_ctl.errors import PulseError
from host_ctl.history.known import KnownFrames, SequenceSet
from host_ctl.history.records import HEADER, SUFFIX, Damage, FrameKey, pack_front, walk

_LOG = logging.getLogger(__name__)
ASIDE = ".aside"
_PROBE = "probe"
_PROBE_BYTES = 4 << 20
_DIGITS = 12
_PARTS = 512  # the kernel takes at most 1024 in one call


class HistoryError(PulseError):
    """A history that cannot be used now."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Where frames are kept, and how much of them."""

    directory: Path
    max_bytes: int = 50 << 30
    segment_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class NewFrame:
    """A frame to be kept."""

    key: FrameKey
    data: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """Frames that are on disk, in which segment, and up to which segment older ones had to go."""

    keys: tuple[FrameKey, ...]
    segment: int
    dropped_until: int


@dataclass(slots=True)
class HistoryCounts:
    """What is kept, and what happened since the start."""

    segments: int = 0
    bytes: int = 0
    frames: int = 0
    dropped_segments: int = 0
    dropped_frames: int = 0
    damaged_bytes: int = 0
    damaged_segments: int = 0
    torn_bytes: int = 0
    commits: int = 0


@dataclass(slots=True)
class _Segment:
    size: int
    frames: int


class FrameHistory:
    """The history of one directory, which belongs to one process at a time; use it from one thread.

    Raises HistoryError when another process has it, OSError as the disk does.
    """

    def __init__(self, config: HistoryConfig) -> None:
        self._config = config
        self._segment_bytes = max(min(config.segment_bytes, config.max_bytes // 4), 1 << 16)
        self._segments: dict[int, _Segment] = {}
        self._writing: int | None = None
        self._next = 1
        self._aside_bytes = 0
        self.known = KnownFrames()
        self.counts = HistoryCounts()
        config.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(config.directory / "lock")
        try:
            self._open_found()
        except BaseException:
            os.close(self._lock)
            raise

    def sequences(self, machine: str, nic: str, boot_id: str) -> SequenceSet | None:
        """Return what is durable of a life."""
        return self.known.of((machine, nic, boot_id))

    def append(self, frames: Sequence[NewFrame]) -> Appended:
        """Write frames and wait until they are on disk; after an OSError none of them counts.

        They are known only after `note`: so this may run in another thread than questions about them.
        """
        parts = [part for frame in frames for part in (pack_front(frame.key, frame.data), frame.data)]
        needed_bytes = sum(map(len, parts))
        dropped_until = self._make_room(needed_bytes)
        if self._writing is None or self._segments[self._writing].size >= self._segment_bytes:
            self._begin_segment()
        number = self._writing
        assert number is not None
        segment = self._segments[number]
        try:
            _write_at(self._path(number), segment.size, parts)
        except OSError:
            # What the kernel thinks to be on disk after a failed write is not certain: never append there.
            self._writing = None
            _truncate(self._path(number), segment.size)
            raise
        segment.size += needed_bytes
        segment.frames += len(frames)
        self.counts.commits += 1
        self._count()
        return Appended(tuple(frame.key for frame in frames), number, dropped_until)

    def note(self, appended: Appended) -> None:
        """Know what `append` has written."""
        self.known.forget_until(appended.dropped_until)
        for key in appended.keys:
            self.known.add((key.machine, key.nic, key.boot_id), key.sequence, appended.segment)

    def probe(self) -> None:
        """Raise OSError when the disk would take nothing now."""
        path = self._config.directory / _PROBE
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, _PROBE_BYTES)
            os.fsync(handle)
        finally:
            os.close(handle)
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process have the directory."""
        os.close(self._lock)

    def _path(self, number: int) -> Path:
        return self._config.directory / f"{number:0{_DIGITS}d}{SUFFIX}"

    def _begin_segment(self) -> None:
        path = self._path(self._next)
        try:
            _write_at(path, 0, [HEADER])
            _sync_directory(self._config.directory)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._writing = self._next
        self._segments[self._next] = _Segment(len(HEADER), 0)
        self._next += 1

    def _make_room(self, needed_bytes: int) -> int:
        """Delete what is oldest until there is room; return the last segment that went, 0 when none did."""
        last = 0
        while self._segments and self._used_bytes() + needed_bytes > self._config.max_bytes:
            if self._aside_bytes and self._delete_aside():
                continue
            oldest = min(self._segments)
            dropped = self._segments.pop(oldest)
            self._path(oldest).unlink(missing_ok=True)
            if oldest == self._writing:
                self._writing = None
            last = oldest
            self.counts.dropped_segments += 1
            self.counts.dropped_frames += dropped.frames
        return last

    def _delete_aside(self) -> bool:
        files = sorted(self._config.directory.glob(f"*{ASIDE}"))
        if files:
            files[0].unlink(missing_ok=True)
        self._aside_bytes = sum(path.stat().st_size for path in files[1:])
        return bool(files)

    def _used_bytes(self) -> int:
        return sum(segment.size for segment in self._segments.values()) + self._aside_bytes

    def _count(self) -> None:
        self.counts.segments = len(self._segments)
        self.counts.bytes = self._used_bytes()
        self.counts.frames = sum(segment.frames for segment in self._segments.values())

    def _open_found(self) -> None:
        paths = sorted(p for p in self._config.directory.glob(f"*{SUFFIX}") if p.stem.isdecimal())
        for path in paths:
            self._open_segment(path, last=path == paths[-1])
        self._aside_bytes = sum(p.stat().st_size for p in self._config.directory.glob(f"*{ASIDE}"))
        (self._config.directory / _PROBE).unlink(missing_ok=True)
        self._count()

    def _open_segment(self, path: Path, *, last: bool) -> None:
        """Learn what a segment holds; only the last one can have been cut off while it was written."""
        number = int(path.stem)
        self._next = max(self._next, number + 1)
        frames, damages = 0, []
        for found in walk(path, verify=last):
            if isinstance(found, Damage):
                damages.append(found)
                continue
            key = found.key
            frames += self.known.add((key.machine, key.nic, key.boot_id), key.sequence, number)
        size = path.stat().st_size
        if damages and last and frames and damages[-1].end == size:
            torn = damages.pop()
            self.counts.torn_bytes += size - torn.offset
            _LOG.warning("history: cut off %d unfinished bytes at the end of %s", size - torn.offset, path)
            _truncate(path, torn.offset)
            size = torn.offset
        if not frames:
            self._remove_empty(path, damages)
            return
        self._report(path, damages)
        self._segments[number] = _Segment(size, frames)

    def _remove_empty(self, path: Path, damages: list[Damage]) -> None:
        if path.stat().st_size <= len(HEADER):
            path.unlink()
            return
        path.rename(path.with_suffix(ASIDE))
        _LOG.warning("history: %s holds no frame that can be read: set aside", path)
        self.counts.damaged_segments += 1
        self.counts.damaged_bytes += sum(each.end - each.offset for each in damages)

    def _report(self, path: Path, damages: list[Damage]) -> None:
        for each in damages:
            _LOG.warning(
                "history: %s is damaged from byte %d to %d: the rest is used", path, each.offset, each.end
            )
            self.counts.damaged_bytes += each.end - each.offset
        self.counts.damaged_segments += bool(damages)


def _write_at(path: Path, offset: int, parts: Sequence[bytes]) -> None:
    """Write and wait for the disk. The file is open no longer than that: its disk may be made read-only."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Frames are large: they go to the kernel from where they are, without being joined before.
        for begin in range(0, len(parts), _PARTS):
            offset = _write_parts(
                handle, offset, [memoryview(part) for part in parts[begin : begin + _PARTS]]
            )
        os.fdatasync(handle)
    finally:
        os.close(handle)


def _write_parts(handle: int, offset: int, parts: list[memoryview]) -> int:
    """Write all of the parts, however little the kernel takes at once; return where they end."""
    while parts:
        written = os.pwritev(handle, parts, offset)
        offset += written
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]
    return offset


def _lock(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise HistoryError(
            f"the history {path.parent} is in use by another process: stop that one first"
        ) from error
    return handle


def _truncate(path: Path, length: int) -> None:
    try:
        os.truncate(path, length)
    except OSError:
        return  # what stands there is found at the next start, and readers know repeats


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
