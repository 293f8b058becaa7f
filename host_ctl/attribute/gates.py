# SPDX-License-Identifier: Apache-2.0
"""Finds what every send and every credit did wait for, from what its place is known to need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.needs import Action, Needs, Sharing, learn_needs, on_same_machine, share_needs
from host_ctl.attribute.program import UNKNOWN, Arrivals, Lane, Program
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, grant, send_end, send_start

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


def send_actions(traffic: Traffic, program: Program) -> list[Action]:
    """The sends of every lane, in the program's order."""
    return [
        Action(lane, traffic.edges[lane.edge][0], send_start(traffic.transfers[lane.rows]))
        for lane in program.lanes
    ]


def find_gates(traffic: Traffic, program: Program, needs: Needs, sharing: Sharing) -> tuple[Gates, ...]:
    """The gates of every lane's sends, in the program's order, from the learned needs of the sends."""
    actions = send_actions(traffic, program)
    inputs = find_inputs(
        actions, program.arrivals, needs, traffic, program, _first_starts(actions, program, sharing)
    )
    gates = []
    for index, (action, (input_ns, input_row)) in enumerate(zip(actions, inputs, strict=True)):
        t = traffic.transfers[action.lane.rows]
        end = send_end(t)
        before = np.r_[MISSING, np.maximum.accumulate(end)[:-1]]
        gates.append(Gates(index, input_ns, input_row, grant(t), before, action.times, end))
    return tuple(gates)


def _first_starts(
    actions: Sequence[Action], program: Program, sharing: Sharing
) -> list[NDArray[np.int64]] | None:
    """Per message, when the first of those that begin the operator alike had begun it; for others, never.

    Who is always late always has more when it begins, and seems to need it. What the first did without, none
    of the others needs.
    """
    if not sharing.starters:
        return None
    until = [np.full(len(action.times), np.iinfo(np.int64).max) for action in actions]
    pools: dict[tuple[int, int, int], list[int]] = {}
    for index in sharing.starters:
        lane = program.lanes[index]
        pools.setdefault((lane.group, lane.volume, lane.channel), []).append(index)
    for (_, volume, _), members in pools.items():
        chosen = [sharing.begins(i, program.lanes[i]) for i in members]
        cell = [
            program.lanes[i].group_unit[c] * volume + program.lanes[i].place[c]
            for i, c in zip(members, chosen, strict=True)
        ]
        first = np.full(max(int(one.max(initial=0)) for one in cell) + 1, np.iinfo(np.int64).max)
        for i, c, at in zip(members, chosen, cell, strict=True):
            np.minimum.at(first, at, actions[i].times[c])
        for i, c, at in zip(members, chosen, cell, strict=True):
            until[i][c] = first[at]
    return until


def find_grants(traffic: Traffic, program: Program, sharing: Sharing) -> tuple[Grants, ...]:
    """What every credit waited for, in the order of the program's lanes.

    A receiver grants a slot once an earlier message has left it, and the slots of an operator when it enters
    that: it needs arrivals, own sends, and what it sent to have arrived.
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
    sources = [*program.arrivals]
    for times_of in (send_start, arrival):
        sources.extend(_sends_as_source(traffic, lane, times_of) for lane in program.lanes)
    needs = share_needs(learn_needs(posts, sources, traffic), posts, sources, sharing)
    inputs = find_inputs(posts, sources, needs, traffic, program)
    return tuple(
        Grants(i, post.times, input_ns, input_row)
        for i, (post, (input_ns, input_row)) in enumerate(zip(posts, inputs, strict=True))
    )


def _sends_as_source(
    traffic: Traffic, lane: Lane, times_of: Callable[[Table], NDArray[np.int64]]
) -> Arrivals:
    """A lane's own sends in the shape of arrivals, so that credits can be found to depend on them."""
    times = np.maximum.accumulate(times_of(traffic.transfers[lane.rows]))
    part = (lane.edge,), lane.links, times, lane.rows, lane.base, lane.first, lane.round
    return Arrivals(lane.src, lane.group, *part)


def starter_sources(traffic: Traffic, program: Program, sharing: Sharing) -> list[Arrivals]:
    """What members of trees begin operators with, in the shape of arrivals, lane by lane."""
    sources = []
    for index in sharing.starters:
        lane = program.lanes[index]
        chosen = np.flatnonzero(sharing.begins(index, lane))
        times = send_start(traffic.transfers[lane.rows[chosen]])
        base = np.where(lane.base == UNKNOWN, UNKNOWN, np.searchsorted(chosen, lane.base))
        first = np.searchsorted(chosen, lane.first)
        sources.append(
            Arrivals(lane.src, lane.group, (lane.edge,), lane.links, times, lane.rows[chosen], base, first)
        )
    return sources


def find_inputs(
    actions: Sequence[Action],
    sources: Sequence[Arrivals],
    needs: Needs,
    traffic: Traffic,
    program: Program,
    until: Sequence[NDArray[np.int64]] | None = None,
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For every action, per message: when its last needed input came (MISSING), and its row (NOTHING).

    ``until`` says, per message, from when on nothing that came can have been needed.
    """
    found = []
    for index, action in enumerate(actions):
        input_ns = np.full(len(action.times), MISSING)
        input_row = np.full(len(action.times), NOTHING)
        for number in on_same_machine(action.endpoint, sources, traffic):
            source = sources[number]
            if not len(source.times):
                continue
            at = _needed_index(action, source, needs.get((index, number)), program)
            if until is not None:
                at = np.minimum(at, np.searchsorted(source.times, until[index], side="right") - 1)
            usable = (at >= 0) & (at < len(source.times))
            when = np.where(usable, source.times[np.where(usable, at, 0)], MISSING)
            later = when > input_ns
            input_ns[later] = when[later]
            input_row[later] = source.rows[at[later]]
        found.append((input_ns, input_row))
    return found


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
    first = np.r_[True, np.diff(lane.group_unit) != 0][: len(action.times)]
    begin = action.times[first]
    ended = program.job.timelines[source.group].rhythm.ends_ns
    finished = np.searchsorted(ended, begin, side="right")
    done = np.r_[source.first, len(source.times)][np.minimum(finished, len(source.first))]
    return np.asarray(done[np.cumsum(first) - 1] - 1)
