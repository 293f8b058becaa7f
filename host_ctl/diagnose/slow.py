# SPDX-License-Identifier: Apache-2.0
"""Fail-slow: who loses time in most iterations, more than peers and more than before, and why.

The order of the questions: does a machine start or grant late although it has what it needs (its host),
or is a message long under way although it was sent in time (a NIC, a link)? A slow network makes later
starts, never the other way round, so the larger excess explains the smaller.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features
from host_ctl.attribute.path import Step, path_time
from host_ctl.attribute.program import Program
from host_ctl.attribute.roles import machine_roles, same_role
from host_ctl.diagnose.decide import Shift, find_shifts
from host_ctl.diagnose.ends import CONGESTED, EdgeEnds, Side, congested_share, slow_end
from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Scope, Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

MIN_EFFECT = 0.03
_TRANSFERS_FROM_START = 5.0
_SECOND_FAULT = 0.5
_RIVAL = 0.7
_COSTS = 0.5
_RULES_PATH = 0.6
_CAUSE_OF_SIDE: dict[Side, Cause] = {
    "sender": "nic_slow",
    "receiver": "receiver_slow",
    "either": "link_slow",
}
_CONTENTION = 0.3
_NOT_COMPUTING = 2.0  # times the lag after computing
_ON_PATH = 0.3
_BOTH_WAYS = 0.25


@dataclass(frozen=True, slots=True)
class SlowCase:
    """One accepted shift with the feature that it was found in.

    ``names`` are columns of the features; ``rivals`` those of others that may as well be the cause.
    """

    feature: str
    names: tuple[int, ...]
    shift: Shift
    rivals: tuple[int, ...] = ()


def find_slow(
    traffic: Traffic,
    program: Program,
    roles: list[Hashable],
    features: Features,
    charges: Table,
    paths: Table,
) -> list[Verdict]:
    """Verdicts for machines or NICs that slow the job, the costliest first."""
    job = program.job
    usable = usable_iterations(features)
    base = float(np.median(features.duration_ns[usable])) if usable.any() else 0.0
    if not base:
        return []
    cases: list[SlowCase] = []
    columns = list(_machines(traffic, job).values())
    alike = same_role(machine_roles(traffic, program, roles))
    for lost in (features.host, features.entry):
        by_machine = np.stack([lost[:, c].mean(axis=1) for c in columns], axis=1)
        shifts = find_shifts(by_machine, classes=alike, least_ns=MIN_EFFECT * base, usable=usable)
        cases.extend(SlowCase("host", tuple(columns[shift.member]), shift) for shift in shifts)
    port = features.egress + features.ingress
    for name, table in (("port", port), ("egress", features.egress), ("ingress", features.ingress)):
        # How long transfers take depends on the place in a tree or pipeline even where the part is the same.
        even = same_role(roles) if not any(roles) else []
        shifts = find_shifts(
            table, classes=even, least_ns=MIN_EFFECT * base, usable=usable, from_start=_TRANSFERS_FROM_START
        )
        cases.extend(SlowCase(name, (shift.member,), shift) for shift in shifts)
    cases = [c for c in cases if _costs(c.shift, features, usable) and _holds(c, job, features, paths)]
    kept = _explain_away(cases, traffic, job, paths)
    verdicts = [(case, _verdict(case, traffic, job, features, charges)) for case in kept]
    return [_undecided(v, c, traffic, job) if c.rivals and v.machine else v for c, v in verdicts]


def usable_iterations(features: Features) -> NDArray[np.bool_]:
    """Iterations to judge by: leave out the first iteration (warm-up) and the last (perhaps cut off)."""
    usable = np.ones(len(features.duration_ns), dtype=bool)
    usable[:1] = usable[-1:] = False
    return usable


def _machines(traffic: Traffic, job: Job) -> dict[str, list[int]]:
    """Columns of the features by machine."""
    found: dict[str, list[int]] = {}
    for column, member in enumerate(job.members):
        found.setdefault(traffic.endpoints[member].machine, []).append(column)
    return found


def _costs(shift: Shift, features: Features, usable: NDArray[np.bool_]) -> bool:
    """Whether the job itself became slower with the shift, where a before and an after can be compared."""
    inside = np.zeros(len(usable), dtype=bool)
    inside[shift.onset : shift.end] = True
    before, after = features.duration_ns[usable & ~inside], features.duration_ns[usable & inside]
    if len(before) < 3 or len(after) < 3:
        return True
    return float(np.median(after) - np.median(before)) >= _COSTS * shift.excess_ns


def _holds(case: SlowCase, job: Job, features: Features, paths: Table) -> bool:
    """Whether a host's excess lies on the critical path, since what nobody waits for costs nothing; and
    whether a port is slow both ways, since otherwise it is one edge that is slow."""
    if case.feature == "host":
        return path_excess(case, job, paths) >= _ON_PATH * case.shift.excess_ns
    if case.feature == "port":
        ways = (_excess(features.egress, case, features), _excess(features.ingress, case, features))
        return min(ways) >= _BOTH_WAYS * case.shift.excess_ns
    return True


def path_excess(case: SlowCase, job: Job, paths: Table) -> float:
    """What the accused takes of the critical path per iteration inside the shift, beyond others' median."""
    step, column = Step.HOST, "src"
    inside = slice(case.shift.onset, case.shift.end)
    own = path_time(paths, step, column, [job.members[n] for n in case.names], job.iterations)[inside]
    others = [
        float(path_time(paths, step, column, [m], job.iterations)[inside].mean())
        for n, m in enumerate(job.members)
        if n not in case.names
    ]
    return float(own.mean()) - (float(np.median(others)) if others else 0.0)


