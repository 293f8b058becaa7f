# SPDX-License-Identifier: Apache-2.0
"""All about one thing: a NIC, a machine, an edge, an operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.states import WaitState
from host_ctl.present.details import Curve, EdgeDetail
from host_ctl.present.evidence.lost_time import Known
from host_ctl.present.units import digits, duration, share, size
from host_ctl.top.figures import NicRow, count_of, fleet, nic_rows, span_of
from host_ctl.top.figures import Span as Iterations
from host_ctl.top.glyphs import STATE_TEXT, Glyphs, spark
from host_ctl.top.lines import EMPTY, Line, Span, aimed, clip, fit, line, paragraph, selected
from host_ctl.top.snapshot import JobView, Snapshot
from host_ctl.top.state import UiState, gravest, iterations_of
from host_ctl.top.views.operators import histogram, times_of

Curves = dict[tuple[str, str, int], Curve | None]
"""By job, NIC and iteration; None where it is known that there is none."""
_LABEL = 15
_MOST_EDGES = 12
_CURVE_LINES = 4
_LEAST_BINS = 16


def edges_of(job: JobView, nic: str) -> list[EdgeDetail]:
    """The edges of a NIC, what it sends first."""
    if job.details is None:
        return []
    mine = [e for e in job.details.edges if nic in (e.src, e.dst)]
    return sorted(mine, key=lambda e: (e.src != nic, e.group, e.dst))


def targets(job: JobView, target: str) -> tuple[str, ...]:
    """What can be opened from a detail: the edges of a NIC, the NICs of a machine."""
    kind, _, name = target.partition(":")
    if kind == "nic":
        return tuple(f"edge:{e.src}>{e.dst}>{e.group}" for e in edges_of(job, name)[:_MOST_EDGES])
    if kind == "machine":
        return tuple(f"nic:{nic}" for nic in job.nics if nic == name or nic.startswith(f"{name}/"))
    return ()


def nic(
    snapshot: Snapshot, job: JobView, state: UiState, name: str, curves: Curves, width: int, glyphs: Glyphs
) -> list[Line]:
    """Lost time against others and its own past, wait states, the rate within an iteration, its edges."""
    row = next((r for r in nic_rows(snapshot, job, state.at) if r.name == name), None)
    if row is None:
        return [clip(line(Span(f" {name} is no NIC of {job.id}.", "warn")), width)]
    span = span_of(snapshot, job, state.at)
    lines = [clip(line(Span(f" {name}", "head"), Span(f"  {span.text}", "dim")), width), *_told(row, width)]
    details = job.details
    if details is not None and details.duration_ns:
        lines += [EMPTY, *_against(snapshot, job, row, span, width, glyphs)]
        lines += [EMPTY, *_waits(details.state_ns[row.index], span, "its sends", width, glyphs)]
        lines += [EMPTY, *_curve(snapshot, job, state, name, curves, width, glyphs)]
    edges = edges_of(job, name)
    if edges:
        lines += [EMPTY, clip(line(Span(f" Edges ({len(edges)}; enter opens one)", "head")), width)]
        names = targets(job, f"nic:{name}")
        for edge, target in zip(edges, names, strict=False):
            content = aimed(_edge_line(edge, name, width, glyphs), target)
            lines.append(selected(content, width) if target == state.selected else clip(content, width))
        if len(edges) > len(names):
            lines.append(clip(line(Span(f" and {len(edges) - len(names)} more", "dim")), width))
    return lines


def _told(row: NicRow, width: int) -> list[Line]:
    if row.known == Known.MISSING:
        text = " No capture of it: what is known of it others saw."
        return [clip(line(Span(text, "missing")), width)]
    parts = (
        [f"lost {duration(row.lost_ns)} an iteration ({share(row.share or 0.0)})"]
        if row.lost_ns is not None
        else []
    )
    if row.gbps is not None:
        parts.append(f"sent {digits(row.gbps)} Gbit/s on average")
    if row.ack_ns:
        quantiles = " / ".join(duration(v) for v in row.ack_ns)
        parts.append(f"acknowledges in {quantiles} (p50/p99/p99.9)")
    counts = (
        ("cnp", "CNPs"),
        ("ecn_ce", "marked"),
        ("repeat_packets", "sent again"),
        ("rnr", "RNR"),
        ("nak_sequence", "NAK"),
    )
    seen = [f"{count_of(row, key):,} {text}" for key, text in counts if count_of(row, key)]
    parts.append(", ".join(seen) if seen else "no packets of trouble")
    clock = (
        "clock tied to no other"
        if row.clock_ns is None
        else f"clock +/- {duration(row.clock_ns)} ({row.basis})"
    )
    parts += [clock, f"{row.packets_lost or 0:,} packets not seen", row.alive]
    text = "; ".join(p for p in parts if p)
    return paragraph(text, width - 1, "", " ")


def _against(
    snapshot: Snapshot, job: JobView, row: NicRow, span: Iterations, width: int, glyphs: Glyphs
) -> list[Line]:
    """Its lost time beside the fleet's, and beside its own before the onset."""
    details = job.details
    assert details is not None
    room = max(10, min(60, width - _LABEL - 34))
    lines = [clip(line(Span(" Lost time an iteration: distribution", "head")), width)]
    others = fleet(job, span)
    own = row.lost_ns or 0.0
    if len(others):
        picture, low, high = histogram(others.tolist(), room, glyphs)
        place = int((own - low) / (high - low) * (room - 1)) if high > low else 0
        middle = float(np.median(others))
        spread = 1.4826 * float(np.median(np.abs(others - middle)))
        far = f", {digits((own - middle) / spread)} sigma above" if spread > 0 and own > middle else ""
        ends = f" {duration(low)} to {duration(high)}, median {duration(middle)}"
        lines.append(
            clip(line(Span(fit(" fleet", _LABEL), "dim"), Span(picture, "spark"), Span(ends, "dim")), width)
        )
        at = " " * place + f"{glyphs.here} this NIC {duration(own)}{far}"
        lines.append(clip(line(Span(" " * _LABEL), Span(at, "accused")), width))
    verdict = gravest(snapshot, job)
    onset = 0 if verdict is None else verdict.onset_iteration - details.first
    usable = details.known[row.index] == Known.YES
    lost = details.lost_ns[row.index]
    parts = [("before onset", lost[:onset][usable[:onset]]), ("since onset", lost[onset:][usable[onset:]])]
    if not 0 < onset < len(lost):
        parts = [("own past", lost[usable])]
    for text, values in parts:
        if len(values):
            lines.append(_past(text, values, room, width, glyphs))
    series = spark(lost[-room:].tolist(), float(max(1, lost[-room:].max())), glyphs)
    lines.append(clip(line(Span(fit(" by iteration", _LABEL), "dim"), Span(series, "spark")), width))
    return lines


