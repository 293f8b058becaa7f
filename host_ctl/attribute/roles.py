# SPDX-License-Identifier: Apache-2.0
"""Who plays the same part: only members of one role may be compared with each other.

All members of a ring or an all-to-all play the same part. In a pipeline or a tree the part depends on the
place: how many lanes a member has, how much they carry, and whether it may send before it has received.
Two NICs that exchange equal volumes may be a ring of two or two stages of a pipeline; the learned needs
tell, since a stage that answers sends its last message only after everything has come.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from host_ctl.attribute.gates import Needs, Sharing
from host_ctl.attribute.program import Program
from host_ctl.reconstruct.transfers import Traffic

_SYMMETRIC = ("ring", "alltoall")


def find_sharing(program: Program, needs: Needs) -> Sharing:
    """Which groups' members share their norms and needs, from needs learned for each member alone."""
    found = set()
    for number, timeline in enumerate(program.job.timelines):
        if timeline.group.algorithm not in _SYMMETRIC:
            continue
        if len(timeline.group.members) > 2 or _alike(program, needs, number):
            found.add(number)
    return frozenset(found)


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


def member_roles(traffic: Traffic, program: Program, needs: Needs, sharing: Sharing) -> list[Hashable]:
    """The role of each member of the job, in the job's order; equal roles may be compared."""
    roles: list[Hashable] = []
    for member in program.job.members:
        parts: list[Hashable] = []
        for number, timeline in enumerate(program.job.timelines):
            if number in sharing or member not in timeline.group.members:
                continue
            lanes = [i for i in program.lanes_of.get(member, ()) if program.lanes[i].group == number]
            volumes = tuple(sorted(program.lanes[i].volume for i in lanes))
            waits = tuple(sorted(_first_need(program, needs, i) > 0 for i in lanes))
            incoming = sum(1 for e in timeline.group.edges if traffic.edges[e][1] == member)
            parts.append((timeline.group.algorithm, volumes, waits, incoming))
        roles.append(tuple(sorted(parts, key=repr)))
    return roles


def _first_need(program: Program, needs: Needs, lane: int) -> int:
    """How many messages of its own group's unit a lane needs before its first."""
    own = program.lanes[lane].group
    found = [
        int(n[0])
        for (index, number), n in needs.items()
        if index == lane and len(n) and program.arrivals[number].group == own
    ]
    return max(found, default=0)


def machine_roles(traffic: Traffic, program: Program, roles: list[Hashable]) -> list[Hashable]:
    """The roles of machines, in order of first appearance: those of their members together."""
    found: dict[str, list[Hashable]] = {}
    for member, role in zip(program.job.members, roles, strict=True):
        found.setdefault(traffic.endpoints[member].machine, []).append(role)
    return [tuple(sorted(parts, key=repr)) for parts in found.values()]


def same_role(roles: list[Hashable]) -> list[np.ndarray]:
    """Index sets of members that may be compared: all of them when alike, else classes of three and more."""
    classes: dict[Hashable, list[int]] = {}
    for index, role in enumerate(roles):
        classes.setdefault(role, []).append(index)
    least = 2 if len(classes) == 1 else 3
    return [np.array(members) for members in classes.values() if len(members) >= least]
