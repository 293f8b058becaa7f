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

from host_ctl.attribute.needs import Needs, Sharing
from host_ctl.attribute.places import find_places
from host_ctl.attribute.program import Program
from host_ctl.reconstruct.groups import Algorithm

_SYMMETRIC = ("ring", "alltoall")


def find_sharing(program: Program, needs: Needs) -> Sharing:
    """Whose members share their norms and needs, from needs learned for each member alone."""
    found = set()
    for number, timeline in enumerate(program.job.timelines):
        if timeline.group.algorithm not in _SYMMETRIC:
            continue
        members = timeline.group.members
        alike = len(members) > 2 or _of_two(program, members, "pairwise")
        if alike or (not _of_two(program, members, "ring") and _alike(program, needs, number)):
            found.add(number)
    groups = frozenset(found)
    even = frozenset(n for n in range(len(program.job.timelines)) if n not in groups and _even(program, n))
    return Sharing(groups, find_places(program, groups), even)


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
