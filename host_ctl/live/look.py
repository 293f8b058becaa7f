# SPDX-License-Identifier: Apache-2.0
"""One look: the frames of a window through all stages, and what the jobs in it came to."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import MessageFlag
from host_ctl.align.clock import Alignment
from host_ctl.align.solve import align
from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.local import learn_local
from host_ctl.ingest.series import NicSeries
from host_ctl.live.clocks import CarriedClocks, contradicted
from host_ctl.live.decoded import DecodedFrames, series_of, trimmed
from host_ctl.live.memory import Sighting
from host_ctl.live.window import Window
from host_ctl.pipeline import Analysis, JobAnalysis, Stopwatch, analyze_series
from host_ctl.reconstruct.transfers import (
    CREDIT,
    LIFE_SHIFT,
    MISSING,
    TRANSFER,
    Traffic,
    arrival,
    send_start,
)

_CONNECTIONS = 256
_NOT_YET = "the captures end too soon to tell"


@dataclass(frozen=True, slots=True)
class Looked:
    """An analysis with its jobs as they are remembered; ``begun_ns`` is when connections of a job began."""

    analysis: Analysis
    sightings: tuple[Sighting, ...]
    begun_ns: tuple[int, ...]
    unreadable: int


def nothing(unreadable: int) -> Looked:
    """What a look at a window without any RDMA comes to."""
    empty = Traffic((), (), (), (), (), np.empty(0, TRANSFER), np.empty(0, CREDIT))
    missing = ("there is no RDMA traffic in the window",)
    analysis = Analysis((), Alignment((), ()), empty, (), (), (), "unsure", missing, ())
    return Looked(analysis, (), (), unreadable)


def look_at(window: Window, decoded: DecodedFrames, clocks: CarriedClocks) -> Looked:
    """Analyse a window."""
    watch = Stopwatch(time.process_time)
    series, shifts, unreadable = _series(window, decoded)
    watch.lap("decode")
    if not series:
        return nothing(unreadable)
    named, remarks = learn_local(series)
    shift_of = {s.name: shift for s, shift in zip(series, shifts, strict=True)}
    shifts = [shift_of[s.name] for s in named]
    watch.lap("join")
    carried = clocks.carry(window, named)
    alignment = align(named) if carried is None else carried
    watch.lap("align")
    inside = _trim(named, alignment, shifts, window)
    known = carried is not None
    analysis = analyze_series(inside, alignment, remarks, None, watch, coupled=known)
    if carried is not None and contradicted(analysis.traffic):
        alignment = align(named)
        watch.lap("align")
        inside, carried = _trim(named, alignment, shifts, window), None
        analysis = analyze_series(inside, alignment, remarks, None, watch)
    if carried is None:
        clocks.keep(window, named, analysis.alignment, related=len(analysis.jobs) > 0)
    seen = [_sighting(one, analysis, shifts, window) for one in analysis.jobs]
    return Looked(analysis, tuple(s for s, _ in seen), tuple(b for _, b in seen), unreadable)


def _series(window: Window, decoded: DecodedFrames) -> tuple[list[NicSeries], list[int], int]:
    """Series of NICs with any RDMA, the controller's clock minus theirs, and how many frames were lost."""
    series, shifts, lost = [], [], 0
    decoded.keep_only({each.key.identity for held in window.frames.values() for each in held})
    for name in sorted(window.frames):
        frames, unusable = decoded.of(window.frames[name])
        lost += unusable
        if not any(len(frame.tables.flows) for frame in frames):
            continue
        begins = {(f.boot_id, f.sequence): f.begin_ns for f in frames}
        held = [e.key for e in window.frames[name] if (e.key.boot_id, e.key.sequence) in begins]
        shifts.append(int(np.median([k.begin_ns - begins[k.boot_id, k.sequence] for k in held])))
        series.append(series_of(name, frames))
    return series, shifts, lost


