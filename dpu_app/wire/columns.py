# SPDX-License-Identifier: Apache-2.0
"""Structured arrays as bytes that compress well, and back.

Columns stand one after the other, and within a column all first bytes, then all second bytes, and so on:
neighbours are alike there. Times are stored as differences, see `TIME_COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.errors import FrameFormatError

# Column -> None: difference to the row before. Column -> other column: difference to that one in its row.
TIME_COLUMNS: dict[str, str | None] = {
    "first_ns": None,
    "last_ns": "first_ns",
    "start_ns": None,
    "end_ns": "start_ns",
    "ns": None,
}


def pack_columns(table: NDArray[np.void]) -> bytes:
    """Return the column bytes of a one-dimensional structured array, rows x itemsize bytes."""
    return b"".join(packed_columns(table))


def packed_columns(table: NDArray[np.void]) -> Iterator[bytes]:
    """Yield the same in parts, of which no two need be held: a table may fill most of a DPU's budget."""
    for name in _names(table.dtype):
        column = np.ascontiguousarray(table[name]) if name not in TIME_COLUMNS else _difference(table, name)
        planes = column.view(np.uint8).reshape(len(table), _width(table.dtype, name))
        for place in range(planes.shape[1]):
            yield planes[:, place].tobytes()


def unpack_columns(data: bytes, dtype: np.dtype[Any], rows: int) -> NDArray[np.void]:
    """Return the table of `pack_columns`.

    Raises FrameFormatError when `data` is not rows x itemsize bytes long.
    """
    if len(data) != rows * dtype.itemsize:
        raise FrameFormatError(
            f"{rows} rows of {dtype.itemsize} bytes do not fill a section of {len(data)} bytes"
        )
    table = np.empty(rows, dtype)
    at = 0
    for name in _names(dtype):
        field = table[name]
        width = _width(dtype, name)
        planes = np.frombuffer(data, np.uint8, rows * width, at).reshape(width, rows)
        column = np.ascontiguousarray(planes.T).view(field.dtype)
        table[name] = column.reshape(field.shape)
        at += rows * width
    for name, reference in TIME_COLUMNS.items():
        if name in _names(dtype):
            _restore(table, name, reference)
    return table


def _names(dtype: np.dtype[Any]) -> tuple[str, ...]:
    assert dtype.names is not None
    return dtype.names


def _width(dtype: np.dtype[Any], name: str) -> int:
    return dtype[name].itemsize


# Differences and sums wrap around in 64 bits, so every pair of times survives.
def _difference(table: NDArray[np.void], name: str) -> NDArray[np.uint64]:
    reference = TIME_COLUMNS[name]
    times = table[name].astype(np.uint64)
    if reference is not None:
        times -= table[reference].astype(np.uint64)
    else:
        times[1:] -= table[name][:-1].astype(np.uint64)
    return times


def _restore(table: NDArray[np.void], name: str, reference: str | None) -> None:
    differences = np.ascontiguousarray(table[name]).view(np.uint64)
    if reference is None:
        times = np.cumsum(differences, dtype=np.uint64)
    else:
        times = differences + np.ascontiguousarray(table[reference]).view(np.uint64)
    table[name] = times.view(np.int64)
