# SPDX-License-Identifier: Apache-2.0
"""Puts NIC clocks on one time base, component by component.

Within a strongly connected component of "what NIC a saw came before what NIC b saw" the clocks are found
together. What remains uncertain is the asymmetry of the two directions, which no measurement at the two ends
can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from host_ctl.align.bounds import Errors, find_errors, strongly_connects
from host_ctl.align.clock import Alignment, ClockPiece, ClockStep, NicClock, identity_clock
from host_ctl.align.fit import Fit, fit_clocks
from host_ctl.align.markers import Matched, match_markers
from host_ctl.align.quickest import Transits, quickest
from host_ctl.align.resets import Reset
from host_ctl.align.steps import LEAST_STEP_NS, find_resets
from host_ctl.align.ties import relate_components
from host_ctl.ingest.series import NicSeries


def align(series: Sequence[NicSeries], *, asymmetry_ns: float | None = None) -> Alignment:
    """Find the clock of every NIC; NICs that nothing connects keep their own time, basis ``none``.

    ``asymmetry_ns`` is the largest difference assumed between the two directions of a path; by default
    20 % of the component's smallest round trip, at least 300 ns.
    """
    matched = match_markers(series)
    n = len(series)
    component_of = _components(matched, n)
    clocks = [identity_clock(s.first_ns, int(c)) for s, c in zip(series, component_of, strict=True)]
    warnings = _lonely(series, matched)
    for component in np.unique(component_of):
        members = np.flatnonzero(component_of == component).tolist()
        inside = [m for m in matched if m.before in members and m.after in members]
        if len(members) < 2 or not inside:
            continue
        for index, clock in _solve(members, inside, series, asymmetry_ns):
            clocks[index] = replace(clock, component=int(component))
            warnings += [_told(series[index].name, step) for step in clock.steps]
    clocks, remarks = relate_components(series, clocks)
    return Alignment(tuple(clocks), (*warnings, *remarks))


def _components(matched: Sequence[Matched], n: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    graph = coo_matrix(
        (np.ones(len(matched)), ([m.before for m in matched], [m.after for m in matched])), shape=(n, n)
    )
    found: np.ndarray[tuple[int], np.dtype[np.int32]]
    _, found = connected_components(graph, directed=True, connection="strong")
    return found


def _solve(
    members: list[int], matched: Sequence[Matched], series: Sequence[NicSeries], asymmetry_ns: float | None
) -> list[tuple[int, NicClock]]:
    place = {member: i for i, member in enumerate(members)}
    numbered = [replace(m, before=place[m.before], after=place[m.after]) for m in matched]
    here = {i: i for i in range(len(members))}
    resets = _certain(here, numbered, find_resets(numbered, len(members)))
    used, every, fit = _fitted(here, numbered, resets)
    while small := _within_round_trip(used, fit, resets):
        resets = [[r for r in own if r not in small] for own in resets]
        used, every, fit = _fitted(here, numbered, resets)
    errors = find_errors(here, used, every, fit, asymmetry_ns)
    return [
        (member, _clock(i, fit, resets[i], errors, series[member].first_ns))
        for i, member in enumerate(members)
    ]


def _fitted(
    here: dict[int, int], matched: Sequence[Matched], resets: Sequence[Sequence[Reset]]
) -> tuple[list[Transits], list[Transits], Fit]:
    """The clocks with some resets, the transits that they were found from, and all transits."""
    flat = [reset for own in resets for reset in own]
    every = [t for t in (quickest(m, flat) for m in matched) if t is not None]
    used = [t for t in every if not t.acknowledged]
    if not strongly_connects(here, used):
        seen = {(t.before, t.after) for t in used}
        used += [t for t in every if t.acknowledged and (t.before, t.after) not in seen]
    counts = [len(own) for own in resets]
    fit = fit_clocks(here, used, counts)
    received = [t for t in every if t.acknowledged]
    if fit.delays_ns.min() < 0 and strongly_connects(here, received):
        # Packets that arrive before they left: stamps of sending are late, those of receipt tell more.
        return received, every, fit_clocks(here, received, counts)
    return used, every, fit


def _certain(here: dict[int, int], matched: Sequence[Matched], found: Sequence[Reset]) -> list[list[Reset]]:
    """The resets of every member, none of them if no clock need have been set.

    Queues that come one way while they go the other look like a clock that was set. Unless packets would have
    arrived before they left, queues are all that there is.
    """
    none: list[list[Reset]] = [[] for _ in here]
    if not found:
        return none
    sent = [t for t in (quickest(m, []) for m in matched) if t is not None and not t.acknowledged]
    if strongly_connects(here, sent) and fit_clocks(here, sent, [0] * len(here), most=1).delays_ns.min() >= 0:
        return none
    return [[r for r in found if r.nic == i] for i in here]


def _within_round_trip(used: Sequence[Transits], fit: Fit, resets: Sequence[Sequence[Reset]]) -> list[Reset]:
    """Resets that are smaller than the quickest round trip of their NIC: queues can do as much."""
    small = []
    for i, (own, more) in enumerate(zip(resets, fit.steps_ns, strict=True)):
        delays = [d for t, d in zip(used, fit.delays_ns, strict=True) if i in (t.before, t.after)]
        least = 2.0 * min(delays, default=0.0)
        small += [r for r, m in zip(own, more, strict=True) if abs(r.size_ns + m) < max(least, LEAST_STEP_NS)]
    return small


def _clock(i: int, fit: Fit, resets: Sequence[Reset], errors: Errors, first_ns: int) -> NicClock:
    """A member's clock from the fit: one line, or a piece from every knot and reset on."""
    pieces = _pieces(i, fit, resets, first_ns)
    return NicClock(
        offset_ns=pieces[0].offset_ns,
        drift_ppm=pieces[0].drift_ppm,
        origin_ns=pieces[0].from_ns,
        uncertainty_ns=float(errors.uncertainty_ns[i]),
        bound_ns=float(errors.bound_ns[i]),
        basis="measured",
        component=0,
        pieces=tuple(pieces) if len(pieces) > 1 else (),
        steps=tuple(
            ClockStep(r.last_before_ns, r.size_ns + float(more))
            for r, more in zip(resets, fit.steps_ns[i], strict=True)
        ),
    )


