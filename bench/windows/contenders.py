# SPDX-License-Identifier: Apache-2.0
"""Ways to keep curves in a given number of bytes; each gives what it would show, and the bytes it took."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.windows.curves import Curves
from bench.windows.wavesketch import (
    REPORT_WINDOWS,
    UNIT_BYTES,
    WaveSketch,
    approximate,
    bucket_bytes,
    details_for,
)
from pulse_native._bench import keep_windows

Kept = tuple[NDArray[np.float64], int]
"""Curves in units of UNIT_BYTES, and the bytes of what is reported."""

_EXACT_BUDGET = 1 << 28
_COUNTER_BYTES = 2


def exact_bytes(curves: Curves) -> int:
    """Return the bytes of Pulse's entries when nothing is given up."""
    return _store(curves, _EXACT_BUDGET)[1]


def pulse(curves: Curves, budget: int) -> Kept:
    """Keep in the meter's window store, with the arena whose entries come closest to the budget."""
    low, high = 64, budget * 2
    best = _store(curves, low)
    while high - low > max(64, budget // 200):
        middle = (low + high) // 2
        kept = _store(curves, middle)
        if kept[1] <= budget:
            low, best = middle, kept
        else:
            high = middle
    return best


def _store(curves: Curves, arena_bytes: int) -> Kept:
    window, flow = np.nonzero(curves.packets.T)
    rows, size = keep_windows(
        flow.astype(np.uint32),
        window.astype(np.int64),
        curves.bytes[flow, window].astype(np.uint64),
        curves.packets[flow, window].astype(np.uint32),
        len(curves.packets),
        arena_bytes,
    )
    result = np.zeros(curves.packets.shape)
    for row in rows:
        length = int(row["windows"])
        begin = int(row["start_ns"])
        result[row["flow"], begin : begin + length] += row["bytes"] / length / UNIT_BYTES
    return result, size


def wavesketch(curves: Curves, budget: int) -> Kept:
    """Keep in the published table: flows share buckets."""
    reports = curves.packets.shape[1] // REPORT_WINDOWS
    details = max(0, details_for(budget / reports, WaveSketch.buckets))
    result = np.zeros(curves.packets.shape)
    for report in range(reports):
        part = slice(report * REPORT_WINDOWS, (report + 1) * REPORT_WINDOWS)
        sketch = WaveSketch(details, seed=report)
        packets, sizes = curves.packets[:, part], curves.bytes[:, part]
        for window, flow in np.argwhere(packets.T):
            sketch.add(int(flow), int(window), sizes[flow, window] / UNIT_BYTES, int(packets[flow, window]))
        result[:, part] = sketch.curves(len(packets))
    return result, reports * WaveSketch.buckets * bucket_bytes(details)


def wavesketch_alone(curves: Curves, budget: int) -> Kept:
    """Keep with a bucket for each flow: what the published transform gives when no flow ever shares."""
    flows = len(curves.packets)
    busy = curves.packets.reshape(flows, -1, REPORT_WINDOWS).any(axis=2)
    details = max(0, details_for(budget, int(busy.sum())))
    result = np.zeros(curves.packets.shape)
    for flow, report in np.argwhere(busy):
        part = slice(report * REPORT_WINDOWS, (report + 1) * REPORT_WINDOWS)
        result[flow, part] = approximate(curves.bytes[flow, part] / UNIT_BYTES, details)
    return result, int(busy.sum()) * bucket_bytes(details)


def counters(curves: Curves, budget: int) -> Kept:
    """Keep two-byte counters of equal windows, the narrowest power of two that fits."""
    flows, windows = curves.packets.shape
    width = 1
    while flows * (windows // width) * _COUNTER_BYTES > budget and width < windows:
        width *= 2
    sums = (curves.bytes / UNIT_BYTES).reshape(flows, -1, width).sum(axis=2)
    return np.repeat(sums / width, width, axis=1), flows * (windows // width) * _COUNTER_BYTES


CONTENDERS: dict[str, Callable[[Curves, int], Kept]] = {
    "pulse": pulse,
    "wavesketch": wavesketch,
    "wavesketch, a bucket each": wavesketch_alone,
    "counters": counters,
}