def _explain_away(cases: list[SlowCase], traffic: Traffic, job: Job, paths: Table) -> list[SlowCase]:
    """Keep the costliest case, and others only of unrelated machines and of comparable cost.

    A fault changes what its neighbours do. Peers of one role tell a second fault from that; where only
    the own past can be compared, everybody's differs once somebody is slow, and the costliest must do.
    """
    # A port that is slow both ways explains both of its edges, and so stands for the larger of the two.
    cases = sorted(cases, key=lambda c: (-c.shift.excess_ns, c.feature != "port"))
    kept: list[SlowCase] = []
    for case in cases:
        if not kept:
            kept.append(replace(case, rivals=_rivals(case, cases, traffic, job, paths)))
            continue
        comparable = case.shift.excess_ns >= _SECOND_FAULT * kept[0].shift.excess_ns
        if not comparable or case.shift.own_past:
            continue
        if not any(_related(case, k, traffic, job, paths) for k in kept):
            kept.append(case)
    return kept


def _rivals(
    case: SlowCase, cases: list[SlowCase], traffic: Traffic, job: Job, paths: Table
) -> tuple[int, ...]:
    """Members of other machines that changed nearly as much, where only the own past could be compared."""
    if not case.shift.own_past:
        return ()
    machine = _machine_of(case, traffic, job)
    found = {
        other.names[0]
        for other in cases
        if other.feature == case.feature and other.shift.excess_ns >= _RIVAL * case.shift.excess_ns
    }
    if case.feature == "host":
        change = _path_change(case, job, paths)
        own = max(change[n] for n in case.names)
        found |= {n for n, other in enumerate(change) if other > own}
    return tuple(n for n in sorted(found) if traffic.endpoints[job.members[n]].machine != machine)


def _path_change(case: SlowCase, job: Job, paths: Table) -> list[float]:
    """How much more of the critical path each member's host takes inside the shift than outside (ns)."""
    inside = np.zeros(job.iterations, dtype=bool)
    inside[case.shift.onset : case.shift.end] = True
    outside = ~inside
    outside[:1] = outside[-1:] = False
    times = [path_time(paths, Step.HOST, "src", [m], job.iterations) for m in job.members]
    if not outside.any():
        return [0.0] * len(times)
    return [float(t[inside].mean() - t[outside].mean()) for t in times]


