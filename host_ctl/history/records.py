# SPDX-License-Identifier: Apache-2.0
"""Layout of the history's segment files, and how records are found in them, damaged ones passed over.

A segment is the eight bytes `PLSHIS`, version, newline, then records: a marker, the lengths of key and
frame, the CRC-32 of these and the key, the CRC-32 of the frame (u32 each, little-endian), key, frame. The
key says whose frame it is and when, so that a segment can be listed without reading what it holds.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpu_app.wire.frame import MAX_FRAME_BYTES

VERSION = 1
HEADER = b"PLSHIS" + bytes([VERSION]) + b"\n"
SUFFIX = ".history"
UNKNOWN_NS = 2**63 - 1
"""Uncertainty of a clock that nothing is known of."""

_MARKER = b"\xf1FRM"
_HEAD = struct.Struct("<4sIIII")
_SUMMED = struct.Struct("<II")
_KEY = struct.Struct("<QqqqqQHHH")
_MAX_KEY = _KEY.size + 3 * 1024
_PEEK = 256  # holds head and key of nearly every record
_SEARCH = 1 << 20


@dataclass(frozen=True, slots=True)
class FrameKey:
    """Whose frame it is and when; begin, end and receipt are times of the controller's clock.

    `clock_offset_ns` is the system clock of the machine minus the controller's as it was known at receipt,
    wrong by at most `clock_uncertainty_ns`.
    """

    machine: str
    nic: str
    boot_id: str
    sequence: int
    received_ns: int
    begin_ns: int
    end_ns: int
    clock_offset_ns: int = 0
    clock_uncertainty_ns: int = UNKNOWN_NS

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What makes two frames the same one."""
        return self.machine, self.nic, self.boot_id, self.sequence


@dataclass(frozen=True, slots=True)
class Found:
    """A record in a segment: its key, and where the record and its frame are."""

    key: FrameKey
    offset: int
    frame_offset: int
    frame_bytes: int
    checksum: int

    @property
    def end(self) -> int:
        """Where the record ends."""
        return self.frame_offset + self.frame_bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are no record."""

    offset: int
    end: int


def pack_record(key: FrameKey, frame: bytes) -> bytes:
    """Return the bytes of a record."""
    return pack_front(key, frame) + frame


def pack_front(key: FrameKey, frame: bytes) -> bytes:
    """Return what stands in a record before its frame."""
    texts = [text.encode() for text in (key.machine, key.nic, key.boot_id)]
    numbers = (key.sequence, key.received_ns, key.begin_ns, key.end_ns, key.clock_offset_ns)
    packed = _KEY.pack(*numbers, key.clock_uncertainty_ns, *map(len, texts)) + b"".join(texts)
    checksum = zlib.crc32(packed, zlib.crc32(_SUMMED.pack(len(packed), len(frame))))
    return _HEAD.pack(_MARKER, len(packed), len(frame), checksum, zlib.crc32(frame)) + packed


def walk(path: Path, *, verify: bool = False, begin: int = len(HEADER)) -> Iterator[Found | Damage]:
    """Yield the records of a segment in its order, from a place on, and the stretches between that are none.

    With `verify` frames are read and checked too. Raises OSError; a file without a header is damage.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        if os.pread(handle, len(HEADER), 0) != HEADER:
            yield Damage(0, size)
            return
        offset = begin
        while offset < size:
            found = _record_at(handle, offset, size)
            if found is not None and verify and not _is_whole(handle, found):
                found = None
            if found is None:
                end = _next_record(handle, offset + 1, size)
                yield Damage(offset, end)
                offset = end
            else:
                yield found
                offset = found.end
    finally:
        os.close(handle)


def read_frame(path: Path, found: Found) -> bytes | None:
    """Return a record's frame; None when it is damaged. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _frame_of(handle, found)
    finally:
        os.close(handle)


def _frame_of(handle: int, found: Found) -> bytes | None:
    frame = os.pread(handle, found.frame_bytes, found.frame_offset)
    return frame if len(frame) == found.frame_bytes and zlib.crc32(frame) == found.checksum else None


def _is_whole(handle: int, found: Found) -> bool:
    return _frame_of(handle, found) is not None


def _record_at(handle: int, offset: int, size: int) -> Found | None:
    content = os.pread(handle, _PEEK, offset)
    if len(content) < _HEAD.size:
        return None
    marker, key_bytes, frame_bytes, key_sum, frame_sum = _HEAD.unpack_from(content)
    if marker != _MARKER or not _KEY.size <= key_bytes <= _MAX_KEY or frame_bytes > MAX_FRAME_BYTES:
        return None
    begin = _HEAD.size + key_bytes
    if offset + begin + frame_bytes > size:
        return None
    if begin > len(content):
        content = os.pread(handle, begin, offset)
    packed = content[_HEAD.size : begin]
    if zlib.crc32(packed, zlib.crc32(_SUMMED.pack(key_bytes, frame_bytes))) != key_sum:
        return None
    return Found(_unpacked(packed), offset, offset + begin, frame_bytes, frame_sum)


def _unpacked(packed: bytes) -> FrameKey:
    *numbers, machine, nic, boot_id = _KEY.unpack_from(packed)
    ends = _KEY.size + machine, _KEY.size + machine + nic, _KEY.size + machine + nic + boot_id
    return FrameKey(
        packed[_KEY.size : ends[0]].decode(errors="replace"),
        packed[ends[0] : ends[1]].decode(errors="replace"),
        packed[ends[1] : ends[2]].decode(errors="replace"),
        *numbers,
    )


def _next_record(handle: int, offset: int, size: int) -> int:
    """Return where the next record begins that can be read, the end of the file when there is none."""
    while offset < size:
        content = os.pread(handle, _SEARCH, offset)
        at = content.find(_MARKER)
        while at >= 0:
            if _record_at(handle, offset + at, size) is not None:
                return offset + at
            at = content.find(_MARKER, at + 1)
        if len(content) < _SEARCH:
            return size
        offset += len(content) - len(_MARKER) + 1
    return size
