# SPDX-License-Identifier: Apache-2.0
"""How far the clocks of a component can be off: by causality, and under the assumed asymmetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra

from host_ctl.align.fit import Fit, Floats
from host_ctl.align.quickest import Transits

MIN_ASYMMETRY_NS = 300.0
ASYMMETRY_SHARE = 0.2
ACKNOWLEDGED_SHARE = 1.0  # how long NICs take to acknowledge differs more than paths do
_STRETCHES = 8
_LEAST_NS = 1e-3
_NOISE_STRETCHES = 16
_MOST_OF_THE_TIME = 90


@dataclass(frozen=True, slots=True)
class Errors:
    """Per member: what causality allows, and what is likely (ns)."""

    bound_ns: Floats
    uncertainty_ns: Floats


def find_errors(
    place: dict[int, int],
    used: Sequence[Transits],
    every: Sequence[Transits],
    fit: Fit,
    asymmetry_ns: float | None,
) -> Errors:
    """Errors of the members against the first. ``used`` are the transits of the fit, ``every`` all of them.

    A correction may shift a clock by no more than the delays along a path, either way: those between stamps
    of receipt where these connect the component, since a stamp of sending may be late.
    """
    n = len(place)
    least = _least(place, used, fit, n)
    strict = [t for t in every if t.acknowledged]
    sure = strict if _connected(place, strict) else list(used)
    late = max(0.0, -float(fit.delays_ns.min()))
    bound = _bound(place, sure, fit, n)
    if late > 0:
        # Stamps so late that packets seem to arrive before they left. By how much each is, its spread tells.
        bound = bound + 2 * (late + max(t.spread_ns for t in used))
    loop = _smallest_loop(least)
    share = ACKNOWLEDGED_SHARE if any(t.acknowledged for t in used) else ASYMMETRY_SHARE
    asymmetry = asymmetry_ns if asymmetry_ns is not None else max(MIN_ASYMMETRY_NS, share * loop)
    hops = dijkstra(_sparse(np.minimum(least, least.T)), indices=0, unweighted=True)
    noise = _noise(place, used, fit)
    likely = np.maximum(1.0, hops) * asymmetry / 2 + np.sqrt(hops) * noise + late
    likely = np.minimum(likely, bound)
    likely[0] = 0.0
    return Errors(bound, likely)


def strongly_connects(place: dict[int, int], transits: Sequence[Transits]) -> bool:
    """Whether these transits alone put all members on one clock."""
    return _connected(place, transits)


def _connected(place: dict[int, int], transits: Sequence[Transits]) -> bool:
    n = len(place)
    graph = csr_matrix(
        (
            np.ones(len(transits)),
            ([place[t.before] for t in transits], [place[t.after] for t in transits]),
        ),
        shape=(n, n),
    )
    return bool(connected_components(graph, directed=True, connection="strong")[0] == 1)


def _sparse(delays: Floats) -> csr_matrix:
    return csr_matrix(np.where(np.isfinite(delays), np.maximum(delays, _LEAST_NS), 0.0))


def _least(place: dict[int, int], transits: Sequence[Transits], fit: Fit, n: int) -> Floats:
    """Least corrected delay of every directed pair (ns), inf where nothing was seen."""
    delays = np.full((n, n), np.inf)
    for t in transits:
        a, b = place[t.before], place[t.after]
        delays[a, b] = min(delays[a, b], max(0.0, float(fit.delays(place, t).min())))
    return delays


def _bound(place: dict[int, int], transits: Sequence[Transits], fit: Fit, n: int) -> Floats:
    """The bound of the worst stretch of time: what a clock does there, other stretches do not tell."""
    begin = min(int(t.before_ns[0]) - int(fit.coarse_ns[place[t.before]]) for t in transits)
    end = max(int(t.before_ns[-1]) - int(fit.coarse_ns[place[t.before]]) for t in transits) + 1
    stretches = np.full((_STRETCHES, n, n), np.inf)
    for t in transits:
        a, b = place[t.before], place[t.after]
        at = np.clip((t.before_ns - int(fit.coarse_ns[a]) - begin) * _STRETCHES // (end - begin), 0, None)
        np.minimum.at(
            stretches[:, a, b], np.clip(at, 0, _STRETCHES - 1), np.maximum(fit.delays(place, t), 0.0)
        )
    worst = _distance(np.min(stretches, axis=0))
    for delays in stretches:
        one = _distance(delays)
        worst = np.where(np.isfinite(one), np.maximum(worst, one), worst)
    return worst


def _distance(delays: Floats) -> Floats:
    """The longer of the shortest ways from the first member to each and back."""
    weights = _sparse(delays)
    return np.asarray(np.maximum(dijkstra(weights, indices=0), dijkstra(weights.T, indices=0)))


def _smallest_loop(delays: NDArray[np.float64]) -> float:
    """The smallest closed-loop delay between two NICs of the component (ns)."""
    there = dijkstra(_sparse(delays))
    loop = there + there.T
    np.fill_diagonal(loop, np.inf)
    return float(loop.min())


def _noise(place: dict[int, int], transits: Sequence[Transits], fit: Fit) -> float:
    """How far the fit lies beside the clocks: what queues, stamps and wandering drifts leave open.

    Where a clock strays from its lines, one direction of a pair seems slow for a while and the other does
    not: the least excesses of stretches differ. Where only one direction is there, its own excess counts.
    """
    stretched = {}
    for t, delay in zip(transits, fit.delays_ns, strict=True):
        stretched[t.acknowledged, t.before, t.after] = _stretch(t, fit.delays(place, t) - delay, place, fit)
    beside = []
    for (kind, a, b), there in stretched.items():
        back = stretched.get((kind, b, a))
        seen = np.isfinite(there) if back is None else np.isfinite(there) & np.isfinite(back)
        off = there[seen] if back is None else np.abs(there[seen] - back[seen]) / 2
        if len(off):
            beside.append(float(np.percentile(off, _MOST_OF_THE_TIME if back is not None else 25)))
    return float(np.median(beside)) if beside else 0.0


def _stretch(t: Transits, excess: Floats, place: dict[int, int], fit: Fit) -> Floats:
    """The least excess in each of the stretches between every other knot or, with few, parts of the run."""
    knots = fit.knots_ns[place[t.before]]
    count = max(_NOISE_STRETCHES, 2 * (len(knots) - 1))
    at = np.interp(t.before_ns - knots[0], knots - knots[0], np.linspace(0, count, len(knots)))
    out = np.full(count, np.inf)
    np.minimum.at(out, np.clip(at.astype(np.int64), 0, count - 1), excess)
    return out
