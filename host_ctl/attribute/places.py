# SPDX-License-Identifier: Apache-2.0
"""Which lanes of different groups correspond: the same place in replicas of one pipeline.

In a pipeline every stage does something of its own, so that a stage is alone in its group. But a job that
trains several replicas has as many pipelines of one shape, and the same stage of each does the same work.
Their lanes may share needs and norms, as the members of a ring do: what a stage of one replica managed to
do without, or in less time, the same stage of the others could have.

A place is the number of the stage, counted from the end that sends first in an iteration: nothing can come
back from the other end before something has been sent there, whoever is slow. Groups that are no pipeline
(the rings between replicas of a stage) correspond when they join the same stages.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from host_ctl.attribute.program import UNKNOWN, Program

REPLICAS = 3  # two cannot tell which of them is slow
_CLEAR = 0.9
_MIN_SEEN = 3

Place = Hashable


@dataclass(frozen=True, slots=True)
class Places:
    """The place of every lane and of every arrivals of a program; None where it corresponds to nothing.

    ``stages`` gives, for every member of a replicated pipeline, its stages.
    """

    lanes: tuple[Place, ...]
    arrivals: tuple[Place, ...]
    stages: dict[int, Place]


def find_places(program: Program, symmetric: frozenset[int]) -> Places:
    """Find the places of a program; ``symmetric`` are the groups whose members all play one part."""
    orders: dict[Place, list[tuple[int, list[int]]]] = {}
    for number in range(len(program.job.timelines)):
        order = None if number in symmetric else stage_order(program, number)
        if order is not None:
            orders.setdefault(_shape(program, number, order), []).append((number, order))
    stage_of: dict[tuple[int, int], Place] = {}
    stages: dict[int, tuple[Place, ...]] = {}
    for shape, chains in orders.items():
        if len(chains) < REPLICAS:
            continue
        for number, order in chains:
            for stage, member in enumerate(order):
                stage_of[number, member] = (shape, stage)
                stages[member] = (*stages.get(member, ()), (shape, stage))
    if not stages:
        return Places((None,) * len(program.lanes), (None,) * len(program.arrivals), {})
    joined = _joined_stages(program, symmetric, stages)
    lanes: list[Place] = []
    for lane in program.lanes:
        if (lane.group, lane.src) in stage_of:
            lanes.append((stage_of[lane.group, lane.src], stage_of[lane.group, lane.dst]))
        else:
            lanes.append(joined.get((lane.group, lane.src)))
    lane_of_edge = {(lane.group, lane.edge): place for lane, place in zip(program.lanes, lanes, strict=True)}
    arrivals = [
        joined[item.group, item.endpoint]
        if (item.group, item.endpoint) in joined
        else lane_of_edge[item.group, item.edges[0]]
        for item in program.arrivals
    ]
    return Places(tuple(lanes), tuple(arrivals), dict(stages))


def _joined_stages(
    program: Program, symmetric: frozenset[int], stages: dict[int, tuple[Place, ...]]
) -> dict[tuple[int, int], Place]:
    """The place of every (group, member) of a symmetric group: which stages it joins, and the own stage."""
    found: dict[tuple[int, int], Place] = {}
    for number in symmetric:
        group = program.job.timelines[number].group
        volumes = tuple(sorted({lane.volume for lane in program.lanes if lane.group == number}))
        joins = tuple(sorted((stages.get(m, ()) for m in group.members), key=repr))
        for member in group.members:
            found[number, member] = (group.algorithm, volumes, joins, stages.get(member, ()))
    return found


def _shape(program: Program, number: int, order: list[int]) -> Place:
    """What equal pipelines have in common: how many stages, and what each sends to the next and back."""
    volume: dict[tuple[int, int], int] = {}
    for lane in program.lanes:
        if lane.group == number:
            volume[lane.src, lane.dst] = volume.get((lane.src, lane.dst), 0) + lane.volume
    return tuple((volume[a, b], volume[b, a]) for a, b in pairwise(order))


def stage_order(program: Program, number: int) -> list[int] | None:
    """The members of a group that is a chain, the first stage first; None when it is none, or unclear."""
    lanes = [lane for lane in program.lanes if lane.group == number]
    following: dict[int, set[int]] = {}
    for lane in lanes:
        following.setdefault(lane.src, set()).add(lane.dst)
    members = program.job.timelines[number].group.members
    ends = [m for m in members if len(following.get(m, set())) == 1]
    if (
        len(ends) != 2
        or len({lane.edge for lane in lanes}) != 2 * (len(members) - 1)
        or not all(lane.volume for lane in lanes)
    ):
        return None
    order = [ends[0]]
    while len(order) < len(members):
        onward = [m for m in following.get(order[-1], ()) if m not in order]
        if len(onward) != 1:
            return None
        order.append(onward[0])
    down = _first_arrivals(program, number, order[0], order[1])
    back = _first_arrivals(program, number, order[-1], order[-2])
    both = (down != UNKNOWN) & (back != UNKNOWN)
    if both.sum() < _MIN_SEEN:
        return None
    earlier = float(np.mean(down[both] < back[both]))
    if max(earlier, 1 - earlier) < _CLEAR:
        return None
    return order if earlier >= _CLEAR else order[::-1]


def _first_arrivals(program: Program, number: int, src: int, dst: int) -> np.ndarray:
    """When an edge's first message of every iteration arrived, UNKNOWN where it is not known (ns)."""
    edge = next(x.edge for x in program.lanes if (x.group, x.src, x.dst) == (number, src, dst))
    item = next(a for a in program.arrivals if a.group == number and edge in a.edges)
    at = np.where((item.base >= 0) & (item.base < len(item.times)), item.base, UNKNOWN)
    if not len(item.times):
        return np.full(len(at), UNKNOWN)
    return np.where(at != UNKNOWN, item.times[np.maximum(at, 0)], UNKNOWN)