def _pieces(i: int, fit: Fit, resets: Sequence[Reset], first_ns: int) -> list[ClockPiece]:
    knots, values = fit.knots_ns[i], fit.values_ns[i]
    drifts = np.diff(values) / np.diff(knots)
    edges = [first_ns, *sorted(r.split_ns for r in resets if r.split_ns > first_ns)]
    pieces = []
    for begin, end in zip(edges, [*edges[1:], None], strict=True):
        sides = [bool(r.is_after(np.array([begin]))[0]) for r in resets]
        taken = sum(r.size_ns for r, after in zip(resets, sides, strict=True) if after)
        rest = float(np.array(sides, float) @ fit.steps_ns[i]) if resets else 0.0
        starts = [begin, *(int(k) + taken for k in knots[1:-1] if begin < k + taken)]
        for start in starts:
            if end is not None and start >= end:
                continue
            base, error = fit.error(i, np.array([start - taken]), np.zeros((1, len(resets)), np.bool_))
            at = int(np.clip(np.searchsorted(knots, start - taken, side="right") - 1, 0, len(drifts) - 1))
            pieces.append(ClockPiece(start, base + taken + float(error[0]) + rest, float(drifts[at] * 1e6)))
    return pieces


def _told(name: str, step: ClockStep) -> str:
    size = f"{step.size_ns / 1e9:+.6f} s" if abs(step.size_ns) >= 1e9 else f"{step.size_ns / 1e3:+.1f} us"
    return f"the clock of {name} was set by {size} at {step.at_ns}: its times are corrected for it"


def _lonely(series: Sequence[NicSeries], matched: Sequence[Matched]) -> list[str]:
    connected = {m.before for m in matched} | {m.after for m in matched}
    return [
        f"no packet of {one.name} was seen by another capture: its clock cannot be compared"
        for index, one in enumerate(series)
        if index not in connected and len(series) > 1 and len(one.flows)
    ]
