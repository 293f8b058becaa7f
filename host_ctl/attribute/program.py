# SPDX-License-Identifier: Apache-2.0
"""Lays out what every NIC does in an iteration: its sends, its arrivals, each numbered within the unit.

An iteration repeats a fixed program: the k-th message of an edge in one iteration means the same as the
k-th in the next. Numbering messages within their unit makes iterations comparable without knowing which
operators they hold.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.jobs import GroupTimeline, Job
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start

_SAME_NUMBER = 0.1
_FEWEST_TURNS = 4
_MOSTLY = 0.6
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Lane:
    """The messages of one edge, from endpoint ``src`` to ``dst``, in order of sending.

    Where the connections of an edge each carry the same in every iteration they are channels, which work
    apart from each other: then each is a lane. ``links`` are the lane's connections. ``rows`` index the
    transfers; ``unit`` is each message's iteration of the job (UNKNOWN outside), ``place`` its number within
    the group's unit ``group_unit``; ``base[k]`` counts the messages before iteration k (UNKNOWN when the
    edge did not take part in it), ``first[u]`` those before the group's unit u; ``iteration_of_unit`` maps
    units to iterations. ``volume`` is the usual number per iteration, 0 when it varies. Lanes of one
    ``channel`` cut what they carry into equal messages, so that their places mean the same. Where
    members exchange with one partner after the other, as in a barrier, ``round`` is which of them it is, and
    the channel too.
    """

    edge: int
    links: tuple[int, ...]
    src: int
    dst: int
    group: int
    rows: NDArray[np.int64]
    unit: NDArray[np.int64]
    group_unit: NDArray[np.int64]
    place: NDArray[np.int64]
    base: NDArray[np.int64]
    first: NDArray[np.int64]
    iteration_of_unit: NDArray[np.int64]
    volume: int
    channel: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What arrives at one NIC in one group, in order of arrival.

    ``times`` (ns), ``rows`` (transfers), ``base`` per iteration and ``first`` per unit as in :class:`Lane`.
    ``round`` is that of its lane.
    """

    endpoint: int
    group: int
    edges: tuple[int, ...]
    links: tuple[int, ...]
    times: NDArray[np.int64]
    rows: NDArray[np.int64]
    base: NDArray[np.int64]
    first: NDArray[np.int64]
    round: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """A job's lanes and arrivals. ``lanes_of`` and ``arrivals_of`` index them by endpoint."""

    job: Job
    lanes: tuple[Lane, ...]
    arrivals: tuple[Arrivals, ...]
    lanes_of: dict[int, tuple[int, ...]]
    arrivals_of: dict[int, tuple[int, ...]]


def lay_out(traffic: Traffic, job: Job) -> Program:
    """Number all messages of a job."""
    lanes: list[Lane] = []
    arrivals: list[Arrivals] = []
    for number, timeline in enumerate(job.timelines):
        unit_of_row, iteration_of_unit = _units(timeline, job)
        turn_of_unit = _turns(timeline, job)
        mine = [
            lane
            for edge in timeline.group.edges
            for lane in _lanes_of_edge(edge, number, traffic, unit_of_row, iteration_of_unit, job)
        ]
        mine = _by_turns(mine, turn_of_unit)
        unknown = timeline.group.algorithm == "unknown"
        rounds = _in_rounds(mine, timeline.group.members, traffic) if unknown else []
        mine = rounds or _with_channels(mine, traffic)
        lanes.extend(mine)
        for member in timeline.group.members:
            incoming = [lane for lane in mine if traffic.edges[lane.edge][1] == member]
            if timeline.group.algorithm == "alltoall" and incoming:
                arrivals.append(_arrivals(member, number, incoming, traffic))
            else:
                arrivals.extend(_arrivals(member, number, [lane], traffic) for lane in incoming)
    lanes_of: dict[int, tuple[int, ...]] = {}
    for index, lane in enumerate(lanes):
        lanes_of[lane.src] = (*lanes_of.get(lane.src, ()), index)
    arrivals_of: dict[int, tuple[int, ...]] = {}
    for index, item in enumerate(arrivals):
        arrivals_of[item.endpoint] = (*arrivals_of.get(item.endpoint, ()), index)
    return Program(job, tuple(lanes), tuple(arrivals), lanes_of, arrivals_of)


