# SPDX-License-Identifier: Apache-2.0
"""Relates the clocks of rails that never meet, by the iterations that the GPUs of a machine begin together.

Rails that no packet connects are components of the alignment, each with a time of its own: tens of
milliseconds apart, more than an iteration. GPUs of one machine wait for each other, so that their rails
begin an iteration together, to within how differently they do so. That is an assumption and no measurement.
It serves to number the iterations of all rails alike and to lay them over each other; no time of one
component is ever held against a time of another to say who waited for whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.align.clock import Alignment, ClockPiece, NicClock
from host_ctl.reconstruct.jobs import GroupTimeline, Job
from host_ctl.reconstruct.transfers import Traffic

_MIN_UNITS = 4
_SAME_PERIOD = 0.05
_AS_GOOD = 2.0
_MAX_DRIFT = 1e-3


def couple_rails(alignment: Alignment, traffic: Traffic, jobs: Sequence[Job]) -> Alignment | None:
    """The alignment with every component of a job on the time of the job's first; None with one component.

    A clock so moved tells in ``coupled_ns`` how far the starts scatter that moved it.
    """
    clocks = list(alignment.clocks)
    moved: set[int] = set()
    for job in jobs:
        leads = _leads(traffic, job)
        if len(leads) < 2:
            continue
        reference = leads[min(leads)].rhythm.starts_ns
        for component in sorted(set(leads) - {min(leads)} - moved):
            starts = leads[component].rhythm.starts_ns
            found = relate_starts(reference, starts)
            if found is not None:
                moved.add(component)
                clocks = [
                    moved_clock(c, int(starts[0]), *found) if c.component == component else c for c in clocks
                ]
    return Alignment(tuple(clocks), alignment.warnings) if moved else None


def component_of(traffic: Traffic, endpoint: int) -> int:
    """The component of the alignment that a NIC's times belong to; a number of its own without a capture."""
    series = traffic.endpoints[endpoint].series
    return -1 - endpoint if series is None else traffic.clocks[series].component


def _leads(traffic: Traffic, job: Job) -> dict[int, GroupTimeline]:
    """For every component of a job the group that stands for it: one that repeats once per iteration."""
    found: dict[int, GroupTimeline] = {}
    for timeline in job.timelines:
        components = {component_of(traffic, m) for m in timeline.group.members}
        off = abs(timeline.rhythm.period_ns - job.iteration_ns)
        if len(components) != 1 or min(components) < 0 or off > _SAME_PERIOD * job.iteration_ns:
            continue
        (component,) = components
        best = found.get(component)
        if best is None or _rank(timeline) > _rank(best):
            found[component] = timeline
    return found


def _rank(timeline: GroupTimeline) -> tuple[bool, int, int]:
    """Regular groups before others, then those of most units, then those that begin first."""
    return timeline.regular, timeline.rhythm.units, -int(timeline.rhythm.starts_ns[0])


def relate_starts(
    reference: NDArray[np.int64], starts: NDArray[np.int64]
) -> tuple[float, float, float] | None:
    """By what starts of one rail are later than those of another: ns at its first start, drift, scatter (ns).

    Which start belongs to which, their differences tell: iterations vary, and coupled rails vary alike. Where
    several pairings fit, the iterations are alike, and captures that begin and end together decide.
    """
    fits = []
    for shift in range(_MIN_UNITS - len(starts), len(reference) - _MIN_UNITS + 1):
        a = reference[max(0, shift) :]
        b = starts[max(0, -shift) :]
        length = min(len(a), len(b))
        if length >= max(_MIN_UNITS, min(len(reference), len(starts)) // 2):
            fits.append((length, _fit(a[:length], b[:length], int(starts[0]))))
    if not fits:
        return None
    least = min(fit[2] for _, fit in fits)
    return max((f for f in fits if f[1][2] <= _AS_GOOD * least), key=lambda f: (f[0], -f[1][2]))[1]


def _fit(reference: NDArray[np.int64], starts: NDArray[np.int64], origin: int) -> tuple[float, float, float]:
    """Offset at the origin, drift and scatter of the starts against the reference's."""
    later = (starts - reference).astype(np.float64)
    at = (starts - origin).astype(np.float64)
    slope, _ = np.polyfit(at - at.mean(), later - later[0], 1)
    slope = float(np.clip(slope, -_MAX_DRIFT, _MAX_DRIFT))
    rest = later - slope * at
    offset = float(np.median(rest))
    return offset, slope, float(np.abs(rest - offset).mean())


def moved_clock(clock: NicClock, origin: int, offset: float, slope: float, scatter: float) -> NicClock:
    """A clock whose common time is less by the offset and, from the origin (common time) on, the drift."""
    pieces = tuple(
        ClockPiece(p.from_ns, *_moved(p.from_ns, p.offset_ns, p.drift_ppm, origin, offset, slope))
        for p in clock.pieces
    )
    moved = _moved(clock.origin_ns, clock.offset_ns, clock.drift_ppm, origin, offset, slope)
    between = clock.between
    if between is not None:
        between = replace(between, offset_ns=between.offset_ns - offset)
    return replace(
        clock, offset_ns=moved[0], drift_ppm=moved[1], pieces=pieces, coupled_ns=scatter, between=between
    )


def _moved(
    from_ns: int, own_ns: float, drift_ppm: float, origin: int, offset: float, slope: float
) -> tuple[float, float]:
    """Offset and drift of a line of a clock after its common time was made less."""
    drift = drift_ppm * 1e-6
    since = from_ns - round(own_ns) - origin
    return round(own_ns) + offset + slope * since, (drift + slope * (1 - drift)) * 1e6
