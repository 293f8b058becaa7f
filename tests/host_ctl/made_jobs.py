# SPDX-License-Identifier: Apache-2.0
"""Rings of machines whose every time is known, and their attribution up to the replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.align.clock import NicClock
from host_ctl.attribute.charges import charge_all, transfer_excess
from host_ctl.attribute.gates import Gates, Grants, find_gates, find_grants, send_actions
from host_ctl.attribute.needs import Learned, Needs, Sharing, learn_needs, share_needs
from host_ctl.attribute.program import Lane, Program, lay_out
from host_ctl.attribute.replay import Replay, build_replay
from host_ctl.attribute.roles import find_sharing
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.repairs import REPAIR
from host_ctl.reconstruct.transfers import TRANSFER, Endpoint, Link, Traffic
from pulse_native import replay_dtypes
from tests.host_ctl.made import EPOCH_NS, address, jobs_of, series, table

MESSAGE, CUT = replay_dtypes()["MESSAGE"], replay_dtypes()["CUT"]
MISSING = np.iinfo(np.int64).min
NOTHING = -1
US, MS = 1_000, 1_000_000
ROUND_NS = 100 * US
HAND_ON_NS = 5 * US

Times = Callable[[int, int], int]


def no_time(_iteration: int, _member: int) -> int:
    """No extra time for anybody."""
    return 0


@dataclass(frozen=True, slots=True)
class Attributed:
    """A job with what the stages of attribution say of it."""

    traffic: Traffic
    job: Job
    program: Program
    learned: Learned
    needs: Needs
    sharing: Sharing
    gates: tuple[Gates, ...]
    grants: tuple[Grants, ...]
    charges: Table
    replay: Replay


def traffic_of(
    nodes: int, links: Sequence[tuple[int, int]], messages: Sequence[Sequence[tuple[int, ...]]]
) -> Traffic:
    """Traffic of machines on one clock.

    Per link (sender, receiver) its messages: start, end of sending, arrival, and the credit if there is one.
    """
    edges = list(dict.fromkeys(links))
    parts = []
    for number, (pair, times) in enumerate(zip(links, messages, strict=True)):
        when = np.array([(*m, *[MISSING] * (4 - len(m))) for m in times], dtype=np.int64).reshape(-1, 4)
        rows = table(
            TRANSFER,
            len(when),
            link=number,
            edge=edges.index(pair),
            bytes=1000,
            position=np.arange(len(when)),
        )
        rows["tx_start"] = rows["rx_start"] = when[:, 0]
        rows["tx_end"], rows["rx_end"] = when[:, 1], when[:, 2]
        rows["credit_tx"] = rows["credit_rx"] = when[:, 3]
        parts.append(rows)
    transfers = np.concatenate(parts)
    first, last = int(transfers["tx_start"].min()), int(transfers["rx_end"].max())
    own = [replace(series(n, []), first_ns=first, last_ns=last, witness_ns=last) for n in range(nodes)]
    clock = NicClock(0.0, 0.0, first, 100.0, 1000.0, "measured", 0)
    return Traffic(
        endpoints=tuple(Endpoint(f"node{n}", None, (address(n),), n) for n in range(nodes)),
        series=tuple(own),
        clocks=(clock,) * nodes,
        links=tuple(
            Link(*pair, 16 + i, None, None, None, None, None, None, edges.index(pair), 0, 0)
            for i, pair in enumerate(links)
        ),
        edges=tuple(edges),
        transfers=transfers,
        credits=np.empty(0, np.dtype([("tx", "<i8"), ("rx", "<i8"), ("link", "<u4"), ("index", "<u4")])),
    )


def ring(
    members: int,
    iterations: int,
    *,
    late: Times = no_time,
    slow: Times = no_time,
    held: Times = no_time,
    channels: int = 1,
    compute_ns: int = 2 * MS,
) -> Traffic:
    """A ring AllReduce per iteration, every time known.

    A member computes, sends its chunk, and hands on each chunk that it gets; on entering it grants all
    credits of the iteration if ``held`` is given. ``late`` is by how much longer it computes, ``slow`` by how
    much longer its messages are under way, ``held`` by how much later its credits come than its entry.
    """
    links = [(i, (i + 1) % members) for i in range(members) for _ in range(channels)]
    messages: list[list[tuple[int, ...]]] = [[] for _ in links]
    ready = np.full(members, EPOCH_NS, dtype=np.int64)
    for k in range(iterations):
        entered = np.array([int(ready[i]) + compute_ns + late(k, i) for i in range(members)])
        granted = np.array([int(entered[i]) + held(k, i) for i in range(members)])
        may = entered.copy()
        free = np.zeros(members, dtype=np.int64)
        for step in range(2 * (members - 1)):
            arrived = np.zeros(members, dtype=np.int64)
            for i in range(members):
                after = (i + 1) % members
                start = max(int(may[i]), int(free[i]))
                start = start if held is no_time else max(start, int(granted[after]))
                end = start + ROUND_NS + slow(k, i)
                credit = () if held is no_time else (int(granted[after]),)
                for c in range(channels):
                    # Channels work apart: now one of them comes first and now another.
                    turn = c if step % 2 else channels - 1 - c
                    messages[i * channels + c].append((start + turn, end - US + turn, end + turn, *credit))
                free[i] = end + channels
                arrived[after] = end + channels
            may = arrived + HAND_ON_NS
        ready = np.maximum(arrived, free)
    return traffic_of(members, links, messages)


def attributed(traffic: Traffic, repairs: Table | None = None) -> Attributed:
    """The only job of some traffic, attributed as the engine does it."""
    repairs = np.empty(0, REPAIR) if repairs is None else repairs
    (job,), _ = jobs_of(traffic)
    program = lay_out(traffic, job)
    actions = send_actions(traffic, program)
    learned = learn_needs(actions, program.arrivals, traffic)
    sharing = find_sharing(program, learned.needs)
    needs = share_needs(learned, actions, program.arrivals, sharing)
    gates, grants = find_gates(traffic, program, needs, sharing), find_grants(traffic, program, sharing)
    slow_ns = transfer_excess(traffic, program, sharing)
    charges = charge_all(traffic, program, gates, grants, sharing, repairs, slow_ns)
    replay = build_replay(traffic, program, gates, grants, sharing, charges, slow_ns)
    return Attributed(traffic, job, program, learned, needs, sharing, gates, grants, charges, replay)


def bare_lane(number: int, src: int, dst: int, rows: NDArray[np.int64], channel: int = 0) -> Lane:
    """A lane of one iteration, numbered from 0."""
    zeros = np.zeros(len(rows), dtype=np.int64)
    one = np.zeros(1, dtype=np.int64)
    return Lane(
        number,
        (number,),
        src,
        dst,
        0,
        rows,
        zeros,
        zeros,
        np.arange(len(rows)),
        one,
        one,
        one,
        len(rows),
        channel,
    )


def members_only(members: Sequence[int], iterations: int) -> Job:
    """A job of which only members and iterations count, 1 ms each."""
    return Job("job-1", (), tuple(members), EPOCH_NS + np.arange(iterations + 1) * MS)


def grid(edges: Sequence[tuple[int, int]], iterations: int, places: int = 10) -> Replay:
    """A replay of messages that wait for nothing but the one before: one lane per edge, one per place.

    All excess is zero, to be filled in; an iteration takes 1 ms, a message 10 us, with the time of a
    message between two.
    """
    lane, iteration, place = (
        a.ravel()
        for a in np.meshgrid(*(np.arange(n) for n in (len(edges), iterations, places)), indexing="ij")
    )
    src, dst = np.array(edges).T
    count = len(lane)
    messages = np.zeros(count, MESSAGE)
    messages["start"] = EPOCH_NS + iteration * MS + place * 20 * US
    messages["sending"], messages["transfer"] = 9 * US, 10 * US
    messages["input_row"] = messages["before_row"] = messages["grant_row"] = NOTHING
    follows = np.r_[False, lane[1:] == lane[:-1]]
    messages["before_row"][follows] = np.flatnonzero(follows) - 1
    before = messages["start"][messages["before_row"]] + messages["sending"][messages["before_row"]]
    messages["before_lag"] = np.where(follows, messages["start"] - before, 0)
    messages["posted"] = MISSING
    messages["sender"], messages["receiver"] = src[lane], dst[lane]
    no = np.zeros(count, dtype=bool)
    return Replay(
        iterations=iterations,
        iteration=iteration,
        lane=lane,
        place=place,
        src=src[lane],
        dst=dst[lane],
        clock=np.zeros(count, dtype=np.int64),
        excess=np.zeros(count, CUT),
        repaired=no.copy(),
        computes=no.copy(),
        compared=~no,
        branching=no.copy(),
        behind_slow=no.copy(),
        _messages=messages,
        _order=np.argsort(messages["start"], kind="stable"),
    )
