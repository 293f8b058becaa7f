# SPDX-License-Identifier: Apache-2.0
"""Fail-slow: without whom would the iterations be shorter, more than without others and more than before?

Every suspect is judged by what the job would gain without it. The one that is worth most is taken first, and
the others by what they are worth beyond it: so a fault explains what follows from it, and a second fault
shows although the first hides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features, under_way
from host_ctl.attribute.program import Program
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import SlowCase, excess_of, machine_columns, rise_inside, usable_iterations
from host_ctl.diagnose.congested import congested_case
from host_ctl.diagnose.costs import Claim
from host_ctl.diagnose.decide import FROM_START, find_shifts
from host_ctl.diagnose.late_on_path import late_on_path
from host_ctl.diagnose.losses import LossFindings
from host_ctl.diagnose.queues import find_queue
from host_ctl.diagnose.shared_path import Edge, slow_edges, slow_with
from host_ctl.diagnose.slow_verdicts import slow_verdict
from host_ctl.diagnose.suspects import Suspect, find_suspects, gains
from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

MIN_EFFECT = 0.02
_TRANSFERS_FROM_START = 7.5
_BOTH_WAYS = 0.25
_LATE_TOO = 0.25
_MORE_THAN_ONE = 1.25
_COMPARABLE = 0.5
_SUSPECT = 0.5
_MOST_FAULTS = 4
_SECOND_FAULT = 0.5
_MOSTLY = 0.5
_IN_TREES = 2.5  # times the least effect
_MOST_OFTEN = 0.8
_NEARLY_ALWAYS = 0.9
_SOME_PAST = 5  # iterations
_OUTDONE, _UNNUMBERED = 2.0, 1.0
_DOUBTFUL = 0.5
_WIDE = ("path", "receiver")

Ways = tuple[NDArray[np.float64], NDArray[np.float64]]


def find_slow(
    traffic: Traffic,
    program: Program,
    features: Features,
    charges: Table,
    replayed: Replay,
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
    found: list[tuple[Verdict, Claim]] = []
    doubted: set[str] = set()
    cases = _cases(traffic, program, features, charges, replayed, losses, usable, MIN_EFFECT * base)
    if not cases and not losses.ends:
        cases = late_on_path(traffic, program, features, replayed, paths, usable, MIN_EFFECT * base)
    if not cases and not losses.ends:
        network = congested_case(job, features, charges, MIN_EFFECT)
        cases = [network] if network is not None else []
    for case in cases:
        verdict = slow_verdict(case, traffic, job, features, charges, replayed)
        if verdict.machine in doubted:
            # Which end of the messages is slow was judged with them: its host is late for that.
            continue
        doubted |= {c.machine for c in verdict.candidates if c.probability >= _SUSPECT}
        found.append((verdict, Claim(case.shift.onset, case.shift.end, case.shift.excess_ns)))
    return found


def _cases(
    traffic: Traffic,
    program: Program,
    features: Features,
    charges: Table,
    replayed: Replay,
    losses: LossFindings,
    usable: NDArray[np.bool_],
    least_ns: float,
) -> list[SlowCase]:
    """The faults one after the other, each the costliest beside those before it.

    Where only the own past can be compared, and packets are lost, everybody's differs from it.
    """
    job = program.job
    machines = list(machine_columns(traffic, job).values())
    suspects = find_suspects(replayed, job, machines, least_ns)
    ways = under_way(traffic, program)
    irregular = any(not t.regular for t in job.timelines)
    kept: list[SlowCase] = []
    without: list[Table] = [replayed.repairs()] if losses.ends else []
    while suspects and len(kept) < _MOST_FAULTS:
        gained = gains(replayed, suspects, without)
        cases = [
            (c, s)
            for c, s in _shifted(
                suspects, gained, (len(machines), len(job.members)), features, usable, least_ns
            )
            if _holds(c, features, ways, least_ns)
            and _clear(c, s, replayed, least_ns)
            and not losses.explains(_touched(c, traffic, job), c.shift.excess_ns, c.shift.onset)
            and (losses.since is None or _compared(s, replayed))
            and not (kept and not _is_second(c, s, kept[0], replayed))
            and not (kept and _waits_for(c, kept, traffic, job))
        ]
        if not cases:
            break
        case, suspect = _costliest(cases, replayed)
        unseen = _OUTDONE if not _compared(suspect, replayed) else _UNNUMBERED if irregular else np.inf
        if not kept and _outdone(case, suspects, gained, usable, unseen):
            break
        without.append(suspect.cuts)
        case = replace(case, shared=_shared_path(case, suspect, job, charges))
        kept.append(_at_queue(case, traffic, job, charges))
        suspects = [s for s in suspects if s is not suspect]
    return [c for c in kept if not _waits_for(c, [k for k in kept if k.worth_ns > c.worth_ns], traffic, job)]


def _outdone(
    case: SlowCase,
    suspects: Sequence[Suspect],
    gained: NDArray[np.float64],
    usable: NDArray[np.bool_],
    times: float,
) -> bool:
    """Whether slow messages are worth so many times more than the accused host, whoever is to blame for them.

    Where ranks play different parts, or send other messages every time, not all that a host waits for is
    known, and one that waits for slow messages unseen is late.
    """
    if case.feature != "host":
        return False
    inside = np.zeros(len(usable), dtype=bool)
    inside[case.shift.onset : case.shift.end] = True
    within, outside = gained[usable & inside], gained[usable & ~inside]
    rise = np.median(within, axis=0) - (np.median(outside, axis=0) if len(outside) else 0.0)
    own = set(case.names)
    others = [rise[i] for i, s in enumerate(suspects) if s.feature != "host" and not own & set(s.names)]
    return bool(max(others, default=0.0) > times * case.worth_ns)


def _shifted(
    suspects: Sequence[Suspect],
    gained: NDArray[np.float64],
    counts: tuple[int, int],
    features: Features,
    usable: NDArray[np.bool_],
    least_ns: float,
) -> list[tuple[SlowCase, Suspect]]:
    """Suspects without whom iterations would lastingly be shorter, beyond what others are worth.

    ``counts`` are those of the job's machines and NICs.
    """
    found = []
    for kinds, from_start in (
        (("host",), FROM_START),
        (("port",), _TRANSFERS_FROM_START),
        (("egress", "path"), _TRANSFERS_FROM_START),
        (("ingress",), _TRANSFERS_FROM_START),
        (("receiver",), _TRANSFERS_FROM_START),
    ):
        mine = [i for i, s in enumerate(suspects) if s.feature in kinds]
        # Whoever is no suspect is worth nothing, and stands among those that are.
        peers = counts[kinds != ("host",)]
        table = np.zeros((len(gained), max(len(mine), peers)))
        table[:, : len(mine)] = gained[:, mine]
        shifts = find_shifts(
            table,
            least_ns=least_ns,
            usable=usable,
            from_start=from_start,
            together=kinds != ("host",),
        )
        for shift in shifts:
            suspect = suspects[mine[shift.member]]
            if not _more_than_parts(suspect, suspects, gained[shift.onset : shift.end]):
                continue
            rise = rise_inside(features, usable, (shift.onset, shift.end))
            if rise is not None and rise < least_ns:
                continue
            worth = shift.excess_ns if rise is None else min(shift.excess_ns, rise)
            case = SlowCase(suspect.feature, suspect.names, replace(shift, excess_ns=worth))
            found.append((replace(case, worth_ns=shift.excess_ns), suspect))
    return found


def _more_than_parts(suspect: Suspect, suspects: Sequence[Suspect], gained: NDArray[np.float64]) -> bool:
    """Whether a receiver is worth more than its host and the messages to it are worth apart.

    What holds up both at once is worth more than that; two faults that meet at a machine are not.
    """
    if suspect.feature != "receiver":
        return True
    parts = [
        gained[:, i]
        for i, s in enumerate(suspects)
        if (s.feature == "ingress" and s.names == suspect.names)
        or (s.feature == "host" and set(suspect.names) <= set(s.names))
    ]
    own = float(np.median(gained[:, next(i for i, s in enumerate(suspects) if s is suspect)]))
    machine = {
        n for s in suspects if s.feature == "host" and set(suspect.names) <= set(s.names) for n in s.names
    }
    beside = [
        float(np.median(gained[:, i]))
        for i, s in enumerate(suspects)
        if s.feature == "receiver" and s is not suspect and set(s.names) <= machine
    ]
    # What all NICs of a machine are slow to take in, the machine is slow with.
    alone = max(beside, default=0.0) < _COMPARABLE * own
    return alone and own >= _MORE_THAN_ONE * sum(float(np.median(part)) for part in parts)


def _waits_for(case: SlowCase, kept: Sequence[SlowCase], traffic: Traffic, job: Job) -> bool:
    """Whether a late host sends slow messages, or to a slow NIC, or to a late host that grants no credits.

    What it sent before holds it up, and late acknowledgements do, neither of which shows.
    """
    if case.feature != "host":
        return False
    wires = [k for k in kept if k.feature != "host"]
    slow = {job.members[n] for k in wires for n in k.names}
    late = {job.members[n] for k in kept if k is not case for n in k.names} - slow
    granted = {link.edge for link in traffic.links if link.credits}
    senders = {src for k in wires for src, _ in k.shared} | slow
    for number, (src, dst) in enumerate(traffic.edges):
        if dst in slow or (dst in late and number not in granted):
            senders.add(src)
    return not senders.isdisjoint(job.members[n] for n in case.names)


def _slowness(suspect: Suspect) -> float:
    """How much slowness of messages a suspect accounts for, however much of it the job waits for (ns)."""
    return max(1.0, float(suspect.cuts["transfer"].sum()))


def _is_second(case: SlowCase, suspect: Suspect, first: SlowCase, replayed: Replay) -> bool:
    """Whether a case may be another fault than the first: comparable in cost, and of members with peers.

    Where only the own past can be compared everybody's differs once somebody is slow.
    """
    return _compared(suspect, replayed) and case.worth_ns >= _SECOND_FAULT * first.worth_ns


def _compared(suspect: Suspect, replayed: Replay) -> bool:
    """Whether most of what is cut for a suspect was held against members that play the same part."""
    return _share(suspect, replayed.compared) >= _MOSTLY


def _share(suspect: Suspect, chosen: NDArray[np.bool_]) -> float:
    """The share of what is cut for a suspect that is cut from chosen messages."""
    cut = np.sum([suspect.cuts[name] for name in suspect.cuts.dtype.names or ()], axis=0)
    return float(cut[chosen].sum() / max(1, cut.sum()))


def _clear(case: SlowCase, suspect: Suspect, replayed: Replay, least_ns: float) -> bool:
    """Whether slow messages are clearly slow where many things make them so.

    In a tree messages share ports with each other or do not, as ranks come early or late, and senders that
    are told of a queue stay slow for a while. That comes and goes, and is worst now here, now there. So only
    what began after a while, stays, and is worse than before and than anywhere else is something else.
    """
    shift = case.shift
    if shift.past and max(shift.share_worst, shift.over_past) < _MOST_OFTEN:
        return False
    if case.feature == "host" or _share(suspect, replayed.branching) < _MOSTLY:
        return True
    stands_out = shift.over_past >= _NEARLY_ALWAYS and shift.share_worst >= _MOST_OFTEN
    lasts = shift.lasts and shift.past >= _SOME_PAST
    return stands_out and lasts and case.worth_ns >= _IN_TREES * least_ns


def _costliest(cases: Sequence[tuple[SlowCase, Suspect]], replayed: Replay) -> tuple[SlowCase, Suspect]:
    """The case that is worth most; the narrower one where a wider one is worth little more.

    What is cut for a receiver contains what is cut for its host and for the messages to it, what is cut for a
    path that for several NICs. Of slow messages a suspect that leaves some unexplained counts the less.
    """

    covered = {id(s): _slowness(s) for c, s in cases if c.feature != "host"}
    most = max(covered.values(), default=1.0)

    def worth(one: tuple[SlowCase, Suspect]) -> tuple[float, bool]:
        case, suspect = one
        if case.feature == "host":
            return case.worth_ns, False
        # A late host changes which messages share a port; slow messages make no host late.
        certain = _DOUBTFUL if _share(suspect, replayed.branching) >= _MOSTLY else 1.0
        # A port that is slow both ways stands before either of its ways.
        return case.worth_ns * certain * covered[id(suspect)] / most, case.feature == "port"

    best = [
        max((c for c in cases if (c[0].feature in _WIDE) is wide), key=worth, default=None)
        for wide in (False, True)
    ]
    narrow, wider = best
    if narrow is None or wider is None:
        return next(c for c in best if c is not None)
    return wider if worth(wider)[0] >= _MORE_THAN_ONE * worth(narrow)[0] else narrow


def _touched(case: SlowCase, traffic: Traffic, job: Job) -> set[int]:
    """The NICs of a case, and those at the other ends of its messages if it is about messages."""
    own = {job.members[n] for n in case.names}
    if case.feature == "host":
        return own
    return own.union(*({a, b} for a, b in traffic.edges if {a, b} & own))


def _shared_path(case: SlowCase, suspect: Suspect, job: Job, charges: Table) -> tuple[Edge, ...]:
    """The slow edges without a common end that a case is about, if it is about several."""
    if case.feature == "path":
        return suspect.edges
    if case.feature not in ("egress", "ingress"):
        return ()
    excess = slow_edges(charges, job, (case.shift.onset, case.shift.end))
    return slow_with(job.members[case.names[0]], case.feature, excess)


def _at_queue(case: SlowCase, traffic: Traffic, job: Job, charges: Table) -> SlowCase:
    """The case with the queue that its packets were marked in, against the NIC in front of which that stood.

    Marked packets had left their sender, so that a slow receiver's case is never its sender's.
    """
    if case.feature in ("host", "receiver"):
        return case
    inside = (case.shift.onset, case.shift.end)
    feature = "egress" if case.feature == "path" else case.feature
    queue = find_queue(traffic, job, charges, job.members[case.names[0]], feature, inside)
    if queue is None or not queue.slow or queue.receiver is None:
        return replace(case, queue=queue)
    receiver = job.members.index(queue.receiver)
    both_ways = queue.both_ways or (case.feature == "port" and case.names == (receiver,))
    return replace(case, queue=replace(queue, both_ways=both_ways), names=(receiver,), shared=())


def _holds(case: SlowCase, features: Features, ways: Ways, least_ns: float) -> bool:
    """Whether a NIC whose messages are slow has messages under way for longer, since otherwise it only sends
    more at once; whether a port is slow both ways, since otherwise it is one edge that is slow; and whether
    messages to a slow receiver are slow and its host is late, since otherwise it is only one of them."""
    if case.feature == "port":
        both = (excess_of(features.egress, case, features), excess_of(features.ingress, case, features))
        return min(both) >= _BOTH_WAYS * case.shift.excess_ns
    if case.feature == "receiver":
        both = (excess_of(features.host, case, features), excess_of(features.ingress, case, features))
        return min(both) >= _LATE_TOO * case.shift.excess_ns
    if case.feature in ("egress", "ingress"):
        return excess_of(ways[case.feature == "ingress"], case, features) >= least_ns
    return True
