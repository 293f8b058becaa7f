# SPDX-License-Identifier: Apache-2.0
"""Who plays the same part: only members of one role may be compared with each other.

All members of a ring or an all-to-all play the same part. In a pipeline or a tree the part depends on the
place: how many lanes a member has, how much they carry, and whether it may send before it has received.
Two NICs that exchange equal volumes may be a ring of two or two stages of a pipeline. Two that are in
different pipelines are no stages of one, and two that are in different rings are: rings join the replicas of
a stage. Else the learned needs tell, since a stage that answers sends its last message only after
everything has come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.needs import Needs, Sharing
from host_ctl.attribute.places import find_places
from host_ctl.attribute.program import UNKNOWN, Program
from host_ctl.reconstruct.groups import Algorithm

_SYMMETRIC = ("ring", "alltoall")
_SEVERAL = 3  # members, of whom one may be late
_MOSTLY = 0.5


def find_sharing(program: Program, needs: Needs) -> Sharing:
    """Whose members share their norms and needs, from needs learned for each member alone."""
    found = set()
    for number, timeline in enumerate(program.job.timelines):
        if timeline.group.algorithm not in _SYMMETRIC:
            if _in_rounds(program, number):
                found.add(number)
            continue
        members = timeline.group.members
        alike = len(members) > 2 or _of_two(program, members, "pairwise")
        if alike or (not _of_two(program, members, "ring") and _alike(program, needs, number)):
            found.add(number)
    groups = frozenset(found)
    even = frozenset(n for n in range(len(program.job.timelines)) if n not in groups and _even(program, n))
    starters = _starters(program, needs, groups)
    return Sharing(groups, find_places(program, groups), even, starters)


def _starters(program: Program, needs: Needs, symmetric: frozenset[int]) -> dict[int, NDArray[np.bool_]]:
    """The places of lanes of trees at which several members begin an operator, by lane.

    A leaf sends its first part as soon as it has computed it, whatever the shape above it, as a member of a
    ring does. What an inner member or the root sends waits for others first.
    """
    found: dict[tuple[int, int, int], list[tuple[int, NDArray[np.bool_]]]] = {}
    for number, timeline in enumerate(program.job.timelines):
        if number in symmetric or timeline.group.algorithm != "tree":
            continue
        operator_of = {int(r): n for n, one in enumerate(timeline.operators) for r in one.rows}
        for index, lane in enumerate(program.lanes):
            if lane.group == number and lane.volume:
                begins = ~_needs_own_operator(program, needs, index, operator_of)
                found.setdefault((number, lane.volume, lane.channel), []).append((index, begins))
    out = {}
    for lanes in found.values():
        several = np.sum([begins for _, begins in lanes], axis=0) >= _SEVERAL
        out.update({index: begins & several for index, begins in lanes if (begins & several).any()})
    return out


def _needs_own_operator(
    program: Program, needs: Needs, index: int, operator_of: dict[int, int]
) -> NDArray[np.bool_]:
    """Per place of a lane, whether it mostly needs something that has arrived in the same operator."""
    lane = program.lanes[index]
    own = np.array([operator_of.get(int(r), -1) for r in lane.rows])
    rows = np.flatnonzero(lane.unit != UNKNOWN)
    waits = np.zeros(len(rows), dtype=bool)
    for number, source in enumerate(program.arrivals):
        need = needs.get((index, number))
        if need is None or source.group != lane.group or source.endpoint != lane.src:
            continue
        at = source.base[lane.unit[rows]] + need[lane.place[rows]] - 1
        usable = (source.base[lane.unit[rows]] != UNKNOWN) & (at >= 0) & (at < len(source.rows))
        came = np.array([operator_of.get(int(r), -1) for r in source.rows])
        waits |= usable & (came[np.where(usable, at, 0)] == own[rows])
    share = np.bincount(lane.place[rows], waits, lane.volume) / np.maximum(
        np.bincount(lane.place[rows], minlength=lane.volume), 1
    )
    return np.asarray(share >= _MOSTLY)


def _in_rounds(program: Program, number: int) -> bool:
    """Whether all members of a group exchange with one partner after the other."""
    return any(lane.round for lane in program.lanes if lane.group == number)


def _even(program: Program, number: int) -> bool:
    """Whether each of several members sends and gets equally many messages on equally many lanes."""
    lanes = [lane for lane in program.lanes if lane.group == number]
    members = program.job.timelines[number].group.members
    sent = [sorted(lane.volume for lane in lanes if lane.src == member) for member in members]
    got = [sorted(lane.volume for lane in lanes if lane.dst == member) for member in members]
    parts = [*sent, *got]
    return len(members) > 2 and all(part == parts[0] and 0 not in part for part in parts)


def _of_two(program: Program, pair: Sequence[int], algorithm: Algorithm) -> bool:
    """Whether each of a pair is in a pipeline, or a ring, of its own, of three members or more."""
    chains = [set(t.group.members) for t in program.job.timelines if t.group.algorithm == algorithm]
    own = [{i for i, chain in enumerate(chains) if len(chain) > 2 and member in chain} for member in pair]
    return all(own) and own[0].isdisjoint(own[1])


def _alike(program: Program, needs: Needs, group: int) -> bool:
    """Whether both members of a pair may send their last message before everything has come."""
    complete = set()
    for index, lane in enumerate(program.lanes):
        if lane.group != group or not lane.volume:
            continue
        for number, source in enumerate(program.arrivals):
            need = needs.get((index, number))
            if source.group == group and need is not None:
                complete.add(bool(need[-1] >= lane.volume))
    return len(complete) <= 1
