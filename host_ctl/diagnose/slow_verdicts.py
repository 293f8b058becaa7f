# SPDX-License-Identifier: Apache-2.0
"""Puts a case against somebody slow into a verdict: the cause, which end it is, the cost, the evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from host_ctl.attribute.features import Features
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import SlowCase, excess_of, machine_columns
from host_ctl.diagnose.decide import Shift
from host_ctl.diagnose.ends import EdgeEnds, Side, congested_share, slow_end
from host_ctl.diagnose.host_cause import host_cause
from host_ctl.diagnose.queues import Queue
from host_ctl.diagnose.shared_path import slow_both_ways
from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Scope, Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

# Messages into one NIC are as slow behind a slow port or cable as in front of a reader that is slow to take
# them; only where its host falls behind as well is it the reader for certain.
_CAUSE_OF_SIDE: dict[Side, Cause] = {
    "sender": "nic_slow",
    "receiver": "nic_slow",
    "either": "link_slow",
}
_QUEUED = 0.9
_UNDECIDED = 0.5
_BY_HOST = 0.25


def slow_verdict(
    case: SlowCase, traffic: Traffic, job: Job, features: Features, charges: Table, replayed: Replay
) -> Verdict:
    """The verdict of one case."""
    if case.feature == "host" or _busy_cpu(case, job, features, replayed):
        return _host_verdict(case, traffic, job, features, replayed)
    return _transfer_verdict(case, traffic, job, features, charges)


def _busy_cpu(case: SlowCase, job: Job, features: Features, replayed: Replay) -> bool:
    """Whether messages of a NIC are slow because its host stalls with them under way.

    Then its sends are late by as much as its messages are slow, which a slow NIC makes nobody's.
    """
    if case.feature not in ("egress", "port") or case.queue is not None or case.shared:
        return False
    if excess_of(features.host, case, features) < case.shift.excess_ns:
        return False
    member = job.members[case.names[0]]
    # What it waits for unseen makes it late too, and then the job gains nothing by its being on time.
    cuts = replayed.hosts([member])
    gained = replayed.saved_ns(cuts)[replayed.clocks_of(cuts)].sum(axis=0)
    if not len(gained) or np.median(gained[case.shift.onset : case.shift.end]) < _BY_HOST * case.worth_ns:
        return False
    cause, _, _ = host_cause(replayed, [member], (case.shift.onset, case.shift.end), case.shift.excess_ns)
    return cause in ("cpu_contention", "compute_slow")


def _host_verdict(
    case: SlowCase, traffic: Traffic, job: Job, features: Features, replayed: Replay
) -> Verdict:
    shift, endpoint = case.shift, traffic.endpoints[job.members[case.names[0]]]
    members = [job.members[n] for n in case.names]
    cause, reason, figures = host_cause(replayed, members, (shift.onset, shift.end), shift.excess_ns)
    evidence = (
        Evidence("gained_without_it", shift.value_ns / 1e3, shift.usual_ns / 1e3, "us"),
        Evidence("host_time", excess_of(features.host, case, features) / 1e3, 0.0, "us"),
        *figures,
        Evidence(
            "worst_of_all", shift.share_worst, 1.0 / max(1, len(machine_columns(traffic, job))), "share"
        ),
    )
    scope: Scope = "nic" if cause == "receiver_slow" else "machine"
    return _finish(case, job, cause, scope, endpoint.machine, None, (), evidence, reason)


def _transfer_verdict(
    case: SlowCase, traffic: Traffic, job: Job, features: Features, charges: Table
) -> Verdict:
    inside = (case.shift.onset, case.shift.end)
    member = job.members[case.names[0]]
    if case.feature == "receiver":
        return _receiver_verdict(case, traffic, job, features)
    if case.queue is not None and case.queue.slow and case.queue.receiver is not None:
        return _queue_verdict(case, case.queue.receiver, case.queue, traffic, job, features)
    if case.queue is not None:
        return _congestion_verdict(case, case.queue, traffic, job, features, charges)
    if case.shared:
        return _shared_path_verdict(case, traffic, job, features)
    ends = (
        _slow_port(traffic, job, charges, member, inside)
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
    return _finish(case, job, cause, scope,
        blamed.machine if blamed else None, blamed.nic if blamed else None,
        candidates, evidence, _reason(ends, traffic),
    )  # fmt: skip


def _slow_port(traffic: Traffic, job: Job, charges: Table, member: int, inside: tuple[int, int]) -> EdgeEnds:
    """A NIC that is slow both ways; with one peer only both ports carry the same, and the ends must tell."""
    others = {a if b == member else b for a, b in traffic.edges if member in (a, b)}
    if len(others) > 1:
        return EdgeEnds("sender", member, ((member, 0.95),), ())
    both = [slow_end(traffic, job, charges, member, way, inside) for way in ("egress", "ingress")]
    if both[0].side != "either" and both[1].side != "either" and both[0].blamed == both[1].blamed:
        return replace(both[0], side="sender")
    ends = tuple((end, 1.0 / (1 + len(others))) for end in (member, *sorted(others)))
    return EdgeEnds("either", member, ends, both[0].evidence)


def _receiver_verdict(case: SlowCase, traffic: Traffic, job: Job, features: Features) -> Verdict:
    """A NIC takes in slowly what has come: messages queue in front of it, and its host gets them late."""
    nic = traffic.endpoints[job.members[case.names[0]]]
    evidence = (
        Evidence("gained_without_it", case.shift.value_ns / 1e3, case.shift.usual_ns / 1e3, "us"),
        Evidence("slow_transfer_in", excess_of(features.ingress, case, features) / 1e3, 0.0, "us"),
        Evidence("host_time", excess_of(features.host, case, features) / 1e3, 0.0, "us"),
    )
    reason = "messages to it are long under way, and it is late to grant and to send what it has got"
    return _finish(case, job, "receiver_slow", "nic", nic.machine, nic.nic, (), evidence, reason)


def _queue_verdict(
    case: SlowCase, receiver: int, queue: Queue, traffic: Traffic, job: Job, features: Features
) -> Verdict:
    """Everything that is sent to one NIC queues in front of it: its port, its link or its memory is slow."""
    nic = traffic.endpoints[receiver]
    evidence = (
        Evidence("slow_transfer", case.shift.value_ns / 1e3, case.shift.usual_ns / 1e3, "us"),
        *queue.evidence,
    )
    reason = (
        "messages to it queue in front of its port, and its own are long under way: it is slow both ways"
        if queue.both_ways
        else "messages to it queue in front of it in every iteration, and those to others do not"
    )
    candidates = (Candidate(nic.machine, nic.nic, _QUEUED),)
    return _finish(case, job, "nic_slow", "nic", nic.machine, nic.nic, candidates, evidence, reason)


def _congestion_verdict(
    case: SlowCase, queue: Queue, traffic: Traffic, job: Job, features: Features, charges: Table
) -> Verdict:
    """Slow because the network signalled congestion: the path is to blame, and no machine.

    Where nothing tells whether the queue stood in front of a NIC or on the way to it, it is a candidate.
    """
    member = job.members[case.names[0]]
    feature = "egress" if case.feature == "path" else case.feature
    share = congested_share(charges, member, feature, (case.shift.onset, case.shift.end))
    way = "from" if feature == "egress" else "to"
    evidence = (
        Evidence("slow_transfer", case.shift.value_ns / 1e3, case.shift.usual_ns / 1e3, "us"),
        Evidence("congestion_signalled", share, 0.0, "share"),
        *queue.evidence,
    )
    reason = f"messages {way} {traffic.endpoints[member].name} are held up where switches mark packets"
    candidates: tuple[Candidate, ...] = ()
    if queue.slow is None and queue.receiver is not None:
        nic = traffic.endpoints[queue.receiver]
        candidates = (Candidate(nic.machine, nic.nic, _UNDECIDED),)
        reason += f", on the way to {nic.name} or at its port, which nothing tells apart"
    return _finish(case, job, "congestion", "path", None, None, candidates, evidence, reason)


def _shared_path_verdict(case: SlowCase, traffic: Traffic, job: Job, features: Features) -> Verdict:
    """Several edges without a common end are slow at once: they share a path, and no machine is to blame."""
    names = ", ".join(f"{traffic.endpoints[a].name} to {traffic.endpoints[b].name}" for a, b in case.shared)
    evidence = (
        Evidence("slow_transfer", case.shift.value_ns / 1e3, case.shift.usual_ns / 1e3, "us"),
        Evidence("edges_slow_together", float(len(case.shared)), 1.0, "edges"),
    )
    hubs = slow_both_ways(case.shared)
    if hubs:
        ports = ", ".join(traffic.endpoints[n].name for n in hubs)
        reason = f"messages to {ports} and from there are long under way, as through a slow switch"
        return _finish(case, job, "switch_port", "path", None, None, (), evidence, reason)
    reason = f"messages {names} are long under way at the same time, and only the network joins them"
    return _finish(case, job, "path_collision", "path", None, None, (), evidence, reason)


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
    cause: Cause,
    scope: Scope,
    machine: str | None,
    nic: str | None,
    candidates: tuple[Candidate, ...],
    evidence: tuple[Evidence, ...],
    reason: str,
) -> Verdict:
    """The verdict without its cost, which depends on the other faults of the job as well."""
    shift = case.shift
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
        slowdown=None,
        lost_gpu_seconds=0.0,
        confidence=confidence,
        evidence=evidence,
        summary=f"{where} slows {job.id} ({cause.replace('_', ' ')}): {reason}",
    )


def _confidence(shift: Shift) -> float:
    """From how often the accused was the worst and how many iterations say so (rule of succession)."""
    runs = shift.end - shift.onset
    return min(0.99, (shift.share_worst * runs + 1.0) / (runs + 2.0))
