# SPDX-License-Identifier: Apache-2.0
"""Puts NIC clocks on one time base from the quickest transits between them.

Within a strongly connected component of "NIC a sent, NIC b received" the offsets and drifts of all clocks
are found together by a linear program: every transit is a non-negative delay after correction, delays of
a pair are equal in both directions, and the sum of what exceeds the least delays is minimal (Moon, Skelly
and Towsley, "Estimation and removal of clock skew from network delay measurements", INFOCOM 1999, for the
one-pair case). What remains uncertain is the asymmetry of the two directions, which no measurement at the
two ends can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra

from host_ctl.align.clock import Alignment, NicClock, identity_clock
from host_ctl.align.markers import Transits, match_markers
from host_ctl.ingest.series import NicSeries

MIN_ASYMMETRY_NS = 300.0
ASYMMETRY_SHARE = 0.2
_NS_PER_US = 1e3
_MAX_DRIFT_PPM = (
    500.0  # five times what a bad crystal does; keeps short captures from fitting queues as drift
)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Offset (ns, at the component's origin) and drift (ppm) of each clock of a component."""

    offset_ns: NDArray[np.float64]
    drift_ppm: NDArray[np.float64]


def align(series: Sequence[NicSeries], *, asymmetry_ns: float | None = None) -> Alignment:
    """Find the clock of every NIC; NICs that nothing connects keep their own time, basis ``none``.

    ``asymmetry_ns`` is the largest difference assumed between the two directions of a path; by default
    20 % of the component's smallest round trip, at least 300 ns.
    """
    transits = match_markers(series)
    n = len(series)
    graph = coo_matrix(
        (np.ones(len(transits)), ([t.sender for t in transits], [t.receiver for t in transits])), shape=(n, n)
    )
    _, component_of = connected_components(graph, directed=True, connection="strong")
    clocks = [identity_clock(s.first_ns, int(c)) for s, c in zip(series, component_of, strict=True)]
    for component in np.unique(component_of):
        members = np.flatnonzero(component_of == component).tolist()
        inside = [t for t in transits if t.sender in members and t.receiver in members]
        if len(members) < 2 or not inside:
            continue
        for index, clock in zip(
            members, _solve(members, inside, series, int(component), asymmetry_ns), strict=True
        ):
            clocks[index] = clock
    return Alignment(tuple(clocks), tuple(_warnings(series, transits)))


def _solve(
    members: list[int],
    transits: list[Transits],
    series: Sequence[NicSeries],
    component: int,
    asymmetry_ns: float | None,
) -> list[NicClock]:
    # Each clock is linear about its own origin, so that clocks hours apart stay well conditioned.
    place = {member: i for i, member in enumerate(members)}
    origins = np.array([series[m].first_ns for m in members])
    coarse = _coarse_offsets(place, transits)
    fit = _linear_program(place, transits, origins, coarse)
    delays = _least_delays(place, transits, origins, fit)
    bound, hops = _bounds(delays)
    loop = _smallest_loop(delays)
    asymmetry = asymmetry_ns if asymmetry_ns is not None else max(MIN_ASYMMETRY_NS, ASYMMETRY_SHARE * loop)
    clocks = []
    for i in range(len(members)):
        slack = max(1.0, float(hops[i])) * asymmetry / 2
        clocks.append(
            NicClock(
                offset_ns=float(fit.offset_ns[i]),
                drift_ppm=float(fit.drift_ppm[i]),
                origin_ns=int(origins[i]),
                uncertainty_ns=min(slack, float(bound[i])) if i else 0.0,
                bound_ns=float(bound[i]),
                basis="measured",
                component=component,
            )
        )
    return clocks


def _coarse_offsets(place: dict[int, int], transits: list[Transits]) -> NDArray[np.float64]:
    """Offsets to within a delay, by walking the graph from its first member (ns)."""
    offset = np.full(len(place), np.nan)
    offset[0] = 0.0
    pending = True
    while pending:
        pending = False
        for t in transits:
            a, b = place[t.sender], place[t.receiver]
            least = float(t.transit_ns.min())
            if np.isnan(offset[b]) and not np.isnan(offset[a]):
                offset[b], pending = offset[a] + least, True
            elif np.isnan(offset[a]) and not np.isnan(offset[b]):
                offset[a], pending = offset[b] - least, True
    return np.asarray(np.nan_to_num(offset))