def iteration_of_rows(traffic: Traffic, program: Program) -> NDArray[np.int64]:
    """The iteration of every transfer of the job, UNKNOWN for others.

    By its unit where the program is known: a late first message belongs to its own iteration although its
    lateness may begin before or after the others' first packet. By time elsewhere.
    """
    found = np.full(len(traffic.transfers), UNKNOWN)
    for lane in program.lanes:
        start = send_start(traffic.transfers[lane.rows])
        by_time = np.searchsorted(program.job.boundaries_ns, start, side="right") - 1
        by_time = np.clip(by_time, 0, program.job.iterations - 1)
        found[lane.rows] = np.where(lane.unit != UNKNOWN, lane.unit, by_time)
    return found


def _units(timeline: GroupTimeline, job: Job) -> tuple[dict[int, int], NDArray[np.int64]]:
    """The unit of every transfer row of a group, and the job iteration of every unit."""
    rhythm = timeline.rhythm
    unit_of_operator = np.searchsorted(rhythm.first, np.arange(len(timeline.operators)), side="right") - 1
    unit_of_row: dict[int, int] = {}
    for operator, unit in zip(timeline.operators, unit_of_operator, strict=True):
        unit_of_row.update(dict.fromkeys(operator.rows.tolist(), int(unit)))
    return unit_of_row, _iteration_of_unit(timeline, job)


def _iteration_of_unit(timeline: GroupTimeline, job: Job) -> NDArray[np.int64]:
    """Which job iteration each unit is part of; UNKNOWN when the group has a rhythm of its own."""
    starts = timeline.rhythm.starts_ns
    period = job.iteration_ns
    if not timeline.regular or abs(len(starts) - job.iterations) > max(2, _SAME_NUMBER * job.iterations):
        return np.full(len(starts), UNKNOWN)
    nearest = np.clip(np.searchsorted(job.boundaries_ns, starts, side="right") - 1, 0, job.iterations - 1)
    phase = (starts - job.boundaries_ns[nearest]) / period
    middle = float(np.angle(np.exp(2j * np.pi * phase).mean()) / (2 * np.pi)) % 1.0
    middle -= middle > 0.8  # units that begin just before a boundary belong to the iteration after it
    centred = starts - middle * period + period / 2
    iteration = np.searchsorted(job.boundaries_ns, centred, side="right") - 1
    # The last iteration may have been cut short.
    iteration[(iteration >= job.iterations) & (starts < job.boundaries_ns[-1])] = job.iterations - 1
    iteration[(iteration < 0) | (iteration >= job.iterations)] = UNKNOWN
    # Two units in one iteration would number their messages alike.
    first = np.r_[True, np.diff(iteration) != 0]
    return np.where(first, iteration, UNKNOWN)


def _turns(timeline: GroupTimeline, job: Job) -> NDArray[np.int64]:
    """Which operator of its iteration each unit of an irregular group is; 0 where iterations tell nothing.

    All-to-alls that carry other amounts every time come in the same order in every iteration, each after
    something else that is computed.
    """
    starts = timeline.rhythm.starts_ns
    turns = np.zeros(len(starts), np.int64)
    first = np.searchsorted(starts, job.boundaries_ns[:-1])
    if timeline.regular or len(first) < _FEWEST_TURNS:
        return turns
    counts = np.diff(first)
    usual = int(np.median(counts))
    if usual < 2 or np.mean(counts == usual) < _MOSTLY:
        return turns
    # An iteration with another number of operators cannot be told which of them is missing.
    turns[:] = usual
    for begin in first[:-1][counts == usual]:
        turns[begin : begin + usual] = np.arange(usual)
    return turns


