# SPDX-License-Identifier: Apache-2.0
"""Where the queue stood whose packets a switch marked: in front of one NIC, or somewhere in the network.

A switch marks what it cannot pass on as fast as it comes. So marks clear the sender, whose packets had left
it, and say that a port behind the queue is slow, or what that port leads to. Which port it is shows in who
else waits. In front of a NIC everything that is sent to it waits, and nothing else: the data of all its
senders, and the grants of its own receivers, which come another way. Elsewhere a path is slow, and others
that lead to the same NIC are not. What waits behind the NIC's tap, on the way to its memory, the NIC
acknowledges late. A NIC that also sends slowly, without marks, has a port that is slow both ways: its own
queue marks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from host_ctl.attribute.charges import Charge
from host_ctl.attribute.features import time_covered
from host_ctl.diagnose.answers import latest_to_answer
from host_ctl.diagnose.ends import CONGESTED
from host_ctl.diagnose.shared_path import Edge
from host_ctl.diagnose.verdict import Evidence
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start

_COMPARABLE = 0.5
_ALSO = 0.25  # who sends less, or at other times, waits less in the same queue
_ALWAYS = 0.9
_SPARED = 0.1
_SLOWER = 3.0
_STANDING = 0.75
_EMPTY = 0.01
_LESS = 0.7
_MIN_CREDITS = 20
_MIN_OUTSIDE = 3


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that packets were marked in.

    ``receiver`` is the NIC that all its packets went to, None when they went to several. ``slow``: that NIC
    itself is slow, True or False where something tells, None where nothing does; ``both_ways``: it sends
    slowly too; ``behind_tap``: it acknowledges late what has passed its tap. ``senders`` are those whose
    packets waited.
    """

    receiver: int | None
    slow: bool | None = False
    both_ways: bool = False
    behind_tap: bool = False
    senders: frozenset[int] = frozenset()
    evidence: tuple[Evidence, ...] = ()


def find_queue(
    traffic: Traffic, job: Job, charges: Table, member: int, feature: str, inside: tuple[int, int]
) -> Queue | None:
    """The queue that made a NIC's messages slow in some iterations, None if hardly any were marked.

    ``member`` and ``feature`` (egress, ingress or port) say where the slow messages were found.
    """
    excess = _edge_excess(charges, job, inside)
    marked = _marked_share(charges, job, inside)
    sides = {"egress": (0,), "ingress": (1,), "port": (0, 1)}[feature]
    own = {e: x for e, x in excess.items() if any(e[s] == member for s in sides) and x > 0}
    queued = {e: x for e, x in own.items() if marked.get(e, 0.0) >= CONGESTED}
    if sum(x * marked.get(e, 0.0) for e, x in own.items()) < CONGESTED * max(sum(own.values()), 1.0):
        return None
    if not queued:
        return None
    worst = max(queued.values())
    slow = {e for e, x in excess.items() if x >= _COMPARABLE * worst}
    behind = {e for e in slow if marked.get(e, 0.0) >= CONGESTED}
    receivers = {dst for _, dst in behind}
    if len(receivers) != 1:
        return Queue(None)
    (receiver,) = receivers
    behind |= {
        e
        for e, x in excess.items()
        if e[1] == receiver and x >= _ALSO * worst and marked.get(e, 0.0) >= CONGESTED
    }
    found = _at_receiver(traffic, job, charges, receiver, behind, slow - behind, inside)
    carried = _carried(traffic)
    least = _SPARED * max(carried[e] for e in behind)
    spared = [
        e
        for e in traffic.edges
        if e[1] == receiver and excess.get(e, 0.0) < _SPARED * worst and carried[e] >= least
    ]
    if spared and not (found.both_ways or found.behind_tap):
        # Others send to the same NIC and do not wait: it is one path to it that is slow.
        return Queue(receiver)
    return replace(found, senders=frozenset(src for src, _ in behind))


def _at_receiver(
    traffic: Traffic,
    job: Job,
    charges: Table,
    receiver: int,
    behind: set[Edge],
    unmarked: set[Edge],
    inside: tuple[int, int],
) -> Queue:
    """Whether the one NIC that all marked packets went to is slow, or the path to it."""
    if not _always_slow(charges, behind, inside):
        # A port at a part of its rate is slow in every iteration; what others send comes and goes.
        return Queue(receiver)
    if any(src == receiver for src, _ in unmarked):
        return Queue(receiver, slow=True, both_ways=True)
    senders = {src for src, _ in behind}
    late, figure = latest_to_answer(traffic, job, (receiver,))
    if late is not None and figure is not None:
        return Queue(receiver, slow=True, behind_tap=True, evidence=(figure,))
    if len(senders) > 1:
        # Several that send at once fill any port, but then as much comes through it as ever.
        rates = _rates_in(traffic, job, behind, inside)
        if rates is None or rates[0] > _LESS * rates[1]:
            return Queue(receiver, slow=None)
        figure = Evidence("rate_in", rates[0], rates[1], "Gbit/s")
        return Queue(receiver, slow=True, evidence=(figure,))
    waits = _credit_waits(traffic, job, senders, inside)
    mine, rest = waits.get(receiver), [v for m, v in waits.items() if m != receiver]
    if mine is None or not rest:
        return Queue(receiver, slow=None)
    usual = float(np.median(rest))
    figure = Evidence("credit_wait_in", mine / 1e3, usual / 1e3, "us")
    return Queue(receiver, slow=mine > _SLOWER * usual and mine >= max(rest), evidence=(figure,))


def _carried(traffic: Traffic) -> dict[Edge, float]:
    """Bytes of data on every edge."""
    t = traffic.transfers
    total = np.bincount(t["edge"], t["bytes"].astype(np.float64), len(traffic.edges))
    return dict(zip(traffic.edges, total.tolist(), strict=True))


