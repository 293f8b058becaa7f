# SPDX-License-Identifier: Apache-2.0
"""Learns what every send waits for, and finds what it did wait for.

A rank may send its k-th message once certain messages have arrived: in a ring the one that it forwards,
at the begin of an iteration the whole of the iteration before, in a pipeline the activations of this
micro-batch. Nobody tells Pulse which, but over many iterations (and over the members of a ring, which
all play the same part) the *least* number of arrivals with which the k-th message was ever sent comes
down to the number that it needs. "The last arrival before the send" would be wrong: early data for a late
rank arrives during its lateness and would hide it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.places import REPLICAS, Place, Places
from host_ctl.attribute.program import UNKNOWN, Arrivals, Lane, Program
from host_ctl.reconstruct.coupling import component_of
from host_ctl.reconstruct.transfers import MISSING, Traffic, grant, send_end, send_start

_LOWEST = 0.02  # of the leads seen at one place: a capture that lost a packet must not undercut it
NOTHING = np.int64(-1)


@dataclass(frozen=True, slots=True)
class Gates:
    """For every message of one lane, in its order, when it could have been sent (ns, common clock).

    ``input_ns``: its last needed arrival (MISSING when none is known); ``input_row``: that transfer
    (NOTHING when none); ``credit_ns``: when the sender knew of its credit (MISSING without credits);
    ``before_ns``: when the lane's message before it had left; ``start_ns``: when it was sent.
    """

    lane: int
    input_ns: NDArray[np.int64]
    input_row: NDArray[np.int64]
    credit_ns: NDArray[np.int64]
    before_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grants:
    """For every message of one lane, in its order, how its credit came to be granted.

    ``posted_ns``: when the receiver posted it (MISSING without credits); ``input_ns``, ``input_row``: the
    last arrival at the receiver, or own sending, that it needed to do so (MISSING, NOTHING).
    """

    lane: int
    posted_ns: NDArray[np.int64]
    input_ns: NDArray[np.int64]
    input_row: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a NIC's host does once per message of a lane: sending it, or granting its credit."""

    lane: Lane
    endpoint: int
    times: NDArray[np.int64]


Needs = dict[tuple[int, int], NDArray[np.int64]]
"""For (action, source) of one machine: how many of the source's items of the unit each place needs."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who shares needs and norms: the members of symmetric groups, and lanes of equal places.

    ``groups``: numbers of the job's timelines whose members all play the same part; ``places``: which lanes
    of other groups correspond in replicas of one pipeline.
    """

    groups: frozenset[int]
    places: Places


def send_actions(traffic: Traffic, program: Program) -> list[Action]:
    """The sends of every lane, in the program's order."""
    return [
        Action(lane, traffic.edges[lane.edge][0], send_start(traffic.transfers[lane.rows]))
        for lane in program.lanes
    ]


def find_gates(traffic: Traffic, program: Program, needs: Needs) -> tuple[Gates, ...]:
    """The gates of every lane's sends, in the program's order, from the learned needs of the sends."""
    actions = send_actions(traffic, program)
    inputs = find_inputs(actions, program.arrivals, needs, traffic, program)
    gates = []
    for index, (action, (input_ns, input_row)) in enumerate(zip(actions, inputs, strict=True)):
        t = traffic.transfers[action.lane.rows]
        end = send_end(t)
        before = np.r_[MISSING, np.maximum.accumulate(end)[:-1]]
        gates.append(Gates(index, input_ns, input_row, grant(t), before, action.times, end))
    return tuple(gates)


def find_grants(traffic: Traffic, program: Program, sharing: Sharing) -> tuple[Grants, ...]:
    """What every credit waited for, in the order of the program's lanes.

    A receiver grants a slot once an earlier message has left it: it needs arrivals and own sends alike.
    """
    posts = []
    for lane in program.lanes:
        t = traffic.transfers[lane.rows]
        posted = np.where(t["credit_tx"] != MISSING, t["credit_tx"], t["credit_rx"])
        posts.append(Action(lane, traffic.edges[lane.edge][1], posted))
    if not any((post.times != MISSING).any() for post in posts):
        none = [np.full(len(p.times), MISSING) for p in posts]
        return tuple(
            Grants(i, p.times, m, np.full(len(m), NOTHING))
            for i, (p, m) in enumerate(zip(posts, none, strict=True))
        )
    sources = [*program.arrivals, *(_sends_as_source(traffic, lane) for lane in program.lanes)]
    needs = share_needs(learn_needs(posts, sources, traffic), posts, sources, sharing)
    inputs = find_inputs(posts, sources, needs, traffic, program)
    return tuple(
        Grants(i, post.times, input_ns, input_row)
        for i, (post, (input_ns, input_row)) in enumerate(zip(posts, inputs, strict=True))
    )


def _sends_as_source(traffic: Traffic, lane: Lane) -> Arrivals:
    """A lane's own sends in the shape of arrivals, so that credits can be found to depend on them."""
    times = send_start(traffic.transfers[lane.rows])
    return Arrivals(
        traffic.edges[lane.edge][0], lane.group, (lane.edge,), times, lane.rows, lane.base, lane.first
    )