def _by_turns(lanes: list[Lane], turn_of_unit: NDArray[np.int64]) -> list[Lane]:
    """The lanes with places numbered through the operators of an iteration, where these take turns."""
    if not turn_of_unit.any():
        return lanes
    longest = 1 + max((int(lane.place.max(initial=0)) for lane in lanes), default=0)
    return [replace(lane, place=lane.place + longest * turn_of_unit[lane.group_unit]) for lane in lanes]


def _lanes_of_edge(
    edge: int,
    number: int,
    traffic: Traffic,
    unit_of_row: dict[int, int],
    iteration_of_unit: NDArray[np.int64],
    job: Job,
) -> list[Lane]:
    """The lanes of an edge: its channels, or all of it where they do not each carry the same every time.

    A channel is a strand: connections that take turns belong to one order. Of what all-to-all sends only the
    whole counts.
    """
    group = job.timelines[number].group
    strands: dict[int, list[int]] = {}
    for link, strand in zip(group.links, group.strands, strict=True):
        if traffic.links[link].edge == edge:
            strands.setdefault(strand, []).append(link)
    make = partial(_lane, edge, number, traffic, unit_of_row, iteration_of_unit, job)
    whole = make(tuple(sorted(link for links in strands.values() for link in links)))
    if len(strands) == 1 or not whole.volume or group.algorithm == "alltoall":
        return [whole]
    channels = [make(tuple(links)) for links in strands.values()]
    whole_known = int((whole.base != UNKNOWN).sum())
    alike = len({lane.volume for lane in channels}) == 1 and channels[0].volume > 0
    if alike and all(int((lane.base != UNKNOWN).sum()) == whole_known for lane in channels):
        return channels
    return [whole]


def _with_channels(lanes: list[Lane], traffic: Traffic) -> list[Lane]:
    """The lanes of a group with their channels, told apart by how they cut an iteration into messages.

    Only where every edge has the same channels does that say which of one edge corresponds to which of
    another: ranks may cut alike at different places. Then the bytes per iteration may tell.
    """
    sizes = [_usual_sizes(lane, traffic) for lane in lanes]
    for keys in (sizes, [sum(one) for one in sizes]):
        edges_of: dict[Hashable, list[int]] = {}
        for lane, key in zip(lanes, keys, strict=True):
            edges_of.setdefault(key, []).append(lane.edge)
        if len({tuple(sorted(edges)) for edges in edges_of.values()}) == 1:
            order = {key: number for number, key in enumerate(sorted(edges_of, key=repr))}
            return [replace(lane, channel=order[key]) for lane, key in zip(lanes, keys, strict=True)]
    return lanes


def _in_rounds(lanes: list[Lane], members: Sequence[int], traffic: Traffic) -> list[Lane]:
    """The lanes with their rounds, where every member sends to one partner after the other; else none.

    All members run the same program, so the k-th partner of one is what the k-th of another is to that, and a
    round brings everybody one message: so barriers and recursive doubling work. Rings have one round.
    """
    each = len(lanes) // len(members)
    if each < 2 or len(lanes) != each * len(members):
        return []
    found: list[Lane] = []
    for member in members:
        own = [lane for lane in lanes if lane.src == member]
        if len(own) != each or not all(lane.volume and lane.volume == own[0].volume for lane in own):
            return []
        order = np.argsort([_usual_begin(lane, own[0], traffic) for lane in own], kind="stable")
        found.extend(replace(own[at], channel=number, round=number) for number, at in enumerate(order))
    for number in range(each):
        partners = sorted(lane.dst for lane in found if lane.channel == number)
        if partners != sorted(members):
            return []
    return found


def _usual_begin(lane: Lane, beside: Lane, traffic: Traffic) -> float:
    """How long after another lane of its sender this one begins an iteration, by the median (ns)."""
    both = (lane.base != UNKNOWN) & (beside.base != UNKNOWN)
    times = [send_start(traffic.transfers[one.rows])[one.base[both]] for one in (lane, beside)]
    return float(np.median(times[0] - times[1])) if both.any() else 0.0


