# SPDX-License-Identifier: Apache-2.0
"""A stretch of an analysis as a Perfetto trace: open it at https://ui.perfetto.dev or in any viewer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from host_ctl.attribute.states import WaitState
from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.present.analysed import Analysed, AnalysedJob
from host_ctl.present.attribution import Attribution, attribute
from host_ctl.present.evidence.rates import rates, window_ns
from host_ctl.present.perfetto.flows import Flows, find_flows
from host_ctl.present.perfetto.packets import TraceWriter
from host_ctl.reconstruct.transfers import Traffic

MOST_SLICES = 400_000
"""Wait states and operators in one trace; a window with more is cut shorter."""

_MOST_FLOWS, _RATE_BINS = 2_000, 1_000
_BEFORE, _AFTER = 1, 2  # iterations around the onset
_VERDICTS, _JOBS, _MACHINES = 0, 1, 2  # order of what stands above what


@dataclass(frozen=True, slots=True)
class Trace:
    """The encoded trace and what it shows; ``wanted_ns`` is longer than the window where that was cut."""

    data: bytes
    begin_ns: int
    end_ns: int
    wanted_ns: int


def build_trace(analysis: Analysed, window_s: float | None = None) -> Trace:
    """The trace of a window of ``window_s`` seconds around the onset, or of the iterations next to it."""
    jobs = [(one, attribute(analysis.traffic, one.program)) for one in analysis.jobs]
    parts = [(one, found, found.stretches()) for one, found in jobs]
    begin, end = wanted = _window(analysis, window_s)
    while _slices(parts, begin, end) > MOST_SLICES:
        quarter = (end - begin) // 4
        begin, end = begin + quarter, end - quarter
    out = TraceWriter()
    _write_verdicts(out, analysis, begin, end)
    for one, found, _ in parts:
        _write_job(out, one, found.traffic, begin, end)
    nics = _nic_tracks(out, analysis.traffic)
    for one, found, stretches in parts:
        flows = find_flows(found, stretches, begin, end, _MOST_FLOWS)
        _write_states(out, one, found, stretches, flows, nics, (begin, end))
    _write_counters(out, analysis, nics, begin, end)
    return Trace(out.data(), begin, end, wanted[1] - wanted[0])


def _window(analysis: Analysed, window_s: float | None) -> tuple[int, int]:
    verdict = next(iter(analysis.verdicts), None)
    one = next((j for j in analysis.jobs if verdict is None or j.job.id == verdict.job), None)
    if one is None:
        return _captured(analysis)
    boundaries = one.job.boundaries_ns
    onset = verdict.onset_iteration if verdict else one.job.iterations // 2
    onset = min(max(onset, 0), one.job.iterations - 1)
    if window_s is None:
        first, last = max(0, onset - _BEFORE), min(one.job.iterations, onset + _AFTER)
        return int(boundaries[first]), int(boundaries[last])
    middle, half = int(boundaries[onset]), int(window_s * 5e8)
    return middle - half, middle + half


def _captured(analysis: Analysed) -> tuple[int, int]:
    """The whole time of the captures, which without a job holds nothing but counters."""
    spans = [
        clock.to_common(np.array([s.first_ns, s.last_ns]))
        for s, clock in zip(analysis.series, analysis.alignment.clocks, strict=True)
    ]
    return min((int(s[0]) for s in spans), default=0), max((int(s[1]) for s in spans), default=1)


def _slices(parts: list[tuple[AnalysedJob, Attribution, tuple[Table, ...]]], begin: int, end: int) -> int:
    return sum(
        int(((part["start"] < end) & (part["end"] > begin)).sum())
        for _, _, stretches in parts
        for part in stretches
    )


def _write_verdicts(out: TraceWriter, analysis: Analysed, begin: int, end: int) -> None:
    """A slice for each verdict from its onset to the end of the window, and its onset as an instant."""
    root = out.process("Pulse verdicts", _VERDICTS)
    if not analysis.verdicts:
        track = out.track("health", root)
        out.slice(track, max(0, begin), end, f"{analysis.health}: nobody is accused", "verdict")
    for number, verdict in enumerate(analysis.verdicts, 1):
        track = out.track(f"v{number} {verdict.cause} {_where(verdict)}", root, number)
        notes = (
            ("summary", verdict.summary),
            ("confidence", float(verdict.confidence)),
            ("lost_gpu_seconds", float(verdict.lost_gpu_seconds)),
            ("onset_iteration", int(verdict.onset_iteration)),
        )
        since = min(max(begin, verdict.onset_ns), end)
        if since < end:
            out.slice(track, since, end, f"{verdict.cause} {_where(verdict)}", "verdict", notes)
        if begin <= verdict.onset_ns <= end:
            out.instant(track, verdict.onset_ns, "onset", "verdict", notes)


def _write_job(out: TraceWriter, one: AnalysedJob, traffic: Traffic, begin: int, end: int) -> None:
    """Iterations, and the operators of every group, those that overlap on tracks of their own."""
    root = out.process(one.job.id, _JOBS)
    track = out.track("iterations", root)
    bounds = one.job.boundaries_ns.tolist()
    for number, (a, b) in enumerate(pairwise(bounds)):
        if b > begin and a < end:
            out.slice(track, a, b, f"iteration {number}", "iteration")
    for rank, (timeline, kind) in enumerate(zip(one.job.timelines, one.kinds, strict=True), 1):
        group = timeline.group
        names = ", ".join(traffic.endpoints[m].name for m in group.members[:8])
        free: list[tuple[int, int]] = []
        for operator in timeline.operators:
            if operator.end_ns <= begin or operator.start_ns >= end:
                continue
            place = next((k for k, (until, _) in enumerate(free) if until <= operator.start_ns), len(free))
            if place == len(free):
                free.append((0, out.track(f"{group.id} {group.algorithm}: {names}", root, rank)))
            free[place] = (operator.end_ns, free[place][1])
            notes = (("bytes", int(operator.bytes)), ("messages", int(operator.messages)))
            out.slice(free[place][1], operator.start_ns, operator.end_ns, kind, "operator", notes)


def _nic_tracks(out: TraceWriter, traffic: Traffic) -> dict[int, int]:
    """A track for each NIC below one for its machine."""
    machines: dict[str, int] = {}
    nics: dict[int, int] = {}
    order = sorted(range(len(traffic.endpoints)), key=lambda e: traffic.endpoints[e].name)
    for rank, endpoint in enumerate(order):
        one = traffic.endpoints[endpoint]
        if one.machine not in machines:
            machines[one.machine] = out.process(one.machine, _MACHINES + len(machines))
        nics[endpoint] = out.track(one.nic or "NIC", machines[one.machine], rank)
    return nics


def _write_states(
    out: TraceWriter,
    one: AnalysedJob,
    found: Attribution,
    stretches: tuple[Table, ...],
    flows: Flows,
    nics: dict[int, int],
    window: tuple[int, int],
) -> None:
    """The states of every edge, a track for each of its channels below its sender."""
    begin, end = window
    seen: dict[int, count[int]] = {}
    for number, (lane, part) in enumerate(zip(found.program.lanes, stretches, strict=True)):
        chosen = np.flatnonzero((part["start"] < end) & (part["end"] > begin)).tolist()
        if not chosen:
            continue
        channel = next(seen.setdefault(lane.edge, count()))
        group = one.job.timelines[lane.group].group.id
        name = f"to {found.traffic.endpoints[lane.dst].name} ({group}, channel {channel})"
        track = out.track(name, nics[lane.src], number)
        reached = 0
        for k in chosen:
            # Operators that overlap end some stretches early, so that slices of a track never cross.
            a, b = max(int(part["start"][k]), reached), int(part["end"][k])
            if b <= a:
                continue
            reached = b
            state = WaitState(int(part["state"][k])).name.lower()
            place = (number, k)
            out.slice(track, a, b, state, f"wait_state,{state}", (("operator", int(part["operator"][k])),),
                      flows.begins.get(place, ()), flows.ends.get(place, ()))  # fmt: skip


def _write_counters(out: TraceWriter, analysis: Analysed, nics: dict[int, int], begin: int, end: int) -> None:
    """What every NIC sent over time, and how certain its clock is."""
    traffic = analysis.traffic
    if window_ns(traffic) and nics:
        bins = max(50, min(_RATE_BINS, MOST_SLICES // (2 * len(nics))))
        found = rates(traffic, list(nics), begin, end, bins)
        for curve in found.curves:
            if not len(curve.gbps):
                continue
            track = out.counter("sent", "Gbit/s", nics[curve.endpoint])
            change = np.flatnonzero(np.r_[True, curve.gbps[1:] != curve.gbps[:-1]])
            for k in change.tolist():
                out.value(track, begin + k * found.bin_ns, float(curve.gbps[k]))
            out.value(track, begin + found.bins * found.bin_ns, 0.0)
    for endpoint, parent in nics.items():
        index = traffic.endpoints[endpoint].series
        known = None if index is None else traffic.clocks[index].uncertainty_ns
        if known is not None:
            track = out.counter("clock uncertainty", "ns", parent, 1)
            for at in (begin, end):
                out.value(track, at, float(known))


def _where(verdict: Verdict) -> str:
    return "/".join(p for p in (verdict.machine, verdict.nic) if p) or "(no machine)"
