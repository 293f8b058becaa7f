# SPDX-License-Identifier: Apache-2.0
"""Lost packets and outages that the job survived: where, since when, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from dpu_app.wire.records import EventKind
from host_ctl.attribute.features import Features
from host_ctl.diagnose.costs import Claim
from host_ctl.diagnose.locate import Location, Pair, locate_losses
from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Scope, Severity, Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.repairs import LossPlace
from host_ctl.reconstruct.transfers import MISSING, Traffic, send_start

MIN_COST = 0.02
_MIN_LOSSES = 3
_MIN_SIDE = 3
_CLEAR_RISE = 3.0
_NEARLY_ALL = 0.8
_SURE = 0.8
_BY_CHANCE = 0.01
_NAMED = 2
_WHOLE = "all"
_UNDER_WAY_NS = 1_000_000  # of what a sender has under way when it is refused, at the most


@dataclass(frozen=True, slots=True)
class Losses:
    """Lost packets of a job: per directed pair and before whose tap, with their repair runs.

    ``times_ns``: when signs of them were seen (common ns, at least one if any were lost). ``at_least``: a
    part of the packets was not captured, so that more may have been lost.
    """

    runs: Table
    lost: dict[Pair, int]
    before_tap: dict[int, int]
    times_ns: NDArray[np.int64]
    at_least: bool


@dataclass(frozen=True, slots=True)
class LossFindings:
    """Verdicts on losses, the NICs at the ends of what lost packets, and the cost per iteration (ns).

    ``since`` is the first iteration with losses that cost enough to be a fault, None if they do not.
    """

    verdicts: tuple[tuple[Verdict, Claim], ...] = ()
    ends: frozenset[int] = frozenset()
    cost_ns: float = 0.0
    since: int | None = None

    def explains(self, members: Iterable[int], excess_ns: float, onset: int) -> bool:
        """Whether so much lateness of some NICs since an iteration may follow from the losses.

        After a loss the sender repeats, waits and slows down, and the receiver is late with all that it
        passes on. An excess at either end that begins with costly losses, or costs less than they do, is no
        second fault.
        """
        if not self.ends.intersection(members):
            return False
        return excess_ns <= self.cost_ns or (self.since is not None and onset >= self.since - 1)


def count_losses(traffic: Traffic, job: Job, repairs: Table) -> Losses:
    """Count what was lost for certain on the job's links."""
    runs = repairs[np.isin(repairs["link"], job.links)]
    runs = runs[runs["start"] >= _first_whole_unit(job)]
    runs = runs[
        np.isin(runs["place"], (LossPlace.BEFORE_SENDER_TAP, LossPlace.BETWEEN_TAPS, LossPlace.UNKNOWN))
    ]
    missed, times = _missed(traffic, job)
    certain = [
        run["place"] != LossPlace.UNKNOWN or missed[_pair(traffic, run)] > 0 or _arrived_late(traffic, run)
        for run in runs
    ]
    runs = runs[np.array(certain, dtype=bool)]
    lost: Counter[Pair] = Counter()
    before: Counter[int] = Counter()
    for run in runs:
        pair = _pair(traffic, run)
        lost[pair] += int(run["packets"])
        if run["place"] == LossPlace.BEFORE_SENDER_TAP:
            before[pair[0]] += int(run["packets"])
    for pair, count in missed.items():
        lost[pair] = max(lost[pair], count)
    times = np.concatenate([times, runs["start"], runs["end"]])
    modes = {traffic.series[i].mode for m in job.members if (i := traffic.endpoints[m].series) is not None}
    return Losses(runs, dict(lost), dict(before), np.sort(times), modes != {_WHOLE})


def _pair(traffic: Traffic, run: Table) -> Pair:
    """Between whom the packets of a repair run went."""
    link = traffic.links[int(run["link"])]
    return (link.dst, link.src) if run["reverse"] else (link.src, link.dst)


def _arrived_late(traffic: Traffic, run: Table) -> bool:
    """Whether a run's receiver saw it: senders also repeat what arrived and was answered too late."""
    return traffic.endpoints[_pair(traffic, run)[1]].series is not None


