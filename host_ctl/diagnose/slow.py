# SPDX-License-Identifier: Apache-2.0
"""Fail-slow: who loses time in most iterations, more than peers and more than before, and why.

The order of the questions: does a machine start or grant late although it has what it needs (its host),
or is a message long under way although it was sent in time (a NIC, a link)? A slow network makes later
starts, never the other way round, so the larger excess explains the smaller.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features, under_way
from host_ctl.attribute.path import Step, path_time
from host_ctl.attribute.program import Program
from host_ctl.attribute.roles import machine_roles, same_role
from host_ctl.diagnose.cases import (
    SlowCase,
    charged_ns,
    excess_of,
    machine_columns,
    machine_of,
    one_way_ns,
    path_excess,
    usable_iterations,
)
from host_ctl.diagnose.costs import Claim
from host_ctl.diagnose.decide import find_shifts
from host_ctl.diagnose.losses import LossFindings
from host_ctl.diagnose.queues import find_queue
from host_ctl.diagnose.shared_path import Edge, slow_edges, slow_with
from host_ctl.diagnose.slow_verdicts import host_cause_of, slow_verdict, undecided
from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

MIN_EFFECT = 0.03
_TRANSFERS_FROM_START = 5.0
_SECOND_FAULT = 0.5
_RIVAL = 0.7
_COSTS = 0.5
_RULES_PATH = 0.6
_ON_PATH = 0.3
_BOTH_WAYS = 0.25
_SUSPECT = 0.5
_NO_BEFORE = 3


def find_slow(
    traffic: Traffic,
    program: Program,
    roles: list[Hashable],
    features: Features,
    charges: Table,
    paths: Table,
    losses: LossFindings,
) -> list[tuple[Verdict, Claim]]:
    """Verdicts for machines or NICs that slow the job, the costliest first, with what is charged to each.

    What follows from lost packets is left out.
    """
    job = program.job
    usable = usable_iterations(features)
    base = float(np.median(features.duration_ns[usable])) if usable.any() else 0.0
    if not base:
        return []
    least_ns = MIN_EFFECT * base
    cases = _slow_hosts(traffic, program, roles, features, usable, least_ns)
    port = features.egress + features.ingress
    for name, table in (("port", port), ("egress", features.egress), ("ingress", features.ingress)):
        # How long transfers take depends on the place in a tree or pipeline even where the part is the same.
        even = same_role(roles) if not any(roles) else []
        shifts = find_shifts(
            table,
            classes=even,
            least_ns=least_ns,
            usable=usable,
            from_start=_TRANSFERS_FROM_START,
            together=True,
        )
        cases.extend(SlowCase(name, (shift.member,), shift) for shift in shifts)
    ways = under_way(traffic, program)
    cases = [
        c
        for c in cases
        if _costs(c, features, usable, least_ns) and _holds(c, job, features, ways, paths, least_ns)
    ]
    cases = [c for c in cases if not losses.explains(_touched(c, traffic, job), c.shift.excess_ns)]
    cases = [replace(c, shared=_shared_path(c, job, charges)) for c in cases]
    cases = [_at_queue(c, traffic, job, charges) for c in cases]
    kept = _explain_away(cases, traffic, job, features, paths)
    found: list[tuple[Verdict, Claim]] = []
    suspects: set[str] = set()
    for case in kept:
        verdict = slow_verdict(case, traffic, job, features, charges)
        if verdict.machine in suspects:
            # Which end of the messages is slow was judged with them: its hosts are late for that.
            continue
        suspects |= {c.machine for c in verdict.candidates if c.probability >= _SUSPECT}
        if case.rivals and verdict.machine:
            verdict = undecided(verdict, case, traffic, job)
        found.append((verdict, Claim(case.shift.onset, case.shift.end, charged_ns(case, job, paths))))
    return found


def _slow_hosts(
    traffic: Traffic,
    program: Program,
    roles: list[Hashable],
    features: Features,
    usable: NDArray[np.bool_],
    least_ns: float,
) -> list[SlowCase]:
    """Machines whose hosts are late, and single NICs where too few machines of a role can be compared.

    A machine may hold workers of several replicas, each with a NIC of its own. Then there are few machines
    per stage of a pipeline, but as many NICs as replicas.
    """
    cases: list[SlowCase] = []
    columns = list(machine_columns(traffic, program.job).values())
    alike = same_role(machine_roles(traffic, program, roles))
    compared = {n for members in alike for machine in members for n in columns[machine]}
    replicas = [c for c in same_role(roles) if not compared.intersection(c.tolist())]
    for lost in (features.host, features.entry):
        by_machine = np.stack([lost[:, c].mean(axis=1) for c in columns], axis=1)
        shifts = find_shifts(by_machine, classes=alike, least_ns=least_ns, usable=usable)
        cases.extend(SlowCase("host", tuple(columns[shift.member]), shift) for shift in shifts)
        shifts = find_shifts(lost, classes=replicas, least_ns=least_ns, usable=usable)
        cases.extend(SlowCase("host", (shift.member,), shift) for shift in shifts if not shift.own_past)
    return cases


def _touched(case: SlowCase, traffic: Traffic, job: Job) -> set[int]:
    """The NICs of a case, and those at the other ends of its messages if it is about messages."""
    own = {job.members[n] for n in case.names}
    if case.feature == "host":
        return own
    return own.union(*({a, b} for a, b in traffic.edges if {a, b} & own))


def _shared_path(case: SlowCase, job: Job, charges: Table) -> tuple[Edge, ...]:
    """The slow edges without a common end that a case is about, if it is about several."""
    if case.feature not in ("egress", "ingress"):
        return ()
    excess = slow_edges(charges, job, (case.shift.onset, case.shift.end))
    return slow_with(job.members[case.names[0]], case.feature, excess)


def _at_queue(case: SlowCase, traffic: Traffic, job: Job, charges: Table) -> SlowCase:
    """The case with the queue that its packets were marked in, against the NIC in front of which that stood.

    Marked packets had left their sender, so that a slow receiver's case is never its sender's.
    """
    if case.feature == "host":
        return case
    inside = (case.shift.onset, case.shift.end)
    queue = find_queue(traffic, job, charges, job.members[case.names[0]], case.feature, inside)
    if queue is None or not queue.slow or queue.receiver is None:
        return replace(case, queue=queue)
    return replace(case, queue=queue, names=(job.members.index(queue.receiver),), shared=())


def _costs(case: SlowCase, features: Features, usable: NDArray[np.bool_], least_ns: float) -> bool:
    """Whether the job itself became slower with the shift, where a before and an after can be compared.

    By most of a host's lateness; messages under way overlap each other and the computing, so that any
    slowdown that counts will do.
    """
    shift = case.shift
    inside = np.zeros(len(usable), dtype=bool)
    inside[shift.onset : shift.end] = True
    before, after = features.duration_ns[usable & ~inside], features.duration_ns[usable & inside]
    if len(before) < 3 or len(after) < 3:
        return True
    share = _COSTS * shift.excess_ns
    return float(np.median(after) - np.median(before)) >= (share if case.feature == "host" else least_ns)


def _holds(
    case: SlowCase,
    job: Job,
    features: Features,
    ways: tuple[NDArray[np.float64], NDArray[np.float64]],
    paths: Table,
    least_ns: float,
) -> bool:
    """Whether a host's excess lies on the critical path, since what nobody waits for costs nothing, and is
    more than the time that its messages are longer under way, since that makes it late; whether a NIC whose
    messages are slow has messages under way for longer, since otherwise it only sends more at once; and
    whether a port is slow both ways, since otherwise it is one edge that is slow."""
    if case.feature == "host":
        if max(excess_of(way, case, features) for way in ways) >= case.shift.excess_ns:
            return False
        return path_excess(case, job, paths) >= _ON_PATH * case.shift.excess_ns
    if case.feature == "port":
        both = (excess_of(features.egress, case, features), excess_of(features.ingress, case, features))
        return min(both) >= _BOTH_WAYS * case.shift.excess_ns
    way = ways[0 if case.feature == "egress" else 1]
    return excess_of(way, case, features) >= least_ns


def _explain_away(
    cases: list[SlowCase], traffic: Traffic, job: Job, features: Features, paths: Table
) -> list[SlowCase]:
    """Keep the costliest case, and others only of unrelated machines and of comparable cost.

    A fault changes what its neighbours do. Peers of one role tell a second fault from that; where only
    the own past can be compared, everybody's differs once somebody is slow, and the costliest must do.
    """
    # A port that is slow both ways explains both of its edges, and so stands before either of the two.
    cases = sorted(cases, key=lambda c: (-c.shift.excess_ns, c.feature != "port"))
    kept: list[SlowCase] = []
    for case in cases:
        if not kept:
            kept.append(replace(case, rivals=_rivals(case, cases, traffic, job, paths)))
            continue
        comparable = one_way_ns(case) >= _SECOND_FAULT * one_way_ns(kept[0])
        if not comparable or case.shift.own_past:
            continue
        if not any(_related(case, k, traffic, job, features, paths) for k in kept):
            kept.append(case)
    return kept


def _rivals(
    case: SlowCase, cases: list[SlowCase], traffic: Traffic, job: Job, paths: Table
) -> tuple[int, ...]:
    """Members of other machines that changed nearly as much, where only the own past could be compared."""
    if not case.shift.own_past:
        return ()
    machine = machine_of(case, traffic, job)
    found = {
        other.names[0]
        for other in cases
        if other.feature == case.feature and other.shift.excess_ns >= _RIVAL * case.shift.excess_ns
    }
    if case.feature == "host":
        # Messages that are long under way make hosts late, hosts make no message slow.
        found |= {
            other.names[0]
            for other in cases
            if other.feature != "host" and other.shift.excess_ns >= _SECOND_FAULT * case.shift.excess_ns
        }
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


def _waits_for(case: SlowCase, wires: set[int], traffic: Traffic, job: Job, features: Features) -> bool:
    """Whether a late host may be late on account of NICs whose messages are slow.

    Late input makes no host late, by what charges measure; late acknowledgements do, those of whom it sends
    to, at the NIC that sends there. A machine that is as late at its other NICs is so by itself: what a slow
    ring does to these it does to all machines.
    """
    sends = [n for n in case.names if any((job.members[n], w) in traffic.edges for w in wires)]
    others = [n for n in case.names if n not in sends]
    if any(traffic.endpoints[job.members[n]].series is None for n in case.names):
        return True
    if case.shift.onset <= _NO_BEFORE:
        # Machines differ for good as well, and more than usual while messages are slow.
        return True
    if not sends or not others:
        return bool(sends)
    apart = excess_of(features.host, replace(case, names=tuple(others)), features)
    return apart < _SECOND_FAULT * case.shift.excess_ns


def _related(a: SlowCase, b: SlowCase, traffic: Traffic, job: Job, features: Features, paths: Table) -> bool:
    """Whether case ``a`` is of the same machine as ``b``, or follows from it as a neighbour's.

    Whose messages are slow is never accused beside a slow wire next to it, nor who sends to one. A neighbour
    of a slow host may be late for want of acknowledgements, which captures do not tell from its own lateness
    unless it rules the critical path; who sends to a slow receiver waits for them for certain.
    """
    if machine_of(a, traffic, job) == machine_of(b, traffic, job):
        return True
    if a.shared and {*a.shared} == {*b.shared}:
        return True
    ends = (job.members[a.names[0]], job.members[b.names[0]])
    if a.feature == "host" and b.feature != "host":
        held_up = b.queue.senders if b.queue is not None else frozenset()
        return _waits_for(a, {ends[1], *held_up}, traffic, job, features)
    neighbours = ends in traffic.edges or ends[::-1] in traffic.edges
    if a.feature == b.feature == "host":
        if ends in traffic.edges and host_cause_of(b, features)[0] == "receiver_slow":
            return True
        meanwhile = replace(a, shift=replace(a.shift, onset=b.shift.onset, end=b.shift.end))
        return neighbours and path_excess(meanwhile, job, paths) < _RULES_PATH * path_excess(b, job, paths)
    return neighbours