def _related(a: SlowCase, b: SlowCase, traffic: Traffic, job: Job, paths: Table) -> bool:
    """Whether case ``a`` is of the same machine as ``b``, or follows from it as a neighbour's.

    A neighbour of a slow wire is never accused beside it. A neighbour of a slow host may be late for want
    of acknowledgements, which captures do not tell from its own lateness unless it rules the critical path.
    """
    if _machine_of(a, traffic, job) == _machine_of(b, traffic, job):
        return True
    ends = (job.members[a.names[0]], job.members[b.names[0]])
    neighbours = ends in traffic.edges or ends[::-1] in traffic.edges
    if a.feature == b.feature == "host":
        meanwhile = replace(a, shift=replace(a.shift, onset=b.shift.onset, end=b.shift.end))
        return neighbours and path_excess(meanwhile, job, paths) < _RULES_PATH * path_excess(b, job, paths)
    return neighbours


def _machine_of(case: SlowCase, traffic: Traffic, job: Job) -> str:
    return traffic.endpoints[job.members[case.names[0]]].machine


def _verdict(case: SlowCase, traffic: Traffic, job: Job, features: Features, charges: Table) -> Verdict:
    if case.feature == "host":
        return _host_verdict(case, traffic, job, features)
    return _transfer_verdict(case, traffic, job, features, charges)


def _undecided(verdict: Verdict, case: SlowCase, traffic: Traffic, job: Job) -> Verdict:
    """The verdict without a machine, its candidates instead: several changed at once and nothing decides."""
    ends = [traffic.endpoints[job.members[n]] for n in (case.names[0], *case.rivals)]
    names = " or ".join(e.machine for e in ends)
    return replace(
        verdict,
        scope="none",
        machine=None,
        nic=None,
        candidates=tuple(Candidate(e.machine, e.nic, round(1.0 / len(ends), 4)) for e in ends),
        confidence=1.0 / len(ends),
        summary=f"{names} slows {job.id}, and nothing decides which: {verdict.summary.partition(': ')[2]}",
    )


def _host_verdict(case: SlowCase, traffic: Traffic, job: Job, features: Features) -> Verdict:
    shift, endpoint = case.shift, traffic.endpoints[job.members[case.names[0]]]
    inner = _excess(features.inner, case, features)
    egress = _excess(features.egress, case, features)
    entry = _excess(features.entry, case, features)
    cause, reason = _host_cause(shift.excess_ns, entry, inner, egress)
    evidence = (
        Evidence("host_time", shift.value_ns / 1e3, shift.usual_ns / 1e3, "us"),
        Evidence("start_lag", entry / 1e3, 0.0, "us"),
        Evidence("in_operator_lag", inner / 1e3, 0.0, "us"),
        Evidence("worst_of_all", shift.share_worst, 1.0 / max(1, len(_machines(traffic, job))), "share"),
    )
    scope: Scope = "nic" if cause == "receiver_slow" else "machine"
    return _finish(case, job, features, cause, scope, endpoint.machine, None, (), evidence, reason)


def _host_cause(excess: float, entry: float, inner: float, egress: float) -> tuple[Cause, str]:
    """What keeps a host: computing, a busy CPU, or a slow way from its NIC to its memory."""
    if inner > _CONTENTION * excess and egress > _CONTENTION / 3 * excess:
        return (
            "cpu_contention",
            "its sends and its messages in flight stall again and again, as on a busy CPU",
        )
    if inner > _NOT_COMPUTING * max(entry, 0.0) and inner > _CONTENTION * excess:
        return "receiver_slow", "it starts on time and is slow with every message that it gets"
    return "compute_slow", "it had its input and its credit and still sent late"


def _excess(table: NDArray[np.float64], case: SlowCase, features: Features) -> float:
    """How much more a member lost inside the shift than the median of the others, or than before."""
    inside = np.zeros(len(features.duration_ns), dtype=bool)
    inside[case.shift.onset : case.shift.end] = True
    own = table[:, list(case.names)].mean(axis=1)
    if case.shift.own_past:
        return float(np.median(own[inside]) - np.median(own[~inside])) if (~inside).any() else 0.0
    others = np.delete(table, list(case.names), axis=1)
    return float(np.median(own[inside] - np.median(others[inside], axis=1))) if others.shape[1] else 0.0


