# SPDX-License-Identifier: Apache-2.0
"""What a dashboard draws: lost time and wait states by NIC and iteration, edges, operators, rates.

A report tells what was found; this holds the tables behind it, bounded so that they can be sent every second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.states import WaitState
from host_ctl.ingest.local import packed_address
from host_ctl.ingest.series import NicSeries
from host_ctl.present.analysed import Analysed, AnalysedJob
from host_ctl.present.evidence.accused import by_interest, pointed_at
from host_ctl.present.evidence.iterations import choose
from host_ctl.present.evidence.lost_time import lost_time
from host_ctl.present.evidence.rates import message_rates, rates
from host_ctl.reconstruct.transfers import Traffic
from pulse_native import histogram_lower_bound

SCHEMA = "pulse.details/1"
COUNTS = ("repeat_packets", "cnp", "ecn_ce", "rnr", "nak_sequence", "nak_other")
QUANTILES = (0.5, 0.99, 0.999)
STATES = tuple(state.name.lower() for state in WaitState)
_MOST_CELLS, _MOST_EDGES, _MOST_OPERATORS = 60_000, 1024, 512
_CURVES, _CURVE_BINS, _FEWEST_BINS = 4, 2048, 100
_KINDS = 4


@dataclass(frozen=True, slots=True)
class NicDetail:
    """One NIC: bytes of the job that it sent, packets of trouble at its tap, its time to acknowledge.

    ``ack_ns`` are the quantiles of :data:`QUANTILES`, none where nothing was seen; ``counts`` go by
    :data:`COUNTS`, none without a capture.
    """

    name: str
    sent_bytes: int
    counts: tuple[int, ...]
    ack_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EdgeDetail:
    """From one NIC to another: what it carried, and how long it was in which state, by :data:`STATES`."""

    src: str
    dst: str
    group: str
    bytes: int
    messages: int
    state_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """The latest operators of one group: when each began, how long it took, how much it moved."""

    group: str
    kind: str
    begin_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """What one NIC sent in every bin of an iteration, in Gbit/s; empty where no capture tells."""

    job: str
    nic: str
    iteration: int
    begin_ns: int
    bin_ns: int
    gbps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobDetails:
    """One job, its iterations from ``first`` on.

    ``lost_ns[nic, iteration]`` with ``known`` (as ``Known`` numbers it) beside it;
    ``kind_ns[nic, iteration]`` has what hosts held up, messages sent, messages got, repeats;
    ``state_ns[nic, iteration, state]`` is of what the NIC sent.
    """

    id: str
    first: int
    begin_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]
    nics: tuple[NicDetail, ...]
    lost_ns: NDArray[np.int64]
    known: NDArray[np.int64]
    kind_ns: NDArray[np.int64]
    state_ns: NDArray[np.int64]
    edges: tuple[EdgeDetail, ...]
    operators: tuple[OperatorTimes, ...]


@dataclass(frozen=True, slots=True)
class Details:
    """All jobs, and rates of some NICs: those at least that verdicts point at."""

    jobs: tuple[JobDetails, ...]
    curves: tuple[Curve, ...]


def details_of(
    analysis: Analysed, names: Sequence[str] | None = None, *, all_curves: bool = False
) -> Details:
    """The details of an analysis; ``names`` are what its jobs are called, in order.

    With ``all_curves``, rates of all NICs in the latest whole iteration are among them, as far as that is
    bounded: for who cannot ask again.
    """
    called = [one.job.id for one in analysis.jobs] if names is None else list(names)
    jobs = tuple(_job(one, analysis.traffic, name) for one, name in zip(analysis.jobs, called, strict=True))
    curves = [
        curve
        for one, name in zip(analysis.jobs, called, strict=True)
        for curve in _accused_curves(one, analysis, name)
    ]
    if all_curves:
        for one, name in zip(analysis.jobs, called, strict=True):
            curves += _latest_curves(one, analysis.traffic, name)
    return Details(jobs, tuple(curves))


def _job(one: AnalysedJob, traffic: Traffic, name: str) -> JobDetails:
    lost, job = lost_time(one, traffic), one.job
    states, edges = _states(one, traffic)
    operators = []
    for timeline, kind in zip(job.timelines, one.kinds, strict=True):
        last = timeline.operators[-_MOST_OPERATORS:]
        begins = tuple(o.start_ns for o in last)
        lengths = tuple(o.end_ns - o.start_ns for o in last)
        operators.append(
            OperatorTimes(timeline.group.id, kind, begins, lengths, tuple(o.bytes for o in last))
        )
    sent = _sent_bytes(one, traffic)
    kinds = one.features.host, one.features.egress, one.features.ingress, one.features.repair
    return JobDetails(
        id=name,
        first=0,
        begin_ns=tuple(job.boundaries_ns[:-1].tolist()),
        duration_ns=tuple(np.diff(job.boundaries_ns).tolist()),
        nics=tuple(_nic(m, traffic, sent.get(m, 0)) for m in lost.members),
        lost_ns=np.rint(lost.ns.T).astype(np.int64),
        known=lost.known.T,
        kind_ns=np.rint(np.stack(kinds, axis=-1).swapaxes(0, 1)).astype(np.int64),
        state_ns=states,
        edges=edges,
        operators=tuple(operators),
    )


def _states(one: AnalysedJob, traffic: Traffic) -> tuple[NDArray[np.int64], tuple[EdgeDetail, ...]]:
    """Wait states by NIC and iteration of what it sent; an operator counts where it began."""
    job = one.job
    column = {member: k for k, member in enumerate(job.members)}
    out = np.zeros((len(job.members), job.iterations, len(WaitState)), dtype=np.int64)
    edges = []
    for times in one.states:
        timeline = job.timelines[times.group]
        began = np.array([o.start_ns for o in timeline.operators], dtype=np.int64)
        iteration = np.searchsorted(job.boundaries_ns, began, side="right") - 1
        iteration = np.clip(iteration, 0, job.iterations - 1)
        t = traffic.transfers[np.concatenate([o.rows for o in timeline.operators])]
        size = np.bincount(t["edge"], weights=t["bytes"], minlength=len(traffic.edges))
        count = np.bincount(t["edge"], minlength=len(traffic.edges))
        for position, edge in enumerate(times.edges):
            src, dst = traffic.edges[edge]
            np.add.at(out[column[src]], iteration, times.ns[:, position])
            names = traffic.endpoints[src].name, traffic.endpoints[dst].name
            sums = tuple(times.ns[:, position].sum(axis=0).tolist())
            edges.append(EdgeDetail(*names, timeline.group.id, int(size[edge]), int(count[edge]), sums))
    return out, tuple(edges)


def _sent_bytes(one: AnalysedJob, traffic: Traffic) -> dict[int, int]:
    t = traffic.transfers[np.isin(traffic.transfers["link"], one.job.links)]
    size = np.bincount(t["edge"], weights=t["bytes"], minlength=len(traffic.edges))
    out: dict[int, int] = {}
    for (src, _), amount in zip(traffic.edges, size.tolist(), strict=True):
        out[src] = out.get(src, 0) + int(amount)
    return out


def _nic(member: int, traffic: Traffic, sent: int) -> NicDetail:
    endpoint = traffic.endpoints[member]
    if endpoint.series is None:
        return NicDetail(endpoint.name, sent, (), ())
    series = traffic.series[endpoint.series]
    counts = tuple(int(series.flows[name].sum()) for name in COUNTS)
    return NicDetail(endpoint.name, sent, counts, acknowledge_ns(series))


def acknowledge_ns(series: NicSeries) -> tuple[float, ...]:
    """Quantiles of how long a NIC takes to acknowledge data, at its own tap; upper ends of their cells."""
    own = {packed_address(a) for a in series.addresses}
    into = [int(r["flow"]) for r in series.flows if r["dst"].tobytes() in own]
    cells = series.ack_histogram[np.isin(series.ack_histogram["flow"], into)]
    if not len(cells):
        return ()
    reached = np.cumsum(np.bincount(cells["cell"], weights=cells["count"]))
    places = np.searchsorted(reached, np.array(QUANTILES) * reached[-1])
    return tuple(float(histogram_lower_bound(int(p) + 1)) for p in places)


def _latest_curves(one: AnalysedJob, traffic: Traffic, name: str) -> list[Curve]:
    """Of all NICs in the iteration before the last, which may be seen in part; none of too many."""
    members = one.features.members
    bins = min(_CURVE_BINS, _MOST_CELLS // (2 * len(members)))
    if one.job.iterations < 2 or bins < _FEWEST_BINS:
        return []
    return curves_of(one, traffic, name, members, one.job.iterations - 2, bins)


def curves_of(
    one: AnalysedJob,
    traffic: Traffic,
    name: str,
    nics: Sequence[int],
    iteration: int,
    most_bins: int = _CURVE_BINS,
) -> list[Curve]:
    """What some NICs (endpoints) sent in an iteration."""
    bounds = one.job.boundaries_ns
    begin, end = int(bounds[iteration]), int(bounds[iteration + 1])
    found = rates(traffic, list(nics), begin, end, most_bins)
    if not any(len(each.gbps) for each in found.curves):
        # Live analysis keeps no windows: messages tell nearly the same.
        found = message_rates(traffic, list(nics), begin, end, most_bins)
    return [
        Curve(
            name,
            traffic.endpoints[each.endpoint].name,
            iteration,
            begin,
            found.bin_ns,
            tuple(np.round(each.gbps, 1).tolist()),
        )
        for each in found.curves
    ]


def _accused_curves(one: AnalysedJob, analysis: Analysed, name: str) -> list[Curve]:
    """Of the gravest verdict on the job: whom it points at and some peers, where the fault shows."""
    mine = [v for v in analysis.verdicts if v.job == one.job.id]
    if not mine:
        return []
    pointed = pointed_at(mine[0], one.job, analysis.traffic).all
    members = one.features.members
    chosen = choose(one, mine[0], [members.index(e) for e in pointed])
    if chosen is None:
        return []
    nics = by_interest(pointed, one.job, analysis.traffic, _CURVES)
    return curves_of(one, analysis.traffic, name, nics, chosen.bad)


def plain(details: Details) -> dict[str, Any]:
    """As plain data for JSON; times of tables in whole us, the oldest iterations left out where too many."""
    return {
        "schema": SCHEMA,
        "states": list(STATES),
        "jobs": [_plain_job(job) for job in details.jobs],
        "curves": [
            {
                "job": c.job, "nic": c.nic, "iteration": c.iteration, "begin_ns": c.begin_ns,
                "bin_ns": c.bin_ns, "gbps": list(c.gbps),
            }
            for c in details.curves
        ],
    }  # fmt: skip


def latest(job: JobDetails, most: int) -> JobDetails:
    """The same job with its latest iterations only."""
    cut = max(0, len(job.duration_ns) - most)
    if not cut:
        return job
    return replace(
        job,
        first=job.first + cut,
        begin_ns=job.begin_ns[cut:],
        duration_ns=job.duration_ns[cut:],
        lost_ns=job.lost_ns[:, cut:],
        known=job.known[:, cut:],
        kind_ns=job.kind_ns[:, cut:],
        state_ns=job.state_ns[:, cut:],
    )


def _plain_job(whole: JobDetails) -> dict[str, Any]:
    job = latest(whole, max(8, _MOST_CELLS // (max(1, len(whole.nics)) * (len(STATES) + _KINDS))))
    edges = sorted(job.edges, key=lambda e: -e.bytes)[:_MOST_EDGES]
    return {
        "id": job.id,
        "first": job.first,
        "begin_ns": list(job.begin_ns),
        "duration_ns": list(job.duration_ns),
        "nics": [
            {"name": n.name, "sent_bytes": n.sent_bytes, "counts": list(n.counts), "ack_ns": list(n.ack_ns)}
            for n in job.nics
        ],
        "lost_us": (job.lost_ns // 1000).tolist(),
        "known": ["".join(map(str, row)) for row in job.known.tolist()],
        "kind_us": (job.kind_ns // 1000).tolist(),
        "state_us": (job.state_ns // 1000).tolist(),
        "edges": [
            {"src": e.src, "dst": e.dst, "group": e.group, "bytes": e.bytes, "messages": e.messages,
             "state_us": [ns // 1000 for ns in e.state_ns]}
            for e in edges
        ],
        "operators": [
            {"group": o.group, "kind": o.kind, "begin_ns": list(o.begin_ns),
             "duration_ns": list(o.duration_ns), "bytes": list(o.bytes)}
            for o in job.operators
        ],
    }  # fmt: skip


def read_details(found: Any) -> Details:
    """The details that :func:`plain` wrote. Raises KeyError, TypeError or ValueError on anything else."""
    if found["schema"] != SCHEMA or found["states"] != list(STATES):
        raise ValueError(f"these are no details of schema {SCHEMA}")
    curves = tuple(
        Curve(str(c["job"]), str(c["nic"]), int(c["iteration"]), int(c["begin_ns"]), int(c["bin_ns"]),
              tuple(map(float, c["gbps"])))
        for c in found["curves"]
    )  # fmt: skip
    return Details(tuple(_read_job(job) for job in found["jobs"]), curves)


def _read_job(job: Any) -> JobDetails:
    nics = tuple(
        NicDetail(str(n["name"]), int(n["sent_bytes"]), tuple(n["counts"]), tuple(n["ack_ns"]))
        for n in job["nics"]
    )
    shape = len(nics), len(job["duration_ns"])
    known = [[int(c) for c in row] for row in job["known"]]
    return JobDetails(
        id=str(job["id"]),
        first=int(job["first"]),
        begin_ns=tuple(map(int, job["begin_ns"])),
        duration_ns=tuple(map(int, job["duration_ns"])),
        nics=nics,
        lost_ns=np.array(job["lost_us"], dtype=np.int64).reshape(shape) * 1000,
        known=np.array(known, dtype=np.int64).reshape(shape),
        kind_ns=np.array(job["kind_us"], dtype=np.int64).reshape(*shape, _KINDS) * 1000,
        state_ns=np.array(job["state_us"], dtype=np.int64).reshape(*shape, len(STATES)) * 1000,
        edges=tuple(
            EdgeDetail(str(e["src"]), str(e["dst"]), str(e["group"]), int(e["bytes"]), int(e["messages"]),
                       tuple(1000 * int(us) for us in e["state_us"]))
            for e in job["edges"]
        ),
        operators=tuple(
            OperatorTimes(str(o["group"]), str(o["kind"]), tuple(map(int, o["begin_ns"])),
                          tuple(map(int, o["duration_ns"])), tuple(map(int, o["bytes"])))
            for o in job["operators"]
        ),
    )  # fmt: skip