def _missed(traffic: Traffic, job: Job) -> tuple[Counter[Pair], NDArray[np.int64]]:
    """How often receivers said that packets are missing (NAK), per directed pair, and when (common ns).

    Each tells of one packet at least, and also of those that a capture leaves out. Both ends see them.
    """
    found: Counter[Pair] = Counter()
    times = [np.empty(0, np.int64)]
    begin = _first_whole_unit(job)
    for number in job.links:
        link = traffic.links[number]
        for pair, views in (
            ((link.src, link.dst), ((link.src, link.answered_flow), (link.dst, link.answering_flow))),
            ((link.dst, link.src), ((link.dst, link.receiver_flow), (link.src, link.sender_flow))),
        ):
            counts = [0]
            for endpoint, flow in views:
                index = traffic.endpoints[endpoint].series
                if index is None or flow is None:
                    continue
                chosen = _missing_said(traffic.series[index].events, flow)
                clock = traffic.clocks[index]
                start = clock.to_common(chosen["start_ns"])
                counts.append(int(chosen["count"][start >= begin].sum()))
                times += [start[start >= begin], clock.to_common(chosen["end_ns"])[start >= begin]]
            found[pair] += max(counts)
    return found, np.concatenate(times)


def _missing_said(events: Table, flow: int) -> Table:
    """The answers of a flow that packets are missing (NAK), but for those that follow a refusal.

    A receiver that is not ready (RNR) drops what arrived and all that is under way behind it, and may call
    that missing; nothing was lost on the way. A run of refusals tells the PSN of its first.
    """
    mine = events["flow"] == flow
    said: Table = events[mine & (events["kind"] == EventKind.NAK_SEQUENCE)]
    refused = events[mine & (events["kind"] == EventKind.RNR)]
    if not len(refused):
        return said
    at = np.searchsorted(refused["start_ns"], said["start_ns"], side="right") - 1
    since = said["start_ns"] - refused["end_ns"][np.maximum(at, 0)]
    kept: Table = said[(at < 0) | (since > _UNDER_WAY_NS)]
    return kept


def _first_whole_unit(job: Job) -> int:
    """When the first iteration begins that the captures hold from its begin (common ns).

    What had been sent before the captures began shows only when it is repeated, and looks like a packet that
    was lost on the way to the tap.
    """
    for timeline in job.timelines:
        messages = np.array([o.messages for o in timeline.operators])
        if timeline.regular and len(messages) > 1 and messages[0] < np.median(messages):
            return int(job.boundaries_ns[1])
    return int(job.boundaries_ns[0])


def find_losses(traffic: Traffic, job: Job, features: Features, repairs: Table) -> LossFindings:
    """A verdict on the job's lost packets, if they cost enough to matter; a notice if they do not."""
    losses = count_losses(traffic, job, repairs)
    total = sum(losses.lost.values())
    if total < _MIN_LOSSES:
        return LossFindings()
    begin, end = int(losses.times_ns[0]), int(losses.times_ns[-1])
    window = _outage(traffic, losses)
    if window is None and _lost_again(losses, _sent(traffic, job, None, losses.lost)):
        window = _dead_time(traffic, losses.runs)
    outage = window is not None
    lost = _lost_messages(traffic, losses.runs) if outage else losses.lost
    where = locate_losses(_sent(traffic, job, window, lost), lost, losses.before_tap, dead=outage)
    first = int(np.clip(np.searchsorted(job.boundaries_ns, begin, side="right") - 1, 0, job.iterations - 1))
    last = int(np.clip(np.searchsorted(job.boundaries_ns, end, side="right"), first + 1, job.iterations))
    cost_ns = max(float(features.repair[first:last].max(axis=1).sum()), _rise(job, features, losses.times_ns))
    if window is not None:
        # What was lost in it was waited for until it had been repeated.
        cost_ns = max(cost_ns, float(window[1] - window[0]))
    span_ns = float(features.duration_ns[first:].sum())
    severity: Severity = "fail_slow" if cost_ns >= MIN_COST * span_ns else "notice"
    verdict = _verdict(traffic, job, losses, where, severity, outage, (first, last), cost_ns)
    ends = frozenset(end for pair, count in losses.lost.items() if count for end in pair)
    per_iteration_ns = cost_ns / (last - first)
    since = first if severity == "fail_slow" else None
    return LossFindings(((verdict, Claim(first, last, per_iteration_ns)),), ends, per_iteration_ns, since)


