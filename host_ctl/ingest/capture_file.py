# SPDX-License-Identifier: Apache-2.0
"""Reads capture files as a stream of packet batches, decompressing on the way."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import IO

import numpy as np
import zstandard

from dpu_app.wire.frame import CaptureKind, CaptureMode
from host_ctl.errors import printable
from pulse_native import CaptureReader, PacketBatch

_CHUNK = 1 << 19
_ZSTD_CHUNK = 1 << 12
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_UNCONNECTED = 0x40  # opcodes of RC and UC lie below
_OPERATION = 0x1F
_SEND_FIRST, _SEND_MIDDLE, _WRITE_FIRST, _WRITE_MIDDLE = 0x00, 0x01, 0x06, 0x07
_ENOUGH_MESSAGES = 256
_MIN_LONG = 8


class CaptureFile:
    """One capture file as a packet source; what was wrong with it is in ``problems`` afterwards."""

    def __init__(self, path: Path, mode: CaptureMode) -> None:
        self.path = path
        self.problems: list[str] = []
        self.witness_ns: int | None = None
        self.packets = 0
        self._mode = mode
        self._reader = CaptureReader()

    @property
    def name(self) -> str:
        """The file's name as a message may show it."""
        return printable(self.path.name)

    @property
    def mode(self) -> CaptureMode:
        """Which packets the capture holds."""
        return self._mode

    def batches(self) -> Iterator[PacketBatch]:
        """Packets in file order. Damage ends the stream and is told in ``problems``, not raised."""
        try:
            with self.path.open("rb") as raw:
                for chunk in self._chunks(raw):
                    batch = self._reader.feed(chunk)
                    if len(batch):
                        yield batch
                    if self._reader.stats["corrupt"]:
                        break
        except OSError as error:
            self.problems.append(f"{self.name} cannot be read: {error.strerror or error}")
        self._reader.finish()
        self._conclude()

    @property
    def recognised(self) -> bool:
        """Whether the file, read to its end, has at least the head of a capture."""
        stats = self._reader.stats
        return stats["bytes"] > stats["truncated_bytes"] and not stats["corrupt"]

    def losses(self) -> Mapping[str, int]:
        """Packets that the capture itself lost."""
        return {"interface": self._reader.stats["interface_drops"]}

    def _chunks(self, raw: IO[bytes]) -> Iterator[bytes]:
        magic = raw.read(4)
        raw.seek(0)
        try:
            if magic[:2] == _GZIP_MAGIC:
                yield from _gunzip(raw)
            elif magic == _ZSTD_MAGIC:
                yield from _unzstd(raw)
            else:
                while chunk := raw.read(_CHUNK):
                    yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            self.problems.append(f"{self.name} is damaged or cut off in its compression: {error}")

    def _conclude(self) -> None:
        stats, name = self._reader.stats, self.name
        self.packets = stats["packets"]
        times = [t for t in (stats["last_ns"], stats["statistics_ns"]) if t is not None]
        self.witness_ns = max(times, default=None)
        if stats["corrupt"]:
            self.problems.append(f"{name}: {stats['corrupt']}")
        elif not stats["bytes"] and not self.problems:
            self.problems.append(f"{name} is empty")
        if stats["truncated_bytes"]:
            self.problems.append(
                f"{name} is cut off in the middle of a packet ({stats['truncated_bytes']} bytes)"
            )
        for what, count in (
            ("packets without a captured byte", stats["zero_length"]),
            ("packets with impossible times", stats["bad_timestamps"]),
            ("packets without a time", stats["untimed"]),
        ):
            if count:
                self.problems.append(f"{name} holds {count} {what}")
        for link_type, count in stats["skipped_link_types"].items():
            self.problems.append(f"{name} holds {count} packets of link type {link_type}, which is not read")


def _gunzip(raw: IO[bytes]) -> Iterator[bytes]:
    # read1 hands out what there is before it complains that the rest is missing.
    with gzip.GzipFile(fileobj=raw) as stream:
        while chunk := stream.read1(_CHUNK):
            yield chunk


def _unzstd(raw: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame; raises EOFError when the last one has no end.

    Little is taken at a time, because a hostile file may grow 30,000 times.
    """
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    begun = False
    while data := raw.read(_ZSTD_CHUNK):
        while data:
            begun = True
            yield frame.decompress(data)
            data = b""
            if frame.eof:
                data = frame.unused_data
                frame, begun = decompressor.decompressobj(), False
    if begun:
        raise EOFError("the file ends inside a zstd frame")


def why_unreadable(path: Path) -> str | None:
    """What keeps a file from being read as a capture at all, in one line; None when it begins like one."""
    name = printable(path.name)
    try:
        kind = path.stat().st_mode
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    if not S_ISREG(kind):
        return f"{name} is no regular file"
    source = CaptureFile(path, CaptureMode())
    if next(source.batches(), None) is not None or source.recognised:
        return None
    return source.problems[0] if source.problems else f"{name} is no capture"


def detect_mode(paths: Iterable[Path]) -> CaptureMode:
    """Whether a NIC's captures hold all packets or, as steered ones do, no middle packets of messages.

    Decided on the first few hundred messages; files that cannot be read count as ``all``.
    """
    firsts, middles, long = 0, 0, 0
    for path in paths:
        for batch in CaptureFile(path, CaptureMode()).batches():
            packets = batch.parse()
            connected = (packets["outcome"] == 0) & (packets["opcode"] < _UNCONNECTED)
            packets = packets[connected]
            operation = packets["opcode"] & _OPERATION
            firsts += int(np.isin(operation, (_SEND_FIRST, _WRITE_FIRST)).sum())
            middles += int(np.isin(operation, (_SEND_MIDDLE, _WRITE_MIDDLE)).sum())
            writes = packets[operation == _WRITE_FIRST]
            long += int((writes["dma_bytes"] > 2 * writes["payload_bytes"].astype("u8")).sum())
            if firsts >= _ENOUGH_MESSAGES or middles >= _ENOUGH_MESSAGES:
                return _mode(middles, long)
    return _mode(middles, long)


def _mode(middles: int, long: int) -> CaptureMode:
    return CaptureMode(CaptureKind.STEERED if long >= _MIN_LONG and middles == 0 else CaptureKind.ALL)
