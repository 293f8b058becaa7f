# SPDX-License-Identifier: Apache-2.0
"""Finds the clocks of one component together, as lines or, where drifts wander, as lines with knots.

Every transit is, after correction, at least its pair's least delay, delays of a pair are equal in both
directions, and the sum of what exceeds the least delays is minimal (Moon, Skelly and Towsley, "Estimation and
removal of clock skew from network delay measurements", INFOCOM 1999, for one pair and a line). That is a
linear program. Least delays may come out negative: stamps of sending can be late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from host_ctl.align.markers import Times
from host_ctl.align.quickest import Transits

_NS_PER_US = 1e3
_MAX_DRIFT_PPM = 500.0
"""Five times what a bad crystal does; keeps short captures from fitting queues as drift."""

_MOST_SEGMENTS = 128
_WINDOWS_PER_SEGMENT = 1.25
_RESOLUTION_US = 0.02
_PRICE = 0.75
_BENT_US = 0.1
_STIFFNESS = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Errors of a component's clocks: ``coarse_ns`` plus what lies between knots, plus steps.

    ``knots_ns`` are times of each NIC with resets taken out, ``values_ns`` the errors there; ``steps_ns``
    are, per member, what its resets were more than had been taken out. ``delays_ns`` has the least delay of
    each Transits, ``excess_ns`` the mean of what exceeds it.
    """

    coarse_ns: Times
    knots_ns: Times
    values_ns: Floats
    steps_ns: tuple[Floats, ...]
    delays_ns: Floats
    excess_ns: float

    def error(self, member: int, ns: Times, sides: NDArray[np.bool_]) -> tuple[int, Floats]:
        """The error of a member's clock at stamps (resets taken out): a constant and what varies (ns)."""
        left, weight = _weights(self.knots_ns[member], ns)
        values = self.values_ns[member]
        varying = values[left] * (1 - weight) + values[left + 1] * weight
        return int(self.coarse_ns[member]), varying + sides @ self.steps_ns[member]

    def delays(self, place: dict[int, int], one: Transits) -> Floats:
        """Corrected transits (ns)."""
        a, b = place[one.before], place[one.after]
        base_a, error_a = self.error(a, one.before_ns, one.before_steps)
        base_b, error_b = self.error(b, one.after_ns, one.after_steps)
        return np.asarray((one.transit_ns - (base_b - base_a)) - error_b + error_a)


def fit_clocks(
    place: dict[int, int], transits: Sequence[Transits], resets: Sequence[int], most: int = _MOST_SEGMENTS
) -> Fit:
    """The clocks of a component, with the fewest knots that explain its transits.

    ``place`` numbers the members, ``resets`` counts the resets of each, ``most`` limits the segments. More
    knots must lessen the excess by more than as many free numbers do by chance (an exponential excess, and
    Schwarz's price).
    """
    coarse = _coarse_offsets(place, transits)
    rows = sum(len(t.before_ns) for t in transits)
    windows = max(len(t.before_ns) for t in transits)
    best = _solve(place, transits, resets, coarse, 1)
    segments, tried = 1, 1
    most = min(most, int(windows / _WINDOWS_PER_SEGMENT))
    while tried < most and tried <= 2 * segments and best.excess_ns > _BENT_US * _NS_PER_US:
        tried = min(2 * tried, most)
        finer = _solve(place, transits, resets, coarse, tried)
        gain = rows * np.log(
            (best.excess_ns / _NS_PER_US + _RESOLUTION_US) / (finer.excess_ns / _NS_PER_US + _RESOLUTION_US)
        )
        if gain > _PRICE * 0.5 * np.log(rows) * (len(place) - 1) * (tried - segments):
            best, segments = finer, tried
    return best


def _coarse_offsets(place: dict[int, int], transits: Sequence[Transits]) -> Times:
    """Offsets to within a delay, by walking the graph from its first member (ns)."""
    offset: dict[int, int] = {0: 0}
    pending = True
    while pending:
        pending = False
        for t in transits:
            a, b = place[t.before], place[t.after]
            least = int(t.transit_ns.min())
            if b not in offset and a in offset:
                offset[b], pending = offset[a] + least, True
            elif a not in offset and b in offset:
                offset[a], pending = offset[b] - least, True
    return np.array([offset.get(i, 0) for i in range(len(place))], dtype=np.int64)


def _knots(place: dict[int, int], transits: Sequence[Transits], coarse: Times, segments: int) -> Times:
    """Knots of every member, so that each segment has equally many transits."""
    pooled = np.sort(np.concatenate([t.before_ns - coarse[place[t.before]] for t in transits]))
    at = np.linspace(0, len(pooled) - 1, segments + 1).astype(np.int64)
    common = pooled[at]
    common[-1] = max(int(common[-1]), int(common[0]) + 1)
    return np.asarray(np.maximum.accumulate(common + np.arange(segments + 1)) + coarse[:, None])


def _weights(knots: Times, ns: Times) -> tuple[NDArray[np.int64], Floats]:
    """The segment of each time and how far along it is; the first and last segment go on for ever."""
    left = np.clip(np.searchsorted(knots, ns, side="right") - 1, 0, len(knots) - 2)
    return left, (ns - knots[left]) / (knots[left + 1] - knots[left])