def find_inputs(
    actions: Sequence[Action],
    sources: Sequence[Arrivals],
    needs: Needs,
    traffic: Traffic,
    program: Program,
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For every action, per message: when its last needed input came (MISSING), and its row (NOTHING)."""
    found = []
    for index, action in enumerate(actions):
        input_ns = np.full(len(action.times), MISSING)
        input_row = np.full(len(action.times), NOTHING)
        for number in on_same_machine(action.endpoint, sources, traffic):
            source = sources[number]
            if not len(source.times):
                continue
            at = _needed_index(action, source, needs.get((index, number)), program)
            usable = (at >= 0) & (at < len(source.times))
            when = np.where(usable, source.times[np.where(usable, at, 0)], MISSING)
            later = when > input_ns
            input_ns[later] = when[later]
            input_row[later] = source.rows[at[later]]
        found.append((input_ns, input_row))
    return found


def on_same_machine(endpoint: int, sources: Sequence[Arrivals], traffic: Traffic) -> list[int]:
    """The sources that may gate what a NIC does: those of all NICs of its machine on its time.

    Between NICs that nothing measures against each other before and after mean nothing.
    """
    own = _machine_and_clock(traffic, endpoint)
    return [i for i, s in enumerate(sources) if _machine_and_clock(traffic, s.endpoint) == own]


def _machine_and_clock(traffic: Traffic, endpoint: int) -> tuple[str, int]:
    return traffic.endpoints[endpoint].machine, component_of(traffic, endpoint)


def learn_needs(actions: Sequence[Action], sources: Sequence[Arrivals], traffic: Traffic) -> Needs:
    """Learn what every action needs of every source of its machine, each from its own iterations."""
    found: Needs = {}
    for index, action in enumerate(actions):
        if not action.lane.volume:
            continue
        for number in on_same_machine(action.endpoint, sources, traffic):
            need = _least_lead(action, sources[number])
            if need is not None:
                found[index, number] = need
    return found


def share_needs(
    needs: Needs, actions: Sequence[Action], sources: Sequence[Arrivals], sharing: Sharing
) -> Needs:
    """Give members of one role the least need found for any of them: the others only came to need more."""
    shared = dict(needs)
    for part, fewest in ((_group_part, 2), (_place_part, REPLICAS)):
        pools: dict[Hashable, list[tuple[int, int]]] = {}
        for index, number in needs:
            key = part(actions, index, sources, number, sharing)
            if key is not None:
                own = sources[number].endpoint == actions[index].endpoint
                pools.setdefault((key, own), []).append((index, number))
        for keys in pools.values():
            if len(keys) >= fewest and len({len(needs[k]) for k in keys}) == 1:
                least: NDArray[np.int64] = np.minimum.reduce([shared[k] for k in keys])
                shared.update(dict.fromkeys(keys, least))
    return shared


def _group_part(
    actions: Sequence[Action], index: int, sources: Sequence[Arrivals], number: int, sharing: Sharing
) -> Hashable:
    """Members of symmetric groups play one part towards the arrivals of symmetric groups."""
    groups = (actions[index].lane.group, sources[number].group)
    return groups if sharing.groups.issuperset(groups) else None


def _place_part(
    actions: Sequence[Action], index: int, sources: Sequence[Arrivals], number: int, sharing: Sharing
) -> Hashable:
    """The same place in replicas of one pipeline: what the action is, and what it may need."""
    lanes, arrivals = sharing.places.lanes, sharing.places.arrivals
    # Behind the arrivals come the own sends of every lane, where there are any.
    sends = number >= len(arrivals)
    source: Place = lanes[number - len(arrivals)] if sends else arrivals[number]
    if lanes[index] is None or source is None:
        return None
    return (lanes[index], source, sends)


def _least_lead(action: Action, source: Arrivals) -> NDArray[np.int64] | None:
    lane = action.lane
    usable = (lane.unit != UNKNOWN) & (action.times != MISSING)
    usable &= source.base[lane.unit] != UNKNOWN
    if not usable.any():
        return None
    lead = np.searchsorted(source.times, action.times[usable], side="right") - source.base[lane.unit[usable]]
    place = lane.place[usable]
    order = np.lexsort((lead, place))
    place, lead = place[order], lead[order]
    first = np.searchsorted(place, np.arange(lane.volume))
    count = np.searchsorted(place, np.arange(lane.volume), side="right") - first
    if (count == 0).any():
        return None
    need = lead[first + (count * _LOWEST).astype(np.int64)]
    # Messages leave in order: what a later one can do without, an earlier one does not need either.
    return np.asarray(np.minimum.accumulate(need[::-1])[::-1])


def _needed_index(
    action: Action, source: Arrivals, need: NDArray[np.int64] | None, program: Program
) -> NDArray[np.int64]:
    """For every message of an action, the index of the source's item that it needs last, -1 for none."""
    lane = action.lane
    if need is not None:
        known = (lane.unit != UNKNOWN) & (lane.place < len(need))
        base = np.where(known, source.base[lane.unit], UNKNOWN)
        place = np.where(known, lane.place, 0)
        return np.where(base != UNKNOWN, base + need[place] - 1, -1)
    # Without a repeated program an operator needs all that came before it, and nothing of its own.
    if source.group == lane.group:
        return source.first[lane.group_unit] - 1
    begin = action.times[np.flatnonzero(lane.place == 0)]
    ended = program.job.timelines[source.group].rhythm.ends_ns
    finished = np.searchsorted(ended, begin, side="right")
    done = np.r_[source.first, len(source.times)][np.minimum(finished, len(source.first))]
    which = np.searchsorted(np.flatnonzero(lane.place == 0), np.arange(len(lane.place)), side="right") - 1
    return np.asarray(done[which] - 1)