def _rates_in(
    traffic: Traffic, job: Job, edges: set[Edge], inside: tuple[int, int]
) -> tuple[float, float] | None:
    """How much some edges together carry while anything is under way on them (Gbit/s), inside some iterations
    and outside of them; None where outside is too little."""
    t = traffic.transfers
    numbers = [i for i, edge in enumerate(traffic.edges) if edge in edges]
    mine = t[np.isin(t["edge"], numbers)]
    start = send_start(mine)
    iteration = np.searchsorted(job.boundaries_ns, start, side="right") - 1
    within = (iteration >= inside[0]) & (iteration < inside[1])
    outside = ~within & (iteration > 0) & (iteration < job.iterations - 1)
    if len(np.unique(iteration[outside])) < _MIN_OUTSIDE:
        return None
    rates = []
    for chosen in (within, outside):
        order = np.argsort(start[chosen], kind="stable")
        begin, end = start[chosen][order], arrival(mine[chosen])[order]
        reached = np.maximum.accumulate(end)
        busy_ns = int(np.maximum(end - np.maximum(begin, np.r_[begin[:1], reached[:-1]]), 0).sum())
        rates.append(8.0 * float(mine["bytes"][chosen].sum()) / max(busy_ns, 1))
    return rates[0], rates[1]


def _edge_excess(charges: Table, job: Job, inside: tuple[int, int]) -> dict[Edge, float]:
    """How long messages are slow on each edge per iteration inside a stretch, beyond outside of it (ns).

    Messages of one edge that are slow at once count once, so that edges with few and with many of them at a
    time can be compared.
    """
    slow = charges[(charges["kind"] == Charge.TRANSFER) & (charges["iteration"] >= 0)]
    within = np.zeros(job.iterations, dtype=bool)
    within[inside[0] : inside[1]] = True
    outside = ~within
    outside[:1] = outside[-1:] = False
    found = {}
    for src, dst in np.unique(np.stack([slow["src"], slow["dst"]], axis=1), axis=0):
        lost = time_covered(slow[(slow["src"] == src) & (slow["dst"] == dst)], job.iterations)
        usual = float(np.median(lost[outside])) if outside.sum() >= _MIN_OUTSIDE else 0.0
        found[int(src), int(dst)] = float(np.median(lost[within])) - usual
    return found


def _marked_share(charges: Table, job: Job, inside: tuple[int, int]) -> dict[Edge, float]:
    """How far each edge's slowness goes with signals of congestion: the share of its slow time, or that of
    the iterations with a signal beyond what it is at other times, whichever is larger.

    A few signals per iteration are enough to slow a sender for all of it, and a NIC that is slow by itself
    causes none.
    """
    slow = charges[(charges["kind"] == Charge.TRANSFER) & (charges["iteration"] >= 0)]
    within = np.zeros(job.iterations, dtype=bool)
    within[inside[0] : inside[1]] = True
    found = {}
    for src, dst in np.unique(np.stack([slow["src"], slow["dst"]], axis=1), axis=0):
        mine = slow[(slow["src"] == src) & (slow["dst"] == dst)]
        meant = mine[within[mine["iteration"]]]
        length = (meant["end"] - meant["start"]).astype(np.float64)
        signalled = np.zeros(job.iterations, dtype=bool)
        signalled[mine["iteration"][mine["paced"] == 1]] = True
        usual = float(signalled[~within].mean()) if (~within).sum() >= _MIN_OUTSIDE else 0.0
        of_time = float(length[meant["paced"] == 1].sum() / max(length.sum(), 1.0))
        found[int(src), int(dst)] = max(of_time, float(signalled[within].mean()) - usual)
    return found


def _always_slow(charges: Table, edges: set[Edge], inside: tuple[int, int]) -> bool:
    """Whether the edges lose at least half of what they lose as a rule in nearly every iteration."""
    slow = charges[(charges["kind"] == Charge.TRANSFER) & (charges["iteration"] >= 0)]
    mine = np.zeros(len(slow), dtype=bool)
    for src, dst in edges:
        mine |= (slow["src"] == src) & (slow["dst"] == dst)
    lost = time_covered(slow[mine], int(charges["iteration"].max(initial=0)) + 1)[inside[0] : inside[1]]
    return bool(np.mean(lost >= _COMPARABLE * np.median(lost)) >= _ALWAYS)


def _credit_waits(traffic: Traffic, job: Job, senders: set[int], inside: tuple[int, int]) -> dict[int, float]:
    """How long the grants to each member wait on their way at busy times, beyond the quickest (ns).

    A queue is not always there, so an upper quantile tells. Grants by the ``senders`` of the slow messages
    take the same way as these and are left out; the quickest of each edge stands for its length.
    """
    t = traffic.transfers
    known = (t["credit_tx"] != MISSING) & (t["credit_rx"] != MISSING)
    begin, end = int(job.boundaries_ns[inside[0]]), int(job.boundaries_ns[inside[1]])
    meant = known & (t["credit_tx"] >= begin) & (t["credit_tx"] < end)
    found: dict[int, list[float]] = {}
    for number, (src, dst) in enumerate(traffic.edges):
        if src not in job.members or dst in senders:
            continue
        mine = t[meant & (t["edge"] == number)]
        if len(mine) < _MIN_CREDITS:
            continue
        transit = (mine["credit_rx"] - mine["credit_tx"]).astype(np.float64)
        found.setdefault(src, []).extend((transit - np.quantile(transit, _EMPTY)).tolist())
    return {member: float(np.quantile(waits, _STANDING)) for member, waits in found.items()}
