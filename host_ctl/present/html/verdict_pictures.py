# SPDX-License-Identifier: Apache-2.0
"""Pictures of one verdict: rates around its onset, and one bad beside one good iteration."""

from __future__ import annotations

import numpy as np

from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.present.analysed import AnalysedJob
from host_ctl.present.attribution import Attribution
from host_ctl.present.evidence.accused import by_interest, pointed_at
from host_ctl.present.evidence.iterations import choose
from host_ctl.present.evidence.rates import Rates, rates, window_ns
from host_ctl.present.evidence.waits import states_over_time
from host_ctl.present.html.parts import figure, scroll
from host_ctl.present.html.states import NAMES, look
from host_ctl.present.markup import Markup, Part, join, tag
from host_ctl.present.svg.canvas import picture
from host_ctl.present.svg.curves import Curve, panels
from host_ctl.present.svg.legend import legend
from host_ctl.present.svg.timeline import Track, timeline
from host_ctl.present.units import duration
from host_ctl.reconstruct.transfers import Traffic, send_start

_CURVES, _WIDE_BINS, _FINE_BINS = 4, 480, 600
_TRACKS, _TRACK_COLUMNS = 16, 400
_FINE_WINDOWS = 512
_BEFORE = 0.25  # of the fine span lies before its begin


def verdict_pictures(
    name: str,
    analysed: AnalysedJob,
    found: Attribution,
    stretches: tuple[Table, ...],
    verdict: Verdict | None,
) -> Markup:
    """The pictures of a verdict; without one, those of a usual and the longest iteration."""
    pointed = pointed_at(verdict, analysed.job, found.traffic).all if verdict else ()
    return join(
        (
            _rates(name, analysed, found.traffic, verdict, pointed),
            _side_by_side(name, analysed, found, stretches, verdict, pointed),
        )
    )


def _rates(
    name: str, analysed: AnalysedJob, traffic: Traffic, verdict: Verdict | None, pointed: tuple[int, ...]
) -> Markup | None:
    """Rates over some iterations, and in the windows as they were measured where the onset shows first."""
    if not window_ns(traffic):
        return figure("Rates around the onset", "The captures hold no rates over time.", None)
    job = analysed.job
    chosen = by_interest(pointed, job, traffic, _CURVES)
    onset = verdict.onset_iteration if verdict else job.iterations // 2
    onset = min(max(onset, 0), job.iterations - 1)
    at = verdict.onset_ns if verdict else int(job.boundaries_ns[onset])
    begin = int(job.boundaries_ns[max(0, onset - 2)])
    end = int(job.boundaries_ns[min(job.iterations, onset + 2)])
    wide = rates(traffic, chosen, begin, max(end, begin + 1), _WIDE_BINS)
    fine_ns = _FINE_WINDOWS * window_ns(traffic)
    start = _first_send(traffic, pointed or tuple(chosen), at, end) - int(_BEFORE * fine_ns)
    fine = rates(traffic, chosen, start, start + fine_ns, _FINE_BINS)
    told = "onset" if verdict else ""
    heading = "Rates around the onset" if verdict else "Rates in the middle of the run"
    caption = (
        f"What {'the accused and peers' if pointed else 'some NICs'} sent, first over up to four iterations "
        f"in steps of {duration(wide.bin_ns)}, then where {'the accused' if pointed else 'the first'} "
        f"sends next, in windows of {duration(fine.bin_ns)} as measured. Same scale for all of a picture."
    )
    parts = [
        _panels(f"{name}-{kind}", one, traffic, pointed, at if verdict else None, told, unit)
        for kind, one, unit in (("wide", wide, 1e6), ("fine", fine, 1e3))
    ]
    return figure(
        heading,
        caption,
        join(scroll(p, f"{heading}, {k}") for p, k in zip(parts, ("wide", "close"), strict=True)),
    )


def _first_send(traffic: Traffic, endpoints: tuple[int, ...], since_ns: int, until_ns: int) -> int:
    """When some NICs first send at or after a time; that time when they do not until another one."""
    edges = [k for k, (src, _) in enumerate(traffic.edges) if src in endpoints]
    starts = send_start(traffic.transfers[np.isin(traffic.transfers["edge"], edges)])
    starts = starts[(starts >= since_ns) & (starts < until_ns)]
    return int(starts.min()) if len(starts) else since_ns


