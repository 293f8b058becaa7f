# SPDX-License-Identifier: Apache-2.0
"""Makes a long pcap file of a short one, by repeating its packets with later times."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from pulse_native import CaptureReader

_HEADER_BYTES = 24
_RECORD_BYTES = 16
_CHUNK_BYTES = 1 << 20
_MAGICS = {
    bytes.fromhex("d4c3b2a1"): ("<", 1_000),
    bytes.fromhex("a1b2c3d4"): (">", 1_000),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
    bytes.fromhex("a1b23c4d"): (">", 1),
}
# A queue pair that starts anew after so long a silence is a new one to the meter.
_SILENCE_NS = 61_000_000_000


def packet_count(path: Path) -> int:
    """The number of packets of an uncompressed capture."""
    reader = CaptureReader()
    with path.open("rb") as file:
        return sum(len(reader.feed(chunk)) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))


def unpack_capture(path: Path, folder: Path) -> Path:
    """Copy a capture into a folder, without its compression; gives the copy."""
    target = folder / (path.stem if path.suffix in (".gz", ".zst") else path.name)
    with path.open("rb") as source, target.open("wb") as out:
        if path.suffix == ".gz":
            with gzip.open(source) as plain:
                shutil.copyfileobj(plain, out)
        elif path.suffix == ".zst":
            zstandard.ZstdDecompressor().copy_stream(source, out)
        else:
            shutil.copyfileobj(source, out)
    return target


def repeat_capture(path: Path, times: int) -> None:
    """Write the packets of a pcap file ``times`` times into it, each time later than the time before.

    Raises ValueError for another format, and for a file that is damaged or empty.
    """
    content = path.read_bytes()
    if content[:4] not in _MAGICS:
        raise ValueError(f"{path.name} is no pcap file: convert it (editcap -F nsecpcap) to have it repeated")
    order, unit_ns = _MAGICS[content[:4]]
    packets = np.frombuffer(content, np.uint8)[_HEADER_BYTES:].copy()
    at = _record_offsets(content, order, path.name) - _HEADER_BYTES
    clock = np.dtype([("seconds", f"{order}u4"), ("fraction", f"{order}u4")])
    where = at[:, None] + np.arange(clock.itemsize)
    stamps = packets[where].view(clock).reshape(-1)
    ns = stamps["seconds"].astype(np.int64) * 1_000_000_000 + stamps["fraction"].astype(np.int64) * unit_ns
    period = int(ns.max() - ns.min()) + _SILENCE_NS
    with path.open("ab") as out:
        for number in range(1, times):
            later = np.empty(len(ns), clock)
            seconds, rest = np.divmod(ns + number * period, 1_000_000_000)
            later["seconds"], later["fraction"] = seconds, rest // unit_ns
            packets[where] = later.view(np.uint8).reshape(where.shape)
            out.write(packets.tobytes())


def _record_offsets(content: bytes, order: str, name: str) -> NDArray[np.int64]:
    """Where each packet record begins; the file must hold whole records only."""
    offsets = []
    at, length = _HEADER_BYTES, struct.Struct(f"{order}I")
    while at + _RECORD_BYTES <= len(content):
        offsets.append(at)
        at += _RECORD_BYTES + length.unpack_from(content, at + 8)[0]
    if at != len(content) or not offsets:
        raise ValueError(f"{name} is empty or damaged: nothing to repeat")
    return np.array(offsets, np.int64)
