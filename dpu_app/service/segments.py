# SPDX-License-Identifier: Apache-2.0
"""Files in which frames wait for the controller over crashes and restarts.

A segment is the eight bytes `PLSSPL`, version, newline, then records: length and CRC-32 of the body (u32
each, little-endian), and the body: sequence (u64), length of the boot id (u8), boot id, frame. Segments are
only appended to, and deleted as a whole. What cannot be read is set aside, never believed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpu_app.wire.frame import MAX_FRAME_BYTES

VERSION = 1
_MAGIC = b"PLSSPL"
_HEADER = _MAGIC + bytes([VERSION]) + b"\n"
_RECORD = struct.Struct("<II")
_KEY = struct.Struct("<QB")
_MAX_BODY = MAX_FRAME_BYTES + 1024
_SUFFIX = ".spool"
_ASIDE = ".aside"


class SpoolError(Exception):
    """A spool that cannot be used, or a record in it that is damaged."""


@dataclass(frozen=True, slots=True)
class Record:
    """A frame to be kept."""

    boot_id: str
    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is, and whose."""

    segment: int
    offset: int
    length: int
    boot_id: str
    sequence: int


class SegmentStore:
    """The segments of one directory, which belongs to one process at a time.

    Raises SpoolError when another process has it, OSError as the disk does.
    """

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._sizes: dict[int, int] = {}
        self._writing: int | None = None
        self.found: list[Place] = []
        self.aside: list[str] = []
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(directory / "lock")
        self._next = 1
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            self._open_found(path)

    @property
    def used_bytes(self) -> int:
        """What segments and files set aside take."""
        return sum(self._sizes.values()) + sum(path.stat().st_size for path in self._aside_files())

    @property
    def oldest(self) -> int | None:
        """The oldest segment."""
        return min(self._sizes, default=None)

    def append(self, records: Sequence[Record]) -> list[Place]:
        """Write records and wait until they are on disk; after an OSError none of them is there."""
        if self._writing is None or self._sizes[self._writing] >= self._segment_bytes:
            self._begin_segment()
        segment = self._writing
        assert segment is not None
        begin = offset = self._sizes[segment]
        places, parts = [], []
        for record in records:
            content = _packed(record)
            places.append(Place(segment, offset, len(content), record.boot_id, record.sequence))
            parts.append(content)
            offset += len(content)
        with self._path(segment).open("r+b") as file:
            try:
                file.seek(begin)
                file.write(b"".join(parts))
                file.flush()
                os.fdatasync(file.fileno())
            except OSError:
                _truncate(self._path(segment), begin)
                raise
        self._sizes[segment] = offset
        return places

    def read(self, place: Place) -> bytes:
        """Return a frame. Raises SpoolError when it is damaged or gone."""
        try:
            with self._path(place.segment).open("rb") as file:
                file.seek(place.offset)
                content = file.read(place.length)
        except OSError as error:
            raise SpoolError(f"a frame in {self._path(place.segment)} cannot be read: {error}") from error
        record = _unpacked(content, 0)
        if record is None or (record[0].boot_id, record[0].sequence) != (place.boot_id, place.sequence):
            raise SpoolError(f"a frame in {self._path(place.segment)} is damaged")
        return record[0].data

    def delete(self, segment: int) -> None:
        """Delete a segment."""
        self._sizes.pop(segment, None)
        if self._writing == segment:
            self._writing = None
        self._path(segment).unlink(missing_ok=True)

    def delete_aside(self) -> bool:
        """Delete the oldest file that was set aside; False when there is none."""
        files = self._aside_files()
        if files:
            files[0].unlink(missing_ok=True)
        return bool(files)

    def close(self) -> None:
        """Let another process have the directory."""
        os.close(self._lock)

    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:010d}{_SUFFIX}"

    def _aside_files(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{_ASIDE}"))

    def _begin_segment(self) -> None:
        path = self._path(self._next)
        try:
            path.write_bytes(_HEADER)
            _sync_directory(self._directory)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._writing = self._next
        self._sizes[self._next] = len(_HEADER)
        self._next += 1

    def _open_found(self, path: Path) -> None:
        if not path.stem.isdecimal():
            return
        segment = int(path.stem)
        self._next = max(self._next, segment + 1)
        content = path.read_bytes()
        if content[: len(_HEADER)] != _HEADER:
            known = content.startswith(_MAGIC) and len(content) >= len(_HEADER)
            reason = f"is of version {content[len(_MAGIC)]}, not {VERSION}" if known else "is no spool"
            path.rename(path.with_suffix(_ASIDE))
            self.aside.append(f"{path} {reason}")
            return
        offset = len(_HEADER)
        while (found := _unpacked(content, offset)) is not None:
            record, end = found
            self.found.append(Place(segment, offset, end - offset, record.boot_id, record.sequence))
            offset = end
        if offset < len(content):
            path.with_suffix(_ASIDE).write_bytes(content[offset:])
            _truncate(path, offset)
            self.aside.append(f"{path} is damaged from byte {offset} on: {len(content) - offset} bytes")
        if offset == len(_HEADER):
            path.unlink()
        else:
            self._sizes[segment] = offset


def _packed(record: Record) -> bytes:
    boot_id = record.boot_id.encode()
    body = _KEY.pack(record.sequence, len(boot_id)) + boot_id + record.data
    return _RECORD.pack(len(body), zlib.crc32(body)) + body


def _unpacked(content: bytes, offset: int) -> tuple[Record, int] | None:
    """Return the record at an offset and where it ends; None when it is damaged or there is none."""
    begin = offset + _RECORD.size
    if begin > len(content):
        return None
    length, checksum = _RECORD.unpack_from(content, offset)
    if not _KEY.size <= length <= _MAX_BODY or begin + length > len(content):
        return None
    body = memoryview(content)[begin : begin + length]
    if zlib.crc32(body) != checksum:
        return None
    sequence, boot_bytes = _KEY.unpack_from(body)
    boot_id = bytes(body[_KEY.size : _KEY.size + boot_bytes])
    data = bytes(body[_KEY.size + boot_bytes :])
    try:
        return Record(boot_id.decode(), sequence, data), begin + length
    except UnicodeDecodeError:
        return None


def total_bytes(records: Iterable[Record]) -> int:
    """Return what records take on disk."""
    overhead = _RECORD.size + _KEY.size
    return sum(overhead + len(record.boot_id.encode()) + len(record.data) for record in records)


def _lock(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise SpoolError(f"the spool {path.parent} is in use by another process") from error
    return handle


def _truncate(path: Path, length: int) -> None:
    try:
        os.truncate(path, length)
    except OSError:
        return  # the checksum tells the torn record at the next start


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
