# SPDX-License-Identifier: Apache-2.0
"""Fail-stop: who had all that it needed and did nothing, or whose packets nobody answers any more.

Silence alone accuses nobody, for a finished run is silent too. It takes a witness that the captures went on
running, a silence longer than any pause before, and an operation that is visibly unfinished: lanes that
have not sent all of an iteration's messages, or credits granted after computing that nobody uses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import MessageFlag
from host_ctl.attribute.needs import Needs
from host_ctl.attribute.program import Program
from host_ctl.diagnose.locate import DEAD_EDGE_PRIOR, Pair, locate_losses
from host_ctl.diagnose.standstill import (
    Progress,
    Standstill,
    entered_next,
    find_standstill,
    lane_progress,
    next_progress,
    unlike_before,
)
from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Scope, Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.repairs import LossPlace
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start

_PAUSES = 3.0
_SURE = 0.8
_HEARD = 0.95
_KNOWN = 0.95
_SILENT = 0.85
_OVERDUE = 0.02


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a job: a verdict when it stopped, a remark when that cannot be told."""

    verdict: Verdict | None = None
    unsure: str | None = None


def find_stop(traffic: Traffic, program: Program, needs: Needs, repairs: Table, witness_ns: int) -> Stop:
    """Judge the end of a job; ``witness_ns`` is until when the captures are known to have run (common ns)."""
    job = program.job
    times = _activity(traffic, program)
    last = int(times[-1])
    silence = witness_ns - last
    # The stop itself may lie in the last gap but one, so pauses count up to the last full iteration.
    pause = int(np.diff(times).max(initial=0))
    stands = silence > max(_PAUSES * pause, job.iteration_ns)
    pending = _unanswered(traffic, program, repairs, last, witness_ns)
    progress, iteration = lane_progress(traffic, program)
    if not progress:
        # Repeats that nobody answers are unfinished work, whatever else seems complete.
        if not entered_next(traffic, program) and not (stands and len(pending)):
            return Stop()
        progress, iteration = next_progress(traffic, program)
    if not stands:
        if _dried_up(traffic, program, max(witness_ns, last)):
            return Stop(
                unsure=f"{job.id} falls silent inside an operator, but the captures end too soon to tell"
            )
        return Stop()
    state = find_standstill(traffic, program, needs, progress)
    if len(pending):
        return Stop(_unanswered_verdict(traffic, program, state, pending, iteration, last, silence))
    if not state.idle and all(p.sent >= p.volume for p in state.progress):
        return Stop(
            unsure=f"{job.id} has stood still for {silence / 1e9:.1f} s, and nothing tells who stopped"
        )
    return Stop(_standing_verdict(traffic, program, state, iteration, last, silence))


def _activity(traffic: Traffic, program: Program) -> NDArray[np.int64]:
    """Times of the job's data and credits, repeats left out, in order (common ns)."""
    t = traffic.transfers[np.concatenate([lane.rows for lane in program.lanes])]
    whole = t[(t["flags"] & MessageFlag.REPEATED) == 0]
    granted = traffic.credits[np.isin(traffic.credits["link"], program.job.links)]
    times = np.concatenate([send_start(t), arrival(whole), granted["tx"], granted["rx"]])
    return np.sort(times[times != MISSING])


def _dried_up(traffic: Traffic, program: Program, witness_ns: int) -> bool:
    """Whether some member had been silent for unusually long, inside an operator, when the capture ended.

    Unusual is what a healthy member shows for no more than a small share of its time inside operators.
    """
    allowed = _OVERDUE / len(program.job.members)
    starts = np.sort([o.start_ns for t in program.job.timelines for o in t.operators])
    for member in program.job.members:
        lanes = [lane for lane in program.lanes if member in traffic.edges[lane.edge] and lane.volume]
        if not lanes:
            continue
        t = traffic.transfers[np.concatenate([lane.rows for lane in lanes])]
        times = np.sort(np.concatenate([send_start(t), arrival(t)]))
        begun = np.searchsorted(starts, times, side="right")
        gaps = np.diff(times)[begun[1:] == begun[:-1]]
        silence = witness_ns - int(times[-1])
        beyond = np.maximum(gaps - silence, 0).sum() / max(1, int(gaps.sum()))
        if silence > 0 and beyond < allowed:
            return True
    return False


def _unanswered(traffic: Traffic, program: Program, repairs: Table, last: int, witness_ns: int) -> Table:
    """Repeats that went on after the job's last progress and were never answered.

    A sender that gets no answer repeats the same again after a while. Who repeats once and then no more has
    got its answer, or the captures end before it would repeat again.
    """
    runs = repairs[np.isin(repairs["link"], program.job.links) & (repairs["start"] > last)]
    key = np.stack([runs["link"], runs["reverse"]])
    _, flow = np.unique(key, axis=1, return_inverse=True)
    kept = np.zeros(len(runs), dtype=bool)
    for one in range(int(flow.max(initial=-1)) + 1):
        mine = flow == one
        again = len(np.unique(runs["position"][mine])) < int(mine.sum())
        waited = int(runs["start"][mine].min()) - last
        kept[mine] = again or witness_ns - int(runs["end"][mine].max()) < waited
    return runs[kept]


