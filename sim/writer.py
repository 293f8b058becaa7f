# SPDX-License-Identifier: Apache-2.0
"""Nanosecond pcap files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sim.headers import SNAP_BYTES, Frames

_MAGIC_NS = 0xA1B23C4D
_LINK_ETHERNET = 1
_RECORD_BYTES = 16


def write_pcap(path: Path, stamps_ns: npt.NDArray[np.int64], frames: Frames) -> None:
    """Write ``frames`` with their stamps (epoch ns, in file order) as a little-endian pcap file."""
    count = len(stamps_ns)
    head = np.empty((count, 4), dtype="<u4")
    head[:, 0], head[:, 1] = np.divmod(stamps_ns, 1_000_000_000)
    head[:, 2], head[:, 3] = frames.captured, frames.original
    rows = np.empty((count, _RECORD_BYTES + SNAP_BYTES), dtype=np.uint8)
    rows[:, :_RECORD_BYTES] = head.view(np.uint8).reshape(count, _RECORD_BYTES)
    rows[:, _RECORD_BYTES:] = frames.data
    keep = np.arange(_RECORD_BYTES + SNAP_BYTES) < (frames.captured + _RECORD_BYTES)[:, None]
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, SNAP_BYTES, _LINK_ETHERNET))
        file.write(rows[keep].tobytes())