def _past(text: str, values: NDArray[np.int64], room: int, width: int, glyphs: Glyphs) -> Line:
    picture, low, high = histogram(values.astype(float).tolist(), room, glyphs)
    ends = f" {duration(low)} to {duration(high)}, median {duration(float(np.median(values)))}"
    return clip(line(Span(fit(f" {text}", _LABEL), "dim"), Span(picture, "spark"), Span(ends, "dim")), width)


def _waits(states: NDArray[np.int64], span: Iterations, whose: str, width: int, glyphs: Glyphs) -> list[Line]:
    """A stacked bar of wait states, and the same in words."""
    total = states[span.begin : span.end].sum(axis=0)
    title = clip(
        line(Span(f" Where the time of {whose} went, while operators were under way", "head")), width
    )
    if not int(total.sum()):
        return [title, clip(line(Span(" No operator of it was under way.", "dim")), width)]
    return [title, *stacked(total.tolist(), width, glyphs)]


def stacked(ns: Sequence[int], width: int, glyphs: Glyphs) -> list[Line]:
    """A bar with a part for each state, and a legend with their shares."""
    room = max(10, width - 2)
    total = max(1, sum(ns))
    spans, key, used = [Span(" ")], [Span(" ")], 0
    present = [s for s in STATE_TEXT if ns[s]]
    for k, state in enumerate(present):
        wanted = max(1, round(ns[state] / total * room))
        columns = room - used if k == len(present) - 1 else min(wanted, room - used - (len(present) - 1 - k))
        used += max(0, columns)
        spans.append(Span(glyphs.state[state] * max(0, columns), f"state{int(state)}"))
        key += [Span(glyphs.state[state], f"state{int(state)}"),
                Span(f" {STATE_TEXT[state]} {share(ns[state] / total)}  ", "dim")]  # fmt: skip
    lines, current = [clip(tuple(spans), width)], [key[0]]
    for k in range(1, len(key), 2):
        pair = key[k : k + 2]
        if sum(len(s.text) for s in (*current, *pair)) > width:
            lines.append(clip(tuple(current), width))
            current = [Span(" ")]
        current += pair
    return [*lines, clip(tuple(current), width)]


