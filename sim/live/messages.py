# SPDX-License-Identifier: Apache-2.0
"""What goes through the pipe from the simulation to a sender process.

A message is a header (kind, NIC, packets, bytes of the body) and a body. Frames are compressed: most of a
frame is a constant payload, and what waits for its time then takes little memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import zstandard

if TYPE_CHECKING:  # a sender process needs nothing native
    from pulse_native import PacketBatch

HEADER = struct.Struct("<BIII")
START = struct.Struct("<qqd")
"""Body of START: stamp (ns) that is sent at monotonic time (ns), speed."""

_CHUNK_BYTES = 1 << 18


class Kind(IntEnum):
    """Kinds of message."""

    PACKETS = 0
    ROUND = 1
    START = 2
    END = 3


class Chunk:
    """Consecutive packets of one NIC, and which of them is next."""

    __slots__ = ("_frames", "_next", "_offsets", "dues_ns")

    def __init__(self, packets: int, body: bytes, base_ns: int, begin_ns: int, speed: float) -> None:
        content = zstandard.ZstdDecompressor().decompress(body)
        stamps = np.frombuffer(content, "<i8", packets)
        lengths = np.frombuffer(content, "<u4", packets, stamps.nbytes)
        ends = np.cumsum(lengths, dtype=np.int64)
        self._frames = memoryview(content)[stamps.nbytes + lengths.nbytes :]
        self._offsets: list[int] = [0, *ends.tolist()]
        self._next = 0
        self.dues_ns: list[int] = (begin_ns + ((stamps - base_ns) / speed).astype(np.int64)).tolist()

    def frame(self) -> memoryview:
        """Bytes of the next packet."""
        at = self._next
        return self._frames[self._offsets[at] : self._offsets[at + 1]]

    def pass_on(self) -> int | None:
        """Go to the packet after; return when it is due, None when there is none."""
        self._next += 1
        return self.dues_ns[self._next] if self._next < len(self.dues_ns) else None


def packet_messages(nic: int, batch: PacketBatch) -> Iterator[bytes]:
    """The packets of one NIC in messages of bounded size."""
    compressor = zstandard.ZstdCompressor(level=1)
    stamps, lengths = batch.ns.astype("<i8"), batch.captured_bytes.astype("<u4")
    ends = np.cumsum(lengths, dtype=np.int64)
    first, done_bytes = 0, 0
    while first < len(batch):
        last = max(first + 1, int(np.searchsorted(ends, done_bytes + _CHUNK_BYTES, side="right")))
        frames = b"".join(map(batch.data, range(first, last)))
        content = stamps[first:last].tobytes() + lengths[first:last].tobytes() + frames
        body = compressor.compress(content)
        yield HEADER.pack(Kind.PACKETS, nic, last - first, len(body)) + body
        first, done_bytes = last, int(ends[last - 1])


def message(kind: Kind, body: bytes = b"") -> bytes:
    """A message that holds no packets."""
    return HEADER.pack(kind, 0, 0, len(body)) + body