def _unanswered_verdict(
    traffic: Traffic,
    program: Program,
    state: Standstill,
    pending: Table,
    iteration: int,
    last: int,
    silence: int,
) -> Verdict:
    """Somebody repeats and gets no answer: a dead process if the packets arrive, else a dead link."""
    lost: dict[Pair, set[int]] = {}
    heard: Counter[int] = Counter()
    for run in pending:
        link = traffic.links[int(run["link"])]
        pair = (link.dst, link.src) if run["reverse"] else (link.src, link.dst)
        lost.setdefault(pair, set()).add(int(run["row"]))
        heard[pair[1]] += run["place"] == LossPlace.NOT_LOST
    began = _outage_start(traffic, pending)
    counts = {pair: len(rows) for pair, rows in lost.items()}
    attempts = _attempts(traffic, program, began, counts)
    where = locate_losses(attempts, counts, {}, DEAD_EDGE_PRIOR)
    nic, probability = where.nic
    deaf = [n for n, runs in heard.items() if runs > 0]
    crashed = len({traffic.endpoints[n].machine for n in deaf}) == 1
    if crashed:
        # The packets arrive and nobody answers: that is the receiver, whatever else may be silent.
        nic, probability = deaf[0], _HEARD
    if not crashed and probability < _SURE:
        nic, probability = _silent_end(state, {pair[1] for pair in lost}, (nic, probability))
    endpoint = traffic.endpoints[nic]
    sure = probability >= _SURE
    cause: Cause = "crash" if crashed else "link_down"
    ends = tuple(
        Candidate(traffic.endpoints[n].machine, traffic.endpoints[n].nic, round(p, 4))
        for n, p in ([(nic, probability)] if sure else where.ends)
    )
    total = int(pending["packets"].sum())
    what = "gets packets and answers none" if crashed else "is not reached any more"
    whole_machine = crashed and len(deaf) > 1
    own = endpoint.machine if whole_machine else endpoint.name
    name = own if sure else " or ".join(dict.fromkeys(c.machine for c in ends))
    scope: Scope = "machine" if crashed else "nic" if sure else "link"
    return _stop_verdict(
        program, cause, scope,
        (endpoint.machine, None if whole_machine else endpoint.nic) if sure else None,
        ends, iteration, last, silence,
        probability if sure else 0.5,
        (Evidence("unanswered_repeats", float(total), 0.0, "packets"),),
        f"{name} {what} ({cause.replace('_', ' ')}): {total} repeats unanswered",
    )  # fmt: skip


def _silent_end(state: Standstill, receivers: set[int], otherwise: tuple[int, float]) -> tuple[int, float]:
    """The one unreached receiver that also left undone what it could have sent.

    A receiver behind a dead path still passes on what it has; one whose own NIC is dead does not.
    """
    silent = [n for n in receivers if n in state.idle]
    return (silent[0], _SILENT) if len(silent) == 1 else otherwise


def _outage_start(traffic: Traffic, pending: Table) -> int:
    """When the first message was sent that never arrived (or whose repeats nobody answered)."""
    rows = traffic.transfers[np.unique(pending["row"])]
    start = send_start(rows)
    never = rows["rx_start"] == MISSING
    return int(start[never].min() if never.any() else start.min())


def _attempts(traffic: Traffic, program: Program, since: int, lost: dict[Pair, int]) -> dict[Pair, int]:
    """What was sent per directed pair since the outage began: what arrived, and the lost.

    A message that arrived and was not repeated was also acknowledged, so that it counts both ways.
    """
    sent: Counter[Pair] = Counter(lost)
    for number in program.job.links:
        link = traffic.links[number]
        part = traffic.transfers[traffic.transfers["link"] == number]
        granted = traffic.credits[traffic.credits["link"] == number]
        fresh = (part["tx_start"] > since) & (part["rx_end"] != MISSING)
        whole = int((fresh & ((part["flags"] & MessageFlag.REPEATED) == 0)).sum())
        grants = int(((granted["tx"] > since) & (granted["rx"] != MISSING)).sum())
        sent[link.src, link.dst] += whole + grants
        sent[link.dst, link.src] += whole + grants
    return dict(sent)