def _transfer_verdict(
    case: SlowCase, traffic: Traffic, job: Job, features: Features, charges: Table
) -> Verdict:
    inside = (case.shift.onset, case.shift.end)
    member = job.members[case.names[0]]
    if congested_share(charges, member, case.feature, inside) >= CONGESTED:
        return _congestion_verdict(case, traffic, job, features, charges, inside)
    ends = (
        EdgeEnds("sender", member, ((member, 0.95),), ())
        if case.feature == "port"
        else slow_end(traffic, job, charges, member, case.feature, inside)
    )
    cause = _CAUSE_OF_SIDE[ends.side]
    scope: Scope = "link" if ends.side == "either" else "nic"
    blamed = traffic.endpoints[ends.blamed] if ends.side != "either" else None
    evidence = (
        Evidence("slow_transfer", case.shift.value_ns / 1e3, case.shift.usual_ns / 1e3, "us"),
        *ends.evidence,
    )
    candidates = tuple(
        Candidate(traffic.endpoints[e].machine, traffic.endpoints[e].nic, p) for e, p in ends.candidates
    )
    return _finish(
        case, job, features, cause, scope,
        blamed.machine if blamed else None, blamed.nic if blamed else None,
        candidates, evidence, _reason(ends, traffic),
    )  # fmt: skip


def _congestion_verdict(
    case: SlowCase,
    traffic: Traffic,
    job: Job,
    features: Features,
    charges: Table,
    inside: tuple[int, int],
) -> Verdict:
    """Slow because the network signalled congestion: the path is to blame, and no machine."""
    member = job.members[case.names[0]]
    share = congested_share(charges, member, case.feature, inside)
    way = "from" if case.feature == "egress" else "to"
    evidence = (
        Evidence("slow_transfer", case.shift.value_ns / 1e3, case.shift.usual_ns / 1e3, "us"),
        Evidence("congestion_signalled", share, 0.0, "share"),
    )
    reason = f"messages {way} {traffic.endpoints[member].name} are held up where switches mark packets"
    return _finish(case, job, features, "congestion", "path", None, None, (), evidence, reason)


def _reason(ends: EdgeEnds, traffic: Traffic) -> str:
    names = [traffic.endpoints[e].name for e, _ in ends.candidates]
    if ends.side == "sender":
        return "its messages leave on time and are long under way, to whomever it sends"
    if ends.side == "receiver":
        return "messages to it are long under way, from whomever they come"
    return f"messages between {' and '.join(names)} are long under way; which end it is does not show"


def _finish(
    case: SlowCase,
    job: Job,
    features: Features,
    cause: Cause,
    scope: Scope,
    machine: str | None,
    nic: str | None,
    candidates: tuple[Candidate, ...],
    evidence: tuple[Evidence, ...],
    reason: str,
) -> Verdict:
    shift = case.shift
    inside = np.zeros(len(features.duration_ns), dtype=bool)
    inside[shift.onset : shift.end] = True
    usable = usable_iterations(features)
    now = float(np.median(features.duration_ns[inside]))
    before = features.duration_ns[usable & ~inside]
    healthy = float(np.median(before)) if len(before) >= 3 else max(now - shift.excess_ns, 1.0)
    lost_s = float(np.maximum(features.duration_ns[inside] - healthy, 0).sum()) / 1e9
    where = f"{machine}/{nic}" if machine and nic else machine or "no single machine"
    confidence = _confidence(shift)
    if machine and not candidates:
        candidates = (Candidate(machine, nic, confidence),)
    return Verdict(
        job=job.id,
        severity="fail_slow",
        cause=cause,
        scope=scope,
        machine=machine,
        nic=nic,
        peer=None,
        candidates=candidates,
        onset_ns=int(job.boundaries_ns[shift.onset]),
        onset_iteration=shift.onset,
        detected_iteration=shift.detected,
        slowdown=now / healthy,
        lost_gpu_seconds=lost_s * len(job.members),
        confidence=confidence,
        evidence=evidence,
        summary=(
            f"{where} slows {job.id} ({cause.replace('_', ' ')}): {reason}; "
            f"{shift.excess_ns / 1e6:.0f} ms of {now / 1e6:.0f} ms per iteration"
        ),
    )


def _confidence(shift: Shift) -> float:
    """From how often the accused was the worst and how many iterations say so (rule of succession)."""
    runs = shift.end - shift.onset
    return min(0.99, (shift.share_worst * runs + 1.0) / (runs + 2.0) if not shift.own_past else 0.9)