def _linear_program(
    place: dict[int, int],
    transits: list[Transits],
    origins: NDArray[np.int64],
    coarse: NDArray[np.float64],
) -> _Fit:
    """Minimise the summed excess delay; unknowns: offset (us) and drift (ppm) per clock, delay per pair."""
    n = len(place)
    pairs: dict[tuple[int, int], int] = {}
    directed = {(t.sender, t.receiver) for t in transits}
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    limits: list[float] = []
    for t in transits:
        a, b = place[t.sender], place[t.receiver]
        # Pairs seen one way only share one delay: a ring of them closes all the same.
        pair = (min(a, b), max(a, b)) if (t.receiver, t.sender) in directed else (-1, -1)
        delay = pairs.setdefault(pair, len(pairs))
        received = t.at_ns + t.transit_ns
        base = (t.transit_ns - (coarse[b] - coarse[a])) / _NS_PER_US
        for k in range(len(t.at_ns)):
            row = len(limits)
            entries = [
                (b, 1.0),
                (a, -1.0),
                (n + b, (int(received[k]) - int(origins[b])) * 1e-9),
                (n + a, -(int(t.at_ns[k]) - int(origins[a])) * 1e-9),
                (2 * n + delay, 1.0),
            ]
            for column, value in entries:
                rows.append(row)
                columns.append(column)
                values.append(value)
            limits.append(float(base[k]))
    width = 2 * n + len(pairs)
    matrix = csr_matrix((values, (rows, columns)), shape=(len(limits), width))
    cost = -np.asarray(matrix.sum(axis=0)).ravel()
    free = (-np.inf, np.inf)
    fixed = (0.0, 0.0)
    limits_of = [fixed, *([free] * (n - 1)), fixed, *([(-_MAX_DRIFT_PPM, _MAX_DRIFT_PPM)] * (n - 1))]
    limits_of += [(0.0, np.inf)] * len(pairs)
    found = linprog(cost, A_ub=matrix, b_ub=np.array(limits), bounds=limits_of, method="highs")
    if not found.success:
        return _Fit(coarse, np.zeros(n))
    return _Fit(coarse + found.x[:n] * _NS_PER_US, found.x[n : 2 * n])


def _least_delays(
    place: dict[int, int], transits: list[Transits], origins: NDArray[np.int64], fit: _Fit
) -> NDArray[np.float64]:
    """Least one-way delay of every directed pair after correction (ns), inf where nothing was seen."""
    n = len(place)
    delays = np.full((n, n), np.inf)
    for t in transits:
        a, b = place[t.sender], place[t.receiver]
        received = t.at_ns + t.transit_ns
        error_b = fit.offset_ns[b] + fit.drift_ppm[b] * 1e-6 * (received - origins[b])
        error_a = fit.offset_ns[a] + fit.drift_ppm[a] * 1e-6 * (t.at_ns - origins[a])
        delays[a, b] = max(0.0, float((t.transit_ns - error_b + error_a).min()))
    return delays


def _bounds(delays: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far each clock can be off against the first, by causality; and its number of hops from it.

    A correction may shift a clock by no more than the delays along a path, either way.
    """
    n = len(delays)
    weights = csr_matrix(np.where(np.isfinite(delays), np.maximum(delays, 1e-3), 0.0))
    out = dijkstra(weights, indices=0)
    back = dijkstra(weights.T, indices=0)
    hops = dijkstra(weights + weights.T, indices=0, unweighted=True)
    return np.maximum(out, back).reshape(n), hops.reshape(n)


def _smallest_loop(delays: NDArray[np.float64]) -> float:
    """The smallest closed-loop delay between two NICs of the component (ns)."""
    weights = csr_matrix(np.where(np.isfinite(delays), np.maximum(delays, 1e-3), 0.0))
    there = dijkstra(weights)
    loop = there + there.T
    np.fill_diagonal(loop, np.inf)
    return float(loop.min())


def _warnings(series: Sequence[NicSeries], transits: list[Transits]) -> list[str]:
    connected = {t.sender for t in transits} | {t.receiver for t in transits}
    return [
        f"no packet of {one.name} was seen by another capture: its clock cannot be compared"
        for index, one in enumerate(series)
        if index not in connected and len(series) > 1 and len(one.flows)
    ]
