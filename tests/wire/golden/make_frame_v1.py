# SPDX-License-Identifier: Apache-2.0
"""Writes frame-v1.bin, the golden frame of schema 1: `python -m tests.wire.golden.make_frame_v1`.

The file is written once per schema and never changed again: later versions must still read it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.frame import CaptureKind, CaptureMode, ClockInfo, Frame, NicIdentity, encode_frame
from dpu_app.wire.tables import TABLE_DTYPES, Tables, WindowBlob

GOLDEN = Path(__file__).with_name("frame-v1.bin")
BEGIN_NS = 1_700_000_000_000_000_000
ROWS = {"flows": 2, "messages": 5, "controls": 4, "bursts": 3, "markers": 6, "events": 2, "histograms": 7}

# Flow 3: windows 0, 1 and 4 of (2 packets, 8192 bytes), (1, 4096), (1, 64); flow 7: window -1 of (1, 0).
WINDOW_BYTES = bytes([2, 3, 0x80, 0x20, 2, 0, 2, 4, 0, 1, 0, 2, 1, 0, 0xFF, 0x3E, 4, 0, 1, 1, 1, 2, 0])
WINDOW_ROWS = [
    (BEGIN_NS, 3, 8192, 2, 0),
    (BEGIN_NS + 8_000, 3, 4096, 1, 0),
    (BEGIN_NS + 32_000, 3, 64, 1, 0),
    (BEGIN_NS - 8_000, 7, 0, 1, 0),
]


def table(name: str) -> NDArray[np.void]:
    """Return rows that differ in every column and use its upper and lower ends."""
    dtype: np.dtype[Any] = TABLE_DTYPES[name]
    rows = np.zeros(ROWS[name], dtype)
    for row in range(len(rows)):
        for column, field in enumerate(dtype.names or ()):
            kind = dtype[field].base
            if field.endswith("_ns") and kind == np.int64:
                rows[row][field] = BEGIN_NS + 1_000_003 * row + column
            elif kind.kind == "f":
                rows[row][field] = 0.5 + row / 8
            else:
                top = int(np.iinfo(kind).max)
                rows[row][field] = top - column if row == 0 else (row * 2654435761 + column * 97) % (top + 1)
    return rows


def golden_frame() -> Frame:
    """Return the frame that frame-v1.bin holds."""
    return Frame(
        nic=NicIdentity("node3", "mlx5_0", ("10.77.0.13", "fe80::1")),
        boot_id="5f1c0d9e-6a51-4a52-8f5e-6b1f0b7a2c11",
        sequence=42,
        begin_ns=BEGIN_NS,
        end_ns=BEGIN_NS + 1_000_000_000,
        clock=ClockInfo("ptp", 250),
        clock_pairs=((BEGIN_NS + 5, BEGIN_NS - 7), (-1, 2**62)),
        mode=CaptureMode(CaptureKind.SAMPLED, 3),
        losses={"capture_ring": 17, "records_lost": 2**63},
        packets={"roce": 123456, "not_ip": 3},
        counters={"port_xmit_wait": 2**64 - 1},
        final=True,
        tables=Tables.of(
            {name: table(name) for name in TABLE_DTYPES}, WindowBlob(BEGIN_NS, 8_000, WINDOW_BYTES)
        ),
    )


if __name__ == "__main__":
    GOLDEN.write_bytes(encode_frame(golden_frame()))