def _usual_sizes(lane: Lane, traffic: Traffic) -> tuple[int, ...]:
    """The sizes of a lane's messages in an iteration, by the median over iterations at each place."""
    known = np.flatnonzero(lane.unit != UNKNOWN)
    if not lane.volume or not len(known):
        return ()
    size = traffic.transfers["bytes"][lane.rows[known]].reshape(-1, lane.volume)
    return tuple(np.median(size, axis=0).astype(np.int64).tolist())


def _lane(
    edge: int,
    number: int,
    traffic: Traffic,
    unit_of_row: dict[int, int],
    iteration_of_unit: NDArray[np.int64],
    job: Job,
    links: tuple[int, ...],
) -> Lane:
    rows = np.flatnonzero(np.isin(traffic.transfers["link"], links))
    unit = np.array([unit_of_row[r] for r in rows.tolist()], dtype=np.int64)
    # Links of one edge may be in different units at a time: each has its own messages to count.
    order = np.lexsort((send_start(traffic.transfers[rows]), unit))
    rows, unit = rows[order], unit[order]
    first = np.searchsorted(unit, np.arange(len(iteration_of_unit)))
    place = np.arange(len(rows)) - first[unit]
    base = np.full(job.iterations, UNKNOWN)
    known = iteration_of_unit != UNKNOWN
    base[iteration_of_unit[known]] = first[known]
    counts = np.diff(np.r_[first, len(rows)])[known]
    volume = 0
    if len(counts):
        values, hits = np.unique(counts, return_counts=True)
        volume = int(values[np.argmax(hits)])
        odd = iteration_of_unit[known][counts != volume]
        base[odd] = UNKNOWN
    iteration = iteration_of_unit[unit]
    iteration = np.where(base[iteration] == UNKNOWN, UNKNOWN, iteration)
    src, dst = traffic.edges[edge]
    return Lane(
        edge, links, src, dst, number, rows, iteration, unit, place, base, first, iteration_of_unit, volume
    )


def _has_arrived(traffic: Traffic, endpoint: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """What the receiver's own capture did not show while it was running has not arrived."""
    index = traffic.endpoints[endpoint].series
    if index is None:
        return np.ones(len(rows), dtype=bool)
    series, clock = traffic.series[index], traffic.clocks[index]
    running = clock.to_common(np.array([series.first_ns, max(series.last_ns, series.witness_ns)]))
    sent = send_start(traffic.transfers[rows])
    seen = traffic.transfers["rx_end"][rows] != MISSING
    if not seen.any():
        # A capture of sent packets only has no receive view at all.
        return np.ones(len(rows), dtype=bool)
    return np.asarray(seen | (sent < running[0]) | (sent > running[1]))


def _arrivals(endpoint: int, number: int, lanes: list[Lane], traffic: Traffic) -> Arrivals:
    rows = np.concatenate([lane.rows for lane in lanes])
    arrived = _has_arrived(traffic, endpoint, rows)
    rows, unit = rows[arrived], np.concatenate([lane.group_unit for lane in lanes])[arrived]
    times = arrival(traffic.transfers[rows])
    # Where the operators of several senders overlap, the last of one comes after the first of the next.
    order = np.lexsort((times, unit)) if len(lanes) > 1 else np.argsort(times, kind="stable")
    bases = np.stack([lane.base for lane in lanes])
    base = np.where((bases == UNKNOWN).any(axis=0), UNKNOWN, bases.sum(axis=0))
    first = np.sum([lane.first for lane in lanes], axis=0)
    edges = tuple(lane.edge for lane in lanes)
    links = tuple(link for lane in lanes for link in lane.links)
    return Arrivals(endpoint, number, edges, links, times[order], rows[order], base, first, lanes[0].round)