def _rise(job: Job, features: Features, times_ns: NDArray[np.int64]) -> float:
    """How much longer iterations with losses took, of those that clearly took longer than without (ns).

    What a loss holds up is more than what is repeated: other connections wait for the one that does.
    """
    duration = features.duration_ns.astype(np.float64)
    at = np.searchsorted(job.boundaries_ns, times_ns, side="right") - 1
    hit = np.zeros(len(duration), dtype=bool)
    hit[at[(at >= 0) & (at < len(duration))]] = True
    whole = np.ones(len(duration), dtype=bool)
    whole[:1] = whole[-1:] = False
    usual, now = duration[whole & ~hit], duration[whole & hit]
    if min(len(usual), len(now)) < _MIN_SIDE:
        return 0.0
    spread = np.median(np.abs(usual - np.median(usual)))
    longer = now - np.median(usual)
    return float(longer[longer > _CLEAR_RISE * spread].sum())


def _lost_again(losses: Losses, sent: dict[Pair, int]) -> bool:
    """Whether packets were lost again and again: a dead path, not a lossy one.

    Nothing of what is repeated gets through a dead path, and little is lost at other times. A lossy one loses
    a part of it, and a repeated packet again no more often than any other.
    """
    between = losses.runs[losses.runs["place"] == LossPlace.BETWEEN_TAPS]
    again, before = 0, dict[tuple[int, int, int], tuple[int, bool]]()
    dead: list[tuple[int, int]] = []
    for run in between:
        key = (int(run["link"]), int(run["position"]), int(run["reverse"]))
        since, all_lost = before.get(key, (int(run["start"]), False))
        if all_lost:
            again += 1
            dead.append((since, int(run["end"])))
        before[key] = (since, bool(run["packets"] == run["repeated"]))
    rate = sum(losses.lost.values()) / max(1, sum(sent[pair] for pair in losses.lost))
    by_chance = float((min(1.0, rate) ** between["repeated"].astype(np.float64)).sum())
    meanwhile = np.zeros(len(between), dtype=bool)
    for begin, end in dead:
        meanwhile |= (between["start"] >= begin) & (between["start"] <= end)
    mostly = between["packets"][meanwhile].sum() >= _NEARLY_ALL * between["packets"].sum()
    return bool(again > 0 and mostly and poisson.sf(again - 1, by_chance) < _BY_CHANCE)


