# SPDX-License-Identifier: Apache-2.0
"""Reads capture files as a stream of packet batches, decompressing on the way."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import zstandard

from dpu_app.wire.frame import CaptureKind, CaptureMode
from pulse_native import CaptureReader, PacketBatch

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


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
            self.problems.append(f"{self.path.name} cannot be read: {error.strerror or error}")
        self._reader.finish()
        self._conclude()

    def losses(self) -> Mapping[str, int]:
        """Packets that the capture itself lost."""
        return {"interface": self._reader.stats["interface_drops"]}

    def _chunks(self, raw: IO[bytes]) -> Iterator[bytes]:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == _GZIP_MAGIC:
            stream: IO[bytes] = gzip.open(raw)  # noqa: SIM115 - closed with the file below it
        elif magic == _ZSTD_MAGIC:
            stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        else:
            stream = raw
        try:
            while chunk := stream.read(_CHUNK):
                yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            self.problems.append(f"{self.path.name} is damaged or cut off in its compression: {error}")

    def _conclude(self) -> None:
        stats, name = self._reader.stats, self.path.name
        self.packets = stats["packets"]
        times = [t for t in (stats["last_ns"], stats["statistics_ns"]) if t is not None]
        self.witness_ns = max(times, default=None)
        if stats["corrupt"]:
            self.problems.append(f"{name}: {stats['corrupt']}")
        elif not stats["bytes"]:
            self.problems.append(f"{name} is empty")
        if stats["truncated_bytes"]:
            self.problems.append(f"{name} is cut off in the middle of a packet ({stats['truncated_bytes']} bytes)")
        for what, count in (
            ("packets without a captured byte", stats["zero_length"]),
            ("packets with impossible times", stats["bad_timestamps"]),
            ("packets without a time", stats["untimed"]),
        ):
            if count:
                self.problems.append(f"{name} holds {count} {what}")
        for link_type, count in stats["skipped_link_types"].items():
            self.problems.append(f"{name} holds {count} packets of link type {link_type}, which is not read")


def detect_mode(path: Path) -> CaptureMode:
    """Whether a capture holds all packets or, as steered ones do, no middle packets of messages.

    Decided on the first few thousand messages; a file that cannot be read counts as ``all``.
    """
    source = CaptureFile(path, CaptureMode())
    firsts, middles, long = 0, 0, 0
    for batch in source.batches():
        packets = batch.parse()
        packets = packets[packets["outcome"] == 0]
        counts = Counter((packets["opcode"] & 0x1F).tolist())
        firsts += counts[0x06] + counts[0x00]
        middles += counts[0x07] + counts[0x01]
        writes = packets[(packets["opcode"] & 0x1F) == 0x06]
        long += int((writes["dma_bytes"] > 2 * writes["payload_bytes"].astype("u8")).sum())
        if firsts >= 256 or middles >= 256:
            break
    return CaptureMode(CaptureKind.STEERED if long >= 8 and middles == 0 else CaptureKind.ALL)