def wanted_curve(
    snapshot: Snapshot, job: JobView, state: UiState, nic_name: str, curves: Curves
) -> int | None:
    """The iteration whose rate is shown: the one that is looked at, or one that shows the fault."""
    first, end = iterations_of(job)
    if end <= first:
        return None
    if state.at is not None:
        return min(max(state.at, first), end - 1)
    known = [k for (of, name, k), curve in curves.items() if of == job.id and name == nic_name and curve]
    return known[0] if known else max(first, end - 2)


def _curve(
    snapshot: Snapshot, job: JobView, state: UiState, name: str, curves: Curves, width: int, glyphs: Glyphs
) -> list[Line]:
    """What it sent within one iteration, as columns over a microsecond axis."""
    iteration = wanted_curve(snapshot, job, state, name, curves)
    title = f" Rate within iteration {iteration}"
    key = (job.id, name, -1 if iteration is None else iteration)
    if key not in curves:
        return [clip(line(Span(title, "head"), Span("  being read ...", "dim")), width)]
    curve = curves[key]
    if curve is None or not curve.gbps:
        why = "  not in this source: the windows of captures tell it"
        if snapshot.kind == "live":
            why = (
                "  not sent: only the latest whole iteration ($) is, and the accused's; pulse export has all"
            )
        return [clip(line(Span(title, "head"), Span(why, "dim")), width)]
    room = max(10, width - 12)
    values, begin = _closer(np.array(curve.gbps), state.closer)
    each = -(-len(values) // room)
    tops = np.maximum.reduceat(values, np.arange(0, len(values), each))
    most = float(tops.max())
    told = f", {duration(each * curve.bin_ns)} a column, most {digits(most)} Gbit/s (+ - zoom)"
    lines = [clip(line(Span(title, "head"), Span(told, "dim")), width)]
    wide = max(1, room // len(tops))
    steps = len(glyphs.spark) - 1
    for k in reversed(range(_CURVE_LINES)):
        scaled = np.clip(tops / (most or 1.0) * _CURVE_LINES - k, 0.0, 1.0)
        text = "".join(glyphs.spark[round(v * steps)] * wide for v in scaled.tolist())
        label = digits(most) if k == _CURVE_LINES - 1 else "0" if k == 0 else ""
        lines.append(clip(line(Span(f"{label:>9} ", "dim"), Span(text, "spark")), width))
    end = duration((begin + len(values)) * curve.bin_ns)
    axis = fit(duration(begin * curve.bin_ns), max(1, len(tops) * wide - len(end))) + end
    lines.append(clip(line(Span(" " * 10 + axis, "dim")), width))
    return lines


def _closer(values: NDArray[np.float64], zoom: int) -> tuple[NDArray[np.float64], int]:
    """The part of a curve around the middle of what was sent, and where it begins; a half by each step."""
    shown = max(min(len(values), _LEAST_BINS), len(values) >> zoom)
    total = float(values.sum())
    centre = float((values * np.arange(len(values))).sum()) / total if total else len(values) / 2
    begin = int(max(0, min(centre - shown / 2, len(values) - shown)))
    return values[begin : begin + shown], begin


def _edge_line(edge: EdgeDetail, nic_name: str, width: int, glyphs: Glyphs) -> Line:
    out = edge.src == nic_name
    other = edge.dst if out else edge.src
    total = max(1, sum(edge.state_ns))
    own = edge.state_ns[WaitState.NOT_STARTED] + edge.state_ns[WaitState.WAIT_SENDER]
    name, long = (24, True) if width >= 100 else (18, False)
    messages = f" in {edge.messages:,} messages" if long else ""
    text = (
        f" {'to  ' if out else 'from'} {fit(other, name, glyphs.ellipsis)} {fit(edge.group, 6)} "
        f"{size(edge.bytes):>9}{messages}"
    )
    return line(text, Span(f"; sender held up {share(own / total)} of it", "dim"))


def edge(job: JobView, name: str, width: int, glyphs: Glyphs) -> list[Line]:
    """One edge: what it carried, and its wait states."""
    src, _, rest = name.partition(">")
    dst, _, group = rest.partition(">")
    found = (
        []
        if job.details is None
        else [e for e in job.details.edges if (e.src, e.dst, e.group) == (src, dst, group)]
    )
    if not found:
        return [clip(line(Span(f" {src} sends nothing to {dst} any more.", "warn")), width)]
    one = found[0]
    told = f" {size(one.bytes)} in {one.messages:,} messages, group {one.group}"
    title = clip(line(Span(" Where its time went, while operators were under way", "head")), width)
    bars = stacked(one.state_ns, width, glyphs) if sum(one.state_ns) else [line(Span(" nothing", "dim"))]
    return [clip(line(Span(f" {src} to {dst}", "head")), width), clip(line(told), width), EMPTY, title, *bars]


def machine(
    snapshot: Snapshot, job: JobView, state: UiState, name: str, width: int, glyphs: Glyphs
) -> list[Line]:
    """One machine: wait states of all its NICs together, and each of them."""
    rows = [r for r in nic_rows(snapshot, job, state.at) if r.machine == name]
    if not rows:
        return [clip(line(Span(f" {name} is no machine of {job.id}.", "warn")), width)]
    span = span_of(snapshot, job, state.at)
    lines = [clip(line(Span(f" {name}", "head"), Span(f"  {len(rows)} NICs, {span.text}", "dim")), width)]
    if job.details is not None:
        sums = job.details.state_ns[[r.index for r in rows]].sum(axis=0)
        lines += [*_waits(sums, span, "all sends of the machine", width, glyphs), EMPTY]
    lines.append(clip(line(Span(" NICs (enter opens one)", "head")), width))
    for row in rows:
        lost = (
            "n/a"
            if row.lost_ns is None
            else f"{duration(row.lost_ns)} an iteration ({share(row.share or 0.0)})"
        )
        mark = (" ", glyphs.possible, glyphs.accused)[row.mark]
        content = aimed(line(Span(f" {mark} ", "accused"), f"{row.name}: lost {lost}"), f"nic:{row.name}")
        under = f"nic:{row.name}" == state.selected
        lines.append(selected(content, width) if under else clip(content, width))
    return lines


def operator(job: JobView, number: int, width: int, glyphs: Glyphs) -> list[Line]:
    """One kind of operator: how long it took over time, and how that is distributed."""
    if not 0 <= number < len(job.operators):
        return [clip(line(Span(" There is no such operator any more.", "warn")), width)]
    one = job.operators[number]
    _, took = times_of(job, one)
    group = next((g for g in job.groups if g.id == one.group), None)
    lines = [clip(line(Span(f" {one.kind.replace('_', ' ')} of {one.group}", "head")), width)]
    told = (
        f" {one.count} of {size(one.bytes)} each: median {duration(one.duration_s * 1e9)}, "
        f"data under way for {duration(one.active_s * 1e9)}"
    )
    lines.append(clip(line(told), width))
    if took:
        room = max(10, min(len(took), width - _LABEL - 2))
        values = [float(v) for v in took]
        quantiles = [float(q) for q in np.quantile(values, (0.5, 0.99, 0.999))]
        text = " / ".join(duration(q) for q in quantiles)
        lines += [
            EMPTY,
            clip(line(Span(f" Durations of the latest {len(took)}: {text} (p50/p99/p99.9)", "head")), width),
            clip(
                line(
                    Span(fit(" over time", _LABEL), "dim"),
                    Span(spark(values[-room:], max(values), glyphs), "spark"),
                ),
                width,
            ),
        ]
        picture, low, high = histogram(values, max(10, min(60, width - _LABEL - 30)), glyphs)
        ends = f" {duration(low)} to {duration(high)}"
        lines.append(
            clip(
                line(Span(fit(" distribution", _LABEL), "dim"), Span(picture, "spark"), Span(ends, "dim")),
                width,
            )
        )
    if group is not None:
        lines += [
            EMPTY,
            clip(
                line(Span(f" Members: {len(group.members)} ({group.algorithm}, {group.dimension})", "head")),
                width,
            ),
        ]
        lines += [clip(line(f"   {name}"), width) for name in (group.stages or group.members)]
    return lines