def _panels(
    name: str,
    found: Rates,
    traffic: Traffic,
    pointed: tuple[int, ...],
    onset_ns: int | None,
    told: str,
    unit: float,
) -> Markup:
    curves = [Curve(traffic.endpoints[c.endpoint].name, c.gbps, c.endpoint in pointed) for c in found.curves]
    span = found.bins * found.bin_ns
    mark = None if onset_ns is None else ((onset_ns - found.begin_ns) / unit, told)
    words = [
        f"{c.name}: " + (f"mean {c.values.mean():.1f}, highest {c.values.max():.1f} Gbit/s" if len(c.values)
                         else "no capture tells")
        for c in curves
    ]  # fmt: skip
    return panels(
        name, curves, (0.0, span / unit), f"Rates over {duration(span)}", "; ".join(words),
        ("ms" if unit == 1e6 else "us", "Gbit/s"), mark,
    )  # fmt: skip


def _side_by_side(
    name: str,
    analysed: AnalysedJob,
    found: Attribution,
    stretches: tuple[Table, ...],
    verdict: Verdict | None,
    pointed: tuple[int, ...],
) -> Markup | None:
    members = analysed.features.members
    chosen = choose(analysed, verdict, [members.index(e) for e in pointed])
    if chosen is None:
        return None
    shown = sorted(by_interest(pointed, analysed.job, found.traffic, _TRACKS), key=members.index)
    boundaries = analysed.job.boundaries_ns
    longest = max(int(boundaries[k + 1] - boundaries[k]) for k in (chosen.bad, chosen.good))
    parts: list[Part] = []
    used: set[int] = set()
    for kind, number, what in (("bad", chosen.bad, chosen.bad_is), ("good", chosen.good, chosen.good_is)):
        begin, until = int(boundaries[number]), int(boundaries[number + 1])
        tracks = [_track(analysed, found, stretches, e, e in pointed, begin, until, longest) for e in shown]
        used |= {state for _, states in tracks for state in states}
        title = f"Iteration {number}, {what}: {duration(until - begin)}"
        told = "A row for each NIC; bars above the rows are operators. " + _in_words(tracks, longest)
        drawn = timeline(f"{name}-{kind}", [t for t, _ in tracks], longest / 1e6, title, told, "ms")
        parts.append(tag("div", tag("p", title, class_="key"), scroll(drawn, title)))
    caption = (
        "The same NICs in two iterations, on one scale of time: what most of a NIC's sends were in, "
        "operators as thin bars above. Empty is no operator, or its own part done: it computes, or others "
        "are not ready."
    )
    key, height = legend([(look(s), text) for s, text in NAMES.items() if int(s) in used], 0, 2, 760)
    drawn_key = picture(f"{name}-key", "Key of the states", "; ".join(NAMES.values()), 760, height + 4, key)
    return figure("One bad and one good iteration", caption, drawn_key, tag("div", *parts, class_="pair"))


def _track(
    analysed: AnalysedJob,
    found: Attribution,
    stretches: tuple[Table, ...],
    endpoint: int,
    accused: bool,
    begin: int,
    until: int,
    span: int,
) -> tuple[Track, set[int]]:
    """One NIC's row, and which states are on it."""
    columns = max(1, round(_TRACK_COLUMNS * (until - begin) / span))
    runs = states_over_time(found, stretches, endpoint, begin, until, columns)
    part = (until - begin) / span / columns
    operators = [
        ((max(o.start_ns, begin) - begin) / span, (min(o.end_ns, until) - begin) / span)
        for timeline_ in analysed.job.timelines
        if endpoint in timeline_.group.members
        for o in timeline_.operators
        if o.end_ns > begin and o.start_ns < until
    ]
    one = found.traffic.endpoints[endpoint]
    boxes = tuple((a * part, b * part, look(state)) for a, b, state in runs)
    # Who was not captured still shows by what others saw of it; without that there is nothing.
    known = one.series is not None or bool(runs)
    return Track(one.name, accused, boxes, tuple(operators[:_TRACK_COLUMNS]), known), {s for _, _, s in runs}


def _in_words(tracks: list[tuple[Track, set[int]]], span: int) -> str:
    own = {look(s) for s in NAMES if s.name in ("NOT_STARTED", "WAIT_SENDER")}
    late = [(sum(b - a for a, b, kind in t.runs if kind in own) * span, t.name) for t, _ in tracks]
    worst = max(late, default=(0.0, ""))
    return f"{worst[1]} could have sent and did not for {duration(worst[0])}." if worst[0] else ""
