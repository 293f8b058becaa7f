# SPDX-License-Identifier: Apache-2.0
"""WaveSketch, as its paper and its public description define it, written anew from these.

Source: uMon (SIGCOMM 2024): windows of 8192 ns, up to 2048 of them to a report, eight levels of the
un-normalised Haar transform, the K details with the largest L2 weight, in their ideal form (a heap, not the
thresholds of the switch variant). A light part shares its buckets between flows by hash, row by row, and is
read like a Count-Min sketch; a heavy part elects flows by votes (+8 for a hit, -1 for a miss) and gives them
buckets of their own, whose curves are taken out of the shared ones. Amounts are in units of 1000 bytes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LEVELS = 8
REPORT_WINDOWS = 2048
UNIT_BYTES = 1000
LIGHT_ROWS = 3
LIGHT_COLUMNS = 32
HEAVY_ROWS = 16
HEAVY_COLUMNS = 2
HIT_CREDIT = 8
KEPT_WINDOWS = 256  # a curve that is voted out is reported when it is at least this long

_HEADER_BYTES = 12  # start, windows, running sum
_APPROXIMATION_BYTES = 4
_DETAIL_BYTES = 4  # position, sign and value

Curve = NDArray[np.float64]


def bucket_bytes(details: int) -> int:
    """Bytes of a bucket's report with K details."""
    return _HEADER_BYTES + (REPORT_WINDOWS >> LEVELS) * _APPROXIMATION_BYTES + details * _DETAIL_BYTES


def details_for(report_bytes: float, buckets: int) -> int:
    """The K with which so many buckets take at most `report_bytes`; negative when not even K = 0 does."""
    return int((report_bytes / buckets - bucket_bytes(0)) // _DETAIL_BYTES)


def approximate(curve: Curve, details: int) -> Curve:
    """Return what a bucket that saw the curve (units per window, length REPORT_WINDOWS) gives back."""
    active = np.flatnonzero(curve)
    if len(active) == 0:
        return np.zeros_like(curve)
    start, end = int(active[0]), int(active[-1]) + 1
    low = np.zeros(REPORT_WINDOWS)
    low[: end - start] = np.round(curve[start:end])
    highs: list[Curve] = []
    for _ in range(LEVELS):
        pairs = low.reshape(-1, 2)
        highs.append(pairs[:, 0] - pairs[:, 1])
        low = pairs.sum(axis=1)
    weights = [np.abs(high) * 2.0 ** ((LEVELS - 1 - level) / 2) for level, high in enumerate(highs)]
    candidates = [
        (weight, level, place)
        for level, of_level in enumerate(weights)
        for place, weight in enumerate(of_level.tolist())
        if weight > 0
    ]
    chosen = heapq.nlargest(max(details, 0), candidates)
    kept = [np.zeros_like(high) for high in highs]
    for _, level, place in chosen:
        kept[level][place] = highs[level][place]
    for high in reversed(kept):
        low = np.stack([(low + high) / 2, (low - high) / 2], axis=1).ravel()
    result = np.zeros_like(curve)
    result[start:end] = np.where(low[: end - start] > 0, low[: end - start], 1.0)
    return result


@dataclass(slots=True)
class _Heavy:
    flow: int = -1
    votes: int = 0
    curve: Curve = field(default_factory=lambda: np.zeros(REPORT_WINDOWS))


class WaveSketch:
    """One report of the published table; curves of all flows in units per window, in the order of time."""

    buckets = LIGHT_ROWS * LIGHT_COLUMNS + HEAVY_ROWS * HEAVY_COLUMNS

    def __init__(self, details: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._details = details
        self._multipliers = rng.integers(1, 1 << 31, LIGHT_ROWS + 1) * 2 + 1
        self._light = np.zeros((LIGHT_ROWS, LIGHT_COLUMNS, REPORT_WINDOWS))
        self._heavy = [[_Heavy() for _ in range(HEAVY_COLUMNS)] for _ in range(HEAVY_ROWS)]
        self._evicted: list[tuple[int, Curve]] = []

    def add(self, flow: int, window: int, units: float, packets: int) -> None:
        """Count what a flow sent in a window; packets are what votes."""
        for row in range(LIGHT_ROWS):
            self._light[row, self._column(row, flow), window] += units
        slots = self._heavy[self._hash(LIGHT_ROWS, flow) % HEAVY_ROWS]
        mine = next((slot for slot in slots if slot.flow == flow), None)
        if mine is not None:
            mine.votes += HIT_CREDIT * packets
            mine.curve[window] += units
            return
        weakest = min(slots, key=lambda slot: slot.votes)
        weakest.votes -= packets
        if weakest.votes > 0:
            return
        active = np.flatnonzero(weakest.curve)
        if weakest.flow >= 0 and len(active) and active[-1] - active[0] + 1 >= KEPT_WINDOWS:
            self._evicted.append((weakest.flow, weakest.curve))
        weakest.flow, weakest.votes, weakest.curve = flow, HIT_CREDIT * packets, np.zeros(REPORT_WINDOWS)
        weakest.curve[window] = units

    def curves(self, flows: int) -> NDArray[np.float64]:
        """Return the curve that the sketch gives for each flow."""
        owned: dict[int, Curve] = {}
        elected = [(slot.flow, slot.curve) for slots in self._heavy for slot in slots if slot.flow >= 0]
        for flow, curve in [*elected, *self._evicted]:
            owned[flow] = owned.get(flow, 0) + approximate(curve, self._details)
        light = np.empty_like(self._light)
        for row in range(LIGHT_ROWS):
            for column in range(LIGHT_COLUMNS):
                light[row, column] = approximate(self._light[row, column], self._details)
            for flow, curve in owned.items():
                light[row, self._column(row, flow)] -= curve
        result = np.empty((flows, REPORT_WINDOWS))
        for flow in range(flows):
            rows = [light[row, self._column(row, flow)] for row in range(LIGHT_ROWS)]
            rest = np.maximum(np.min(rows, axis=0), 0)
            # What a flow sent before it was elected lies in the shared part, with what others left there.
            result[flow] = owned.get(flow, rest)
        return result

    def _hash(self, row: int, flow: int) -> int:
        return (int(self._multipliers[row]) * (flow + 1) * 0x9E3779B1 & 0xFFFFFFFF) >> 12

    def _column(self, row: int, flow: int) -> int:
        return self._hash(row, flow) % LIGHT_COLUMNS