class _Program:
    """Rows of a linear program, gathered as triplets."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats]] = []
        self._limits: list[Floats] = []
        self.rows = 0

    def add(self, limits: Floats, *entries: tuple[NDArray[np.int64] | int, Floats | float]) -> None:
        """Rows of: sum of value times column, at most the limit."""
        rows = np.arange(self.rows, self.rows + len(limits))
        for column, value in entries:
            shape = np.broadcast_to
            self._parts.append(
                (rows, shape(np.asarray(column), rows.shape), shape(np.asarray(value, float), rows.shape))
            )
        self._limits.append(limits)
        self.rows += len(limits)

    def matrix(self, columns: int) -> tuple[coo_matrix, Floats]:
        """The matrix and the limits."""
        rows, places, values = (np.concatenate([p[i] for p in self._parts]) for i in range(3))
        return coo_matrix((values, (rows, places)), shape=(self.rows, columns)), np.concatenate(self._limits)


def _solve(
    place: dict[int, int], transits: Sequence[Transits], resets: Sequence[int], coarse: Times, segments: int
) -> Fit:
    """Unknowns: errors at knots (us) per clock, the rest of steps, a delay per pair, changes of drift."""
    n, per = len(place), segments + 1
    knots = _knots(place, transits, coarse, segments)
    step_at = n * per + np.r_[0, np.cumsum(resets)]
    pairs = _pairs(place, transits)
    delay_at = int(step_at[-1])
    program = _Program()
    for t, pair in zip(transits, pairs, strict=True):
        a, b = place[t.before], place[t.after]
        (left_a, weight_a), (left_b, weight_b) = (
            _weights(knots[a], t.before_ns), _weights(knots[b], t.after_ns),
        )  # fmt: skip
        entries: list[tuple[NDArray[np.int64] | int, Floats | float]] = [
            (b * per + left_b, 1 - weight_b), (b * per + left_b + 1, weight_b),
            (a * per + left_a, weight_a - 1), (a * per + left_a + 1, -weight_a),
            (delay_at + pair, 1.0),
        ]  # fmt: skip
        for sign, member, sides in ((1.0, b, t.after_steps), (-1.0, a, t.before_steps)):
            entries.extend(
                (int(step_at[member]) + k, np.asarray(sign * sides[:, k], np.float64))
                for k in range(resets[member])
            )
        program.add((t.transit_ns - (coarse[b] - coarse[a])) / _NS_PER_US, *entries)
    transit_rows = program.rows
    bends_at = delay_at + max(pairs) + 1
    width = bends_at + (n - 1) * (segments - 1)
    _limit_drifts(program, knots, per, bends_at)
    matrix, limits = program.matrix(width)
    matrix = matrix.tocsr()
    cost = -np.asarray(matrix[:transit_rows].sum(axis=0)).ravel()
    cost[bends_at:] = _STIFFNESS
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * bends_at
    bounds[:per] = [(0.0, 0.0)] * per
    bounds += [(0.0, None)] * (width - bends_at)
    found = linprog(cost, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
    x = found.x * _NS_PER_US if found.success else np.zeros(width)
    rest = limits[:transit_rows] - matrix[:transit_rows] @ (x / _NS_PER_US)
    return Fit(
        coarse_ns=coarse,
        knots_ns=knots,
        values_ns=x[: n * per].reshape(n, per),
        steps_ns=tuple(x[step_at[i] : step_at[i + 1]] for i in range(n)),
        delays_ns=np.array([x[delay_at + pair] for pair in pairs]),
        excess_ns=float(rest.mean()) * _NS_PER_US,
    )


def _pairs(place: dict[int, int], transits: Sequence[Transits]) -> list[int]:
    """The number of each pair's delay.

    Pairs seen one way only share one: a ring of them closes all the same.
    """
    directed = {(t.acknowledged, t.before, t.after) for t in transits}
    numbers: dict[tuple[bool, int, int], int] = {}
    found = []
    for t in transits:
        a, b = place[t.before], place[t.after]
        both = (t.acknowledged, t.after, t.before) in directed
        key = (t.acknowledged, min(a, b), max(a, b)) if both else (t.acknowledged, -1, -1)
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _limit_drifts(program: _Program, knots: Times, per: int, bends_at: int) -> None:
    """No drift beyond what crystals do, and a small price on its changes.

    The price is for times without a transit: they are bridged straight.
    """
    n = len(knots)
    lengths = np.diff(knots, axis=1).astype(np.float64)
    for i in range(1, n):
        first = i * per + np.arange(per - 1)
        most = _MAX_DRIFT_PPM * 1e-6 * lengths[i] / _NS_PER_US
        for sign in (1.0, -1.0):
            program.add(most, (first, -sign), (first + 1, sign))
        if per < 3:
            continue
        scale = float(np.median(lengths[i]))
        ahead, behind = scale / lengths[i][1:], scale / lengths[i][:-1]
        bend = bends_at + (i - 1) * (per - 2) + np.arange(per - 2)
        middle = i * per + np.arange(1, per - 1)
        for sign in (1.0, -1.0):
            program.add(
                np.zeros(per - 2), (middle - 1, sign * behind), (middle, -sign * (ahead + behind)),
                (middle + 1, sign * ahead), (bend, -1.0),
            )  # fmt: skip
