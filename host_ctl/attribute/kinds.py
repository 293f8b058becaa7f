# SPDX-License-Identifier: Apache-2.0
"""Names the collectives of a group by what the wire shows of them.

In a ring of n members an AllReduce sends 2(n-1) chunks per member and a ReduceScatter or an AllGather n-1,
and only the first chunk needs no input: the learned needs tell its size. ReduceScatter and AllGather look
the same on the wire. A ring whose members hand on whole blocks runs no collective: it sends and receives.
(Volumes: NVIDIA/nccl-tests, doc/PERFORMANCE.md.)
"""

from __future__ import annotations

from host_ctl.attribute.forwarding import passes_blocks, ring_steps
from host_ctl.attribute.needs import Needs
from host_ctl.attribute.program import Program

RING_STEPS = "reduce_scatter_or_all_gather"
_OF_SHAPE = {"tree": "allreduce", "alltoall": "alltoall", "pairwise": "sendrecv", "unknown": "unknown"}


def operator_kinds(program: Program, needs: Needs) -> tuple[str, ...]:
    """The kind of each group's operators, in the job's order; ``ring`` where the chunks do not tell."""
    kinds = []
    for number, timeline in enumerate(program.job.timelines):
        group = timeline.group
        kind = _OF_SHAPE.get(group.algorithm)
        kinds.append(kind or _ring_kind(program, needs, number, len(group.members)))
    return tuple(kinds)


def _ring_kind(program: Program, needs: Needs, number: int, members: int) -> str:
    if passes_blocks(program, needs, number):
        return _OF_SHAPE["pairwise"]
    if members < 2:
        return "ring"  # a NIC that sends to itself
    kind_of = {2 * (members - 1): "allreduce", members - 1: RING_STEPS}
    steps = ring_steps(program, needs, number, tuple(kind_of))
    return "ring" if steps is None else kind_of[steps]