def _outage(traffic: Traffic, losses: Losses) -> tuple[int, int] | None:
    """When nothing passed between the ends of what was lost, from the first lost message to its repeat (ns).

    A short outage loses everything that several flows carry at once, and nothing again: no packet comes that
    could tell a receiver that others are missing, and the senders wait until they time out. A lossy path
    loses now this packet, now that one, and lets most things pass.
    """
    runs = losses.runs
    data = runs[runs["reverse"] == 0]
    if losses.runs["packets"].sum() < _MIN_LOSSES or not len(data):
        return None
    sent = send_start(traffic.transfers[data["row"]])
    begin, end = int(sent.min()), int(runs["start"].min())
    # Senders time out and repeat about as long after the first as they lost their packets after it.
    once = runs["start"] <= 2 * end - begin
    once[runs["reverse"] == 0] &= sent < end
    flows = np.unique(np.stack([runs["link"], runs["reverse"]])[:, once], axis=1).shape[1]
    if flows < 2 or runs["packets"][once].sum() < _NEARLY_ALL * runs["packets"].sum():
        return None
    edges = np.unique([traffic.links[i].edge for i in runs["link"][once]])
    t = traffic.transfers[np.isin(traffic.transfers["edge"], edges)]
    # What is lost first may have been sent long before the outage began, and other things come through.
    passed = (t["rx_end"] != MISSING) & (t["rx_end"] > (begin + end) // 2) & (t["rx_end"] < end)
    return None if passed.any() else (begin, end)


def _dead_time(traffic: Traffic, runs: Table) -> tuple[int, int]:
    """From when until when nothing passed for certain where packets were lost again and again (ns).

    It began after the last message that still arrived there, and what was repeated last in vain tells how
    long it lasted at least.
    """
    first = int(runs["start"].min())
    t = traffic.transfers
    begins, passed = [], []
    for reverse, left, arrived in ((0, send_start(t), t["rx_end"]), (1, t["credit_tx"], t["credit_rx"])):
        mine = runs[runs["reverse"] == reverse]
        begins.append(left[mine["row"]])
        passed.append(arrived[np.isin(t["link"], mine["link"])])
    begun, through = np.concatenate(begins), np.concatenate(passed)
    begin = int(begun[begun != MISSING].min(initial=first))
    begin = max(begin, int(through[(through != MISSING) & (through < first)].max(initial=begin)))
    last: dict[tuple[int, int, int], int] = {}
    in_vain = [first]
    for run in np.sort(runs, order="start"):
        key = (int(run["link"]), int(run["position"]), int(run["reverse"]))
        if key in last:  # what is repeated again had not arrived
            in_vain.append(last[key])
        last[key] = int(run["start"])
    return begin, max(in_vain)


def _lost_messages(traffic: Traffic, runs: Table) -> dict[Pair, int]:
    """Distinct messages (or grants) that had to be repeated, per directed pair."""
    rows: dict[Pair, set[int]] = {}
    for run in runs:
        pair = _pair(traffic, run)
        rows.setdefault(pair, set()).add(int(run["row"]))
    return {pair: len(found) for pair, found in rows.items()}


def _sent(
    traffic: Traffic, job: Job, window: tuple[int, int] | None, lost: dict[Pair, int]
) -> dict[Pair, int]:
    """What could have been lost per directed pair, data and credits.

    Over the whole capture in packets; within an outage in messages, which is what can be timed.
    """
    sent: Counter[Pair] = Counter(lost if window is not None else {})
    t = traffic.transfers
    for number in job.links:
        link = traffic.links[number]
        part = t[t["link"] == number]
        if window is None:
            span = int(part["position"][-1] - part["position"][0]) + 1
            sent[link.src, link.dst] += span
            sent[link.dst, link.src] += link.credits
        else:
            arrived = part["rx_end"]
            sent[link.src, link.dst] += int(((arrived > window[0]) & (arrived <= window[1])).sum())
            granted = part["credit_rx"]
            seen = (granted != MISSING) & (granted > window[0]) & (granted <= window[1])
            sent[link.dst, link.src] += int(seen.sum())
    return dict(sent)


def _verdict(
    traffic: Traffic,
    job: Job,
    losses: Losses,
    where: Location,
    severity: Severity,
    outage: bool,
    iterations: tuple[int, int],
    cost_ns: float,
) -> Verdict:
    """The verdict without its cost, which depends on the other faults of the job as well."""
    nic, probability = where.nic
    # Losses of one pair only may lie anywhere between its ends; of an outage tells what passed meanwhile.
    pairs = sum(count > 0 and nic in pair for pair, count in losses.lost.items())
    sure = probability >= _SURE and (outage or pairs > 1 or losses.before_tap.get(nic, 0) > 0)
    endpoint = traffic.endpoints[nic]
    machine = endpoint.machine if sure else None
    cause: Cause = "link_down" if outage else "link_loss"
    scope: Scope = "nic" if sure else "link"
    ends = tuple(
        Candidate(traffic.endpoints[n].machine, traffic.endpoints[n].nic, round(p, 4)) for n, p in where.ends
    )
    first, last = iterations
    total = sum(losses.lost.values())
    what = "went dead for a while" if outage else "loses packets"
    named = ends[:_NAMED]
    name = endpoint.name if sure else " or ".join(dict.fromkeys(c.machine for c in named))
    counted = f"at least {total}" if losses.at_least else f"{total}"
    return Verdict(
        job=job.id,
        severity=severity,
        cause=cause,
        scope=scope,
        machine=machine,
        nic=endpoint.nic if sure else None,
        peer=None,
        candidates=ends,
        onset_ns=int(losses.times_ns[0]),
        onset_iteration=first,
        detected_iteration=min(first + 1, job.iterations - 1),
        slowdown=None,
        lost_gpu_seconds=0.0,
        confidence=min(0.99, probability if sure else sum(c.probability for c in named)),
        evidence=(
            Evidence("lost_packets", float(total), 0.0, "packets"),
            Evidence("repair_time", cost_ns / 1e3, 0.0, "us"),
            Evidence("explained_by_this_nic", probability, None, "probability"),
        ),
        summary=(
            f"the link of {name} {what} ({cause.replace('_', ' ')}): {counted} packets were lost and "
            f"repeated in {last - first} iterations of {job.id}"
        ),
    )