def _trim(
    series: Sequence[NicSeries], alignment: Alignment, shifts: Sequence[int], window: Window
) -> list[NicSeries]:
    """The series, all cut at the same instants: frames end at different ones.

    What one NIC shows and another no more would look like a stop, or like messages without credits.
    """
    out = list(series)
    for component in {clock.component for clock in alignment.clocks}:
        members = [i for i, clock in enumerate(alignment.clocks) if clock.component == component]
        common = [
            alignment.clocks[i].to_common(np.array([window.begin_ns - shifts[i], window.end_ns - shifts[i]]))
            for i in members
        ]
        begin_ns = max(int(times[0]) for times in common)
        end_ns = min(int(times[1]) for times in common)
        for i in members:
            # The way back: clocks are straight enough for the small step from one to the other.
            own = alignment.clocks[i].to_common(np.array([begin_ns, end_ns]))
            begin, end = 2 * begin_ns - int(own[0]), 2 * end_ns - int(own[1])
            out[i] = trimmed(series[i], begin, end)
    return out


def _sighting(
    one: JobAnalysis, analysis: Analysis, shifts: Sequence[int], window: Window
) -> tuple[Sighting, int]:
    job, traffic = one.job, analysis.traffic
    shift_ns = _to_controller(traffic, analysis.alignment, job.members, shifts)
    rows = traffic.transfers[np.isin(traffic.transfers["link"], job.links)]
    starts, ends = send_start(rows), arrival(rows)
    # Repeats are no progress: after a crash they go on for long.
    once = (rows["flags"] & MessageFlag.REPEATED) == 0
    times = np.sort(np.concatenate([starts, ends[once]]))
    times = times[times != MISSING]
    last = int(times[-1])
    bounds = job.boundaries_ns
    lengths = np.diff(bounds)
    witness = max(
        int(clock.to_common(np.array([s.witness_ns]))[0])
        for s, clock in zip(analysis.series, analysis.alignment.clocks, strict=True)
    )
    # Of a job that was started again in the midst of the window only the latter part is still there.
    third = (last - int(times[0])) // 3
    connection = np.stack([rows["link"].astype(np.int64), rows["position"] >> LIFE_SHIFT])
    late = ends >= last - third
    left = np.isin(connection[0] << 16 | connection[1], (connection[0] << 16 | connection[1])[late])
    sighting = Sighting(
        nics=tuple(
            sorted(e.name for e in (traffic.endpoints[m] for m in job.members) if e.series is not None)
        ),
        late=_names(traffic, connection[:, late]),
        begin_ns=window.begin_ns,
        end_ns=window.end_ns,
        iterations_ns=tuple(
            (int(at) + shift_ns, int(n)) for at, n in zip(bounds[1:-2], lengths[1:-1], strict=True)
        ),
        pause_ns=int(np.diff(times).max(initial=0)),
        silence_ns=max(0, witness - last),
        verdicts=tuple(replace(v, onset_ns=v.onset_ns + shift_ns) for v in one.findings.verdicts),
        # Windows end anywhere, mostly inside an operator: the next ones will tell.
        unsure=tuple(text for text in one.findings.unsure if _NOT_YET not in text),
    )
    return sighting, int(starts[left].min()) + shift_ns


def _to_controller(
    traffic: Traffic, alignment: Alignment, members: Sequence[int], shifts: Sequence[int]
) -> int:
    """The controller's clock minus the common one of a job."""
    found = []
    for member in members:
        index = traffic.endpoints[member].series
        if index is not None:
            clock, at = alignment.clocks[index], traffic.series[index].last_ns
            found.append(at + shifts[index] - int(clock.to_common(np.array([at]))[0]))
    return int(np.median(found)) if found else 0


def _names(traffic: Traffic, connections: NDArray[np.int64]) -> frozenset[str]:
    """Short names of connections (link, life); of many the same few are chosen every time."""
    names = []
    for number, life in np.unique(connections, axis=1).T.tolist():
        link = traffic.links[number]
        ends = traffic.endpoints[link.src].addresses, traffic.endpoints[link.dst].addresses
        text = f"{ends}{link.dest_qpn}/{life}"
        names.append(hashlib.sha256(text.encode()).hexdigest()[:12])
    return frozenset(sorted(names)[:_CONNECTIONS])


def renamed(verdict: Verdict, key: str) -> Verdict:
    """The verdict with the name that its job is remembered by."""
    summary = re.sub(rf"\b{re.escape(verdict.job)}\b", key, verdict.summary)
    return replace(verdict, job=key, summary=summary)
