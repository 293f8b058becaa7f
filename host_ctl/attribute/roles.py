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
from host_ctl.attribute.places import find_places
from host_ctl.attribute.program import Program
from host_ctl.reconstruct.transfers import Traffic

_SYMMETRIC = ("ring", "alltoall")


def find_sharing(program: Program, needs: Needs) -> Sharing:
    """Whose members share their norms and needs, from needs learned for each member alone."""
    found = set()
    for number, timeline in enumerate(program.job.timelines):
        if timeline.group.algorithm not in _SYMMETRIC:
            continue
        if len(timeline.group.members) > 2 or _alike(program, needs, number):
            found.add(number)
    groups = frozenset(found)
    return Sharing(groups, find_places(program, groups))


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
    parts: dict[int, list[Hashable]] = {member: [] for member in program.job.members}
    for number in range(len(program.job.timelines)):
        if number not in sharing.groups:
            for member, part in _parts(program, needs, sharing, number).items():
                parts[member].append(part)
    return [tuple(sorted(parts[member], key=repr)) for member in program.job.members]


def _parts(program: Program, needs: Needs, sharing: Sharing, number: int) -> dict[int, Hashable]:
    """What part each member of a group plays in it: its stage of a pipeline, else its place by shape."""
    group = program.job.timelines[number].group
    if group.algorithm == "unknown":
        # Nothing tells which members of a shape without a name do the same.
        return {member: ("unknown", member) for member in group.members}
    lanes = [i for i, lane in enumerate(program.lanes) if lane.group == number]
    if all(sharing.places.lanes[i] is not None for i in lanes):
        return {
            member: (
                "pipeline",
                *sorted(repr(sharing.places.lanes[i]) for i in lanes if program.lanes[i].src == member),
            )
            for member in group.members
        }
    first: dict[int, Hashable] = {}
    for member in group.members:
        own = [i for i in lanes if program.lanes[i].src == member]
        volumes = tuple(sorted(program.lanes[i].volume for i in own))
        waits = tuple(sorted(_first_need(program, needs, i) > 0 for i in own))
        incoming = sum(1 for i in lanes if program.lanes[i].dst == member)
        first[member] = (volumes, waits, incoming)
    whole = tuple(sorted(first.values(), key=repr))
    return {m: (group.algorithm, whole, c) for m, c in _refined(program, number, first).items()}


def _refined(program: Program, number: int, parts: dict[int, Hashable]) -> dict[int, int]:
    """Classes of a group's members whose parts are alike, and whose neighbours' parts are, and theirs.

    Two inner nodes of a tree may have equal lanes and still be unlike: one is nearer to the root.
    """
    classes = _numbered(parts)
    for _ in parts:
        around: dict[int, list[tuple[str, int, int]]] = {member: [] for member in parts}
        for lane in program.lanes:
            if lane.group == number:
                around[lane.src].append(("to", lane.volume, classes[lane.dst]))
                around[lane.dst].append(("from", lane.volume, classes[lane.src]))
        finer = _numbered({m: (classes[m], tuple(sorted(around[m]))) for m in parts})
        if len(set(finer.values())) == len(set(classes.values())):
            break
        classes = finer
    return classes


def _numbered(labels: dict[int, Hashable]) -> dict[int, int]:
    """Equal labels as equal numbers, the same for equal sets of labels."""
    order = {label: i for i, label in enumerate(sorted(set(labels.values()), key=repr))}
    return {member: order[label] for member, label in labels.items()}


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