def _standing_verdict(
    traffic: Traffic, program: Program, state: Standstill, iteration: int, last: int, silence: int
) -> Verdict:
    """Nobody repeats: the member that lacks nothing and does not act has stopped (the first, if several)."""
    suspects = _suspects(traffic, state)
    odd = unlike_before(traffic, program, state.progress)
    owners = {traffic.endpoints[member].machine for member in odd}
    if len(owners) == 1:
        others = _waiting(traffic, state, owners)
        return _mismatch_verdict(
            program, state, owners.pop(), sum(odd.values()), others, iteration, last, silence
        )
    machine, probability = next(iter(suspects.items()))
    sure = probability >= _SURE
    ends = tuple(Candidate(m, None, round(p, 4)) for m, p in suspects.items())
    waiting = _waiting(traffic, state, set(suspects))
    reason = (
        f"{machine} has stopped (hang): it has input and credit and sends nothing; {waiting} others wait"
        if sure
        else f"{' or '.join(suspects)} has stopped (hang), and nothing decides which; {waiting} others wait"
    )
    return _stop_verdict(
        program, "hang", "machine" if sure else "none", (machine, None) if sure else None, ends,
        iteration, last, silence,
        probability,
        (
            Evidence("messages_sent", float(_least(state)), float(_usual(state.progress)), "messages"),
            Evidence("members_waiting", float(len(state.waits)), None, "members"),
        ),
        reason,
    )  # fmt: skip


def _mismatch_verdict(
    program: Program,
    state: Standstill,
    machine: str,
    odd: int,
    others: int,
    iteration: int,
    last: int,
    silence: int,
) -> Verdict:
    """One member runs another collective than the rest, who cannot go on with what they get from it."""
    return _stop_verdict(
        program, "op_mismatch", "machine", (machine, None), (Candidate(machine, None, _KNOWN),),
        iteration, last, silence,
        _KNOWN,
        (
            Evidence("messages_of_odd_size", float(odd), 0.0, "messages"),
            Evidence("members_waiting", float(len(state.waits)), None, "members"),
        ),
        f"{machine} has begun another collective than the others (op mismatch): {odd} messages have sizes "
        f"that none had before; {others} others wait",
    )  # fmt: skip


def _waiting(traffic: Traffic, state: Standstill, accused: set[str]) -> int:
    """How many other machines wait: a machine of several NICs waits once."""
    return len({traffic.endpoints[m].machine for m in state.waits} - accused)


def _suspects(traffic: Traffic, state: Standstill) -> dict[str, float]:
    """Machines that may have stopped, the likeliest first: who was ready first has been idle longest.

    Members that may run a little ahead look idle too, but only since the first one stopped.
    """
    ready: dict[str, int] = {}
    for member, since in state.idle.items():
        machine = traffic.endpoints[member].machine
        ready[machine] = min(since, ready.get(machine, since))
    if not ready:
        behind = {traffic.endpoints[p.src].machine for p in state.progress if p.sent < p.volume}
        return dict.fromkeys(sorted(behind), 1.0 / len(behind))
    order = sorted(ready, key=lambda m: ready[m])
    if len(order) == 1:
        return {order[0]: 0.95}
    ahead = ready[order[1]] - ready[order[0]]
    fed = any(
        p.sent < p.volume and traffic.endpoints[p.dst].machine == order[0]
        for p in state.progress
        if p.src in state.idle and traffic.endpoints[p.src].machine != order[0]
    )
    # Who stands still before a member that also stands still may have made it do so, by what it sent.
    first = 0.9 if ahead > state.usual_lag_ns and not fed else 1.0 / len(order)
    return {m: first if i == 0 else (1.0 - first) / (len(order) - 1) for i, m in enumerate(order)}


def _least(state: Standstill) -> int:
    return min((p.sent for p in state.progress if p.src in state.idle), default=0)


def _usual(progress: tuple[Progress, ...]) -> float:
    return float(np.median([p.sent for p in progress]))


def _stop_verdict(
    program: Program,
    cause: Cause,
    scope: Scope,
    blamed: tuple[str, str | None] | None,
    candidates: tuple[Candidate, ...],
    iteration: int,
    last: int,
    silence: int,
    confidence: float,
    evidence: tuple[Evidence, ...],
    reason: str,
) -> Verdict:
    job = program.job
    return Verdict(
        job=job.id,
        severity="fail_stop",
        cause=cause,
        scope=scope,
        machine=blamed[0] if blamed else None,
        nic=blamed[1] if blamed else None,
        peer=None,
        candidates=candidates,
        onset_ns=last,
        # What stops before the first iteration is cut has stopped in the first.
        onset_iteration=max(iteration, 0),
        detected_iteration=max(iteration, 0),
        slowdown=None,
        lost_gpu_seconds=silence / 1e9 * len(job.members),
        confidence=min(0.99, confidence),
        evidence=(*evidence, Evidence("silence", silence / 1e9, job.iteration_ns / 1e9, "s")),
        summary=f"{reason}; {job.id} has stood still for {silence / 1e9:.1f} s",
    )
