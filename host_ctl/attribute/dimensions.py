# SPDX-License-Identifier: Apache-2.0
"""Names the parallel dimension of every group, and the order of the stages of pipelines.

- ``pp``, pipeline stages: a chain along which both ends of every hop send in turn, many times per iteration,
  since micro-batches go down and gradients come back; a stage computes on all of what it got before it sends.
- ``ep``, experts: an all-to-all of unequal volumes that change from one exchange to the next, since routing
  follows the data. Equal all-to-alls may be anything: unknown.
- ``cp``, context: a ring of more than two whose members hand on whole blocks and compute between, since
  attention needs a whole block of keys and values. The blocks are not cut by the number of members. Two that
  only exchange blocks may be pairs of anything.
- ``dp``, data: rings whose members pass on piece by piece, and trees: sums of gradients, or parameters in
  parts. They join replicas, which are like stages where there are pipelines. A collective that joins unlike
  stages (shared embeddings) is none. Tensor parallelism stays inside of machines, where no NIC sees it.

Everything else is ``unknown``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from host_ctl.attribute.forwarding import (
    computes_between,
    own_needs,
    passes_blocks,
    sends_all_first,
)
from host_ctl.attribute.gates import Gates
from host_ctl.attribute.needs import Needs, Sharing
from host_ctl.attribute.places import stage_order
from host_ctl.attribute.program import Program
from host_ctl.reconstruct.jobs import GroupTimeline
from host_ctl.reconstruct.transfers import Traffic, send_start

_MOST = 0.5
_PAIR = 2
_SEVERAL = 2
_THERE_AND_BACK = 2  # changes of direction in an iteration of a single micro-batch

DimensionName = Literal["dp", "pp", "ep", "cp", "unknown"]


@dataclass(frozen=True, slots=True)
class Dimension:
    """The dimension of one group; ``stages``: the members of a pipeline, the first stage first, if known."""

    name: DimensionName
    stages: tuple[int, ...] = ()


UNKNOWN_DIMENSION = Dimension("unknown")


def find_dimensions(
    traffic: Traffic, program: Program, needs: Needs, gates: tuple[Gates, ...], sharing: Sharing
) -> tuple[Dimension, ...]:
    """The dimension of every group of a job, in the job's order."""
    numbers = range(len(program.job.timelines))
    found = [_alone(traffic, program, needs, gates, sharing, number) for number in numbers]
    pipelines = [
        (timeline.group.members, dimension.stages)
        for timeline, dimension in zip(program.job.timelines, found, strict=True)
        if dimension.name == "pp"
    ]
    for number, timeline in enumerate(program.job.timelines):
        if found[number].name == "dp" and not _joins_replicas(timeline.group.members, pipelines):
            found[number] = UNKNOWN_DIMENSION
    return tuple(found)


def _alone(
    traffic: Traffic,
    program: Program,
    needs: Needs,
    gates: tuple[Gates, ...],
    sharing: Sharing,
    number: int,
) -> Dimension:
    """What a group's own traffic says."""
    timeline = program.job.timelines[number]
    algorithm = timeline.group.algorithm
    if algorithm == "alltoall":
        return Dimension("ep") if _changes(traffic, timeline) else UNKNOWN_DIMENSION
    if algorithm == "tree":
        return Dimension("dp")
    blocks = passes_blocks(program, needs, number)
    if algorithm not in ("ring", "pairwise"):
        return UNKNOWN_DIMENSION
    if not any(own_needs(program, needs, number)):
        hops = algorithm == "ring" and len(timeline.group.members) > _PAIR
        return Dimension("cp") if hops and sends_all_first(program, gates, number) else UNKNOWN_DIMENSION
    if blocks is None:
        blocks = computes_between(traffic, program, gates, needs, number)
        if algorithm == "ring":
            # Between hops all members compute, so that the group falls silent; steps of a collective do not
            # wait for each other however slow the hosts are that forward them.
            blocks = blocks and len(timeline.operators) > _SEVERAL * timeline.rhythm.units
    if not blocks:
        # A short tree is a chain, and a ring of two a pair: both pass on piece by piece.
        return Dimension("dp") if timeline.regular else UNKNOWN_DIMENSION
    if algorithm == "ring" and len(timeline.group.members) > _PAIR:
        return Dimension("cp")
    if number in sharing.groups:
        return UNKNOWN_DIMENSION
    if _turns(traffic, timeline) > _THERE_AND_BACK:
        return Dimension("pp", tuple(stage_order(program, number) or ()))
    return UNKNOWN_DIMENSION


def _changes(traffic: Traffic, timeline: GroupTimeline) -> bool:
    """Whether the edges of most exchanges carry unequal parts, and other ones than in the exchange before.

    Shares and not bytes are compared: exchanges may have been merged, and edges of equal parts keep them.
    """
    edges = np.array(timeline.group.edges)
    shares = []
    for operator in timeline.operators:
        t = traffic.transfers[operator.rows]
        parts = np.bincount(np.searchsorted(edges, t["edge"]), t["bytes"], minlength=len(edges))
        shares.append(parts / parts.sum())
    table = np.array(shares)
    message = float(traffic.transfers["bytes"][timeline.operators[0].rows].max())
    exact = message / max(1.0, float(np.median([o.bytes for o in timeline.operators])))
    unequal = np.ptp(table, axis=1) > exact
    other = np.abs(np.diff(table, axis=0)).max(axis=1) > exact
    return bool(unequal.mean() > _MOST and (not len(other) or other.mean() > _MOST))


def _turns(traffic: Traffic, timeline: GroupTimeline) -> float:
    """How often in a unit the direction changes on the hop where it does so least."""
    rows = np.concatenate([o.rows for o in timeline.operators])
    t = traffic.transfers[rows]
    ends = np.array(traffic.edges)[t["edge"]]
    found = []
    for pair in {tuple(sorted(traffic.edges[e])) for e in timeline.group.edges}:
        mine = np.flatnonzero((np.sort(ends, axis=1) == pair).all(axis=1))
        order = mine[np.argsort(send_start(t[mine]), kind="stable")]
        found.append(int((np.diff(ends[order, 0]) != 0).sum()) / timeline.rhythm.units)
    return min(found, default=0.0)


def _joins_replicas(
    members: tuple[int, ...], pipelines: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> bool:
    """Whether members are of different pipelines, and of one stage as far as stages are known."""
    if not pipelines:
        return True
    own = [[k for k, (of_pipeline, _) in enumerate(pipelines) if m in of_pipeline] for m in members]
    if any(len(which) != 1 for which in own) or len({which[0] for which in own}) < len(members):
        return False
    orders = [pipelines[which[0]][1] for which in own]
    stages = {order.index(m) for m, order in zip(members, orders, strict=True) if order}
    return len(stages) <= 1
