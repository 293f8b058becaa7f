# SPDX-License-Identifier: Apache-2.0
"""Writes frame-v1-series.bin: `python -m tests.wire.golden.make_frame_v1_series`.

The golden frame of schema 1 with its windows as a series. Like every golden file it is written once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpu_app.wire.frame import Frame, encode_frame
from dpu_app.wire.tables import TABLE_DTYPES, Tables, WindowBlob
from tests.wire.golden.make_frame_v1 import BEGIN_NS, golden_frame, table

GOLDEN_SERIES = Path(__file__).with_name("frame-v1-series.bin")
WINDOW_NS = 8_000
_FIRST = BEGIN_NS // WINDOW_NS


def varint(value: int) -> bytes:
    """Return a LEB128 number."""
    head = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return head + varint(value >> 7) if value > 0x7F else head


# Flow 3: window 0 of (2 packets, 8192 bytes), 1 of (1, 4096), 4 of (1, 64), 5 to 14 of (970, 970 x 4096).
FLOW_3 = (
    bytes([0xC2]) + varint(2 * _FIRST) + varint(2) + varint(2 * 8192)
    + bytes([0x00])
    + bytes([0xC2]) + varint(2 * 2) + varint(1) + varint(2 * (4096 - 64) - 1)
    + bytes([0xC5]) + varint(9) + varint(970)
)  # fmt: skip
# Flow 7: window -1 of (1, 0), then 0 of (33, 0).
FLOW_7 = bytes([0xC0]) + varint(2 * (_FIRST - 1)) + varint(1) + bytes([0xC4]) + varint(33)
SERIES = b"".join([varint(2), varint(3), varint(len(FLOW_3)), FLOW_3, varint(4), varint(len(FLOW_7)), FLOW_7])

PIECE_ROWS = [
    (BEGIN_NS, 8192, 3, 2, 1, 0),
    (BEGIN_NS + WINDOW_NS, 4096, 3, 1, 1, 0),
    (BEGIN_NS + 4 * WINDOW_NS, 64, 3, 1, 1, 0),
    (BEGIN_NS + 5 * WINDOW_NS, 970 * 4096, 3, 970, 10, 0),
    (BEGIN_NS - WINDOW_NS, 0, 7, 1, 1, 0),
    (BEGIN_NS, 0, 7, 33, 1, 0),
]


def golden_series_frame() -> Frame:
    """Return the frame that frame-v1-series.bin holds."""
    windows = WindowBlob(BEGIN_NS, WINDOW_NS, series=SERIES)
    return replace(golden_frame(), tables=Tables.of({name: table(name) for name in TABLE_DTYPES}, windows))


if __name__ == "__main__":
    GOLDEN_SERIES.write_bytes(encode_frame(golden_series_frame()))
