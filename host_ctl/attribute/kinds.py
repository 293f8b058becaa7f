# SPDX-License-Identifier: Apache-2.0
"""Names the collectives of a group by what the wire shows of them.

In a ring of n members an AllReduce sends 2(n-1) chunks per member and a ReduceScatter or an AllGather n-1,
and only the first chunk needs no input: the learned needs tell its size. ReduceScatter and AllGather look
the same on the wire. (Volumes: NVIDIA/nccl-tests, doc/PERFORMANCE.md.)
"""

from __future__ import annotations

import numpy as np

from host_ctl.attribute.needs import Needs
from host_ctl.attribute.program import Program

RING_STEPS = "reduce_scatter_or_all_gather"
_OF_SHAPE = {"tree": "allreduce", "alltoall": "alltoall", "pairwise": "sendrecv", "unknown": "unknown"}
_TOLERANCE = 0.25


def operator_kinds(program: Program, needs: Needs) -> tuple[str, ...]:
    """The kind of each group's operators, in the job's order; ``ring`` where the chunks do not tell."""
    kinds = []
    for number, timeline in enumerate(program.job.timelines):
        group = timeline.group
        kind = _OF_SHAPE.get(group.algorithm)
        kinds.append(kind or _ring_kind(program, needs, number, len(group.members)))
    return tuple(kinds)


def _ring_kind(program: Program, needs: Needs, number: int, members: int) -> str:
    chunk = _first_chunk(program, needs, number)
    timeline = program.job.timelines[number]
    sent = float(np.median([o.messages for o in timeline.operators])) / sum(
        lane.group == number for lane in program.lanes
    )
    if not chunk:
        return "ring"
    steps = sent / chunk
    # In a ring of two both have the same number of steps but for the factor two, which the chunk shows.
    for kind, expected in (("allreduce", 2 * (members - 1)), (RING_STEPS, members - 1)):
        if abs(steps - expected) <= _TOLERANCE:
            return kind
    return "ring"


def _first_chunk(program: Program, needs: Needs, number: int) -> int:
    """Messages that a member of the ring may send before it has got any of the same unit."""
    found = []
    for (index, source), need in needs.items():
        lane, arrivals = program.lanes[index], program.arrivals[source]
        if lane.group == arrivals.group == number:
            found.append(int(np.searchsorted(need, 1)))
    # Channels that run in step seem to need something of each other one message earlier.
    return int(np.median(found)) if found else 0
