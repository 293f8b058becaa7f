# SPDX-License-Identifier: Apache-2.0
"""One stage of a pipeline has more to compute than the others, in every replica alike.

How long a stage computes shows where nothing queues in front of it: when a pipeline fills, every stage
sends its first block as soon as it has computed on the first that it got, and when it drains, the last one.
In between everybody goes at the pace of the slowest, and times tell of waiting. The first stage gets
nothing to begin with, but sends several blocks one after the other; the last one answers its first block
after both ways. A slow machine makes one replica's stage slow, and a heavy stage those of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.dimensions import Dimension
from host_ctl.attribute.features import Features
from host_ctl.attribute.program import UNKNOWN, Lane, Program
from host_ctl.diagnose.cases import usable_iterations
from host_ctl.diagnose.notices import LEAST_COST, notice, usual_ns
from host_ctl.diagnose.verdict import Evidence, Verdict
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start

_LEAST_HEAVIER = 0.1  # five times the 2 % by which healthy machines differ for good
_FEWEST_STAGES = 3  # the first and the last of two show different things
_FEWEST_REPLICAS = 2  # on different machines, or a heavy stage is a slow machine
_FEWEST_ITERATIONS = 6  # as for faults: fewer do not tell what stays
_ALIKE = 0.9  # of the iterations
_PAUSE = 0.25  # of the longest between two messages of a lane: blocks are computed, their messages are not


@dataclass(frozen=True, slots=True)
class _Hop:
    """The messages of one edge of a pipeline, (iteration, place), in ns since the job began; NaN unknown."""

    start: NDArray[np.float64]
    arrival: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Work:
    """What the stages of one replica compute per block (ns, (iteration, stage)).

    ``ahead`` has all stages but the last, ``back`` those in the middle, ``both`` the last one, whose ways do
    not show apart. ``stages`` are endpoints, ``blocks`` how many an iteration has.
    """

    stages: tuple[int, ...]
    ahead: NDArray[np.float64]
    back: NDArray[np.float64]
    both: NDArray[np.float64]
    blocks: int


def stage_imbalance(
    traffic: Traffic, program: Program, features: Features, dimensions: Sequence[Dimension]
) -> Verdict | None:
    """A notice when one stage computes longer than the others in all replicas and iterations."""
    job = program.job
    usable = usable_iterations(features)
    works = replica_work(traffic, program, dimensions) if usable.sum() >= _FEWEST_ITERATIONS else None
    if not works:
        return None
    ratios = np.stack([heavier(work.ahead, work.back, work.both)[usable] for work in works])
    stage = heavy_stage(ratios)
    if stage is None or len({traffic.endpoints[w.stages[stage]].machine for w in works}) < _FEWEST_REPLICAS:
        return None
    factor, base = float(np.median(ratios[:, :, stage])), usual_ns(features)
    work = works[0]
    block = float(np.nanmedian(work.ahead[:, 1:] + work.back))
    cost = (factor - 1) * block * work.blocks
    if cost < LEAST_COST * base:
        return None
    first = int(np.flatnonzero(usable)[0])
    return notice(
        job,
        "stage_imbalance",
        f"no machine is to blame: stage {stage + 1} of {ratios.shape[2]} of {job.id} computes "
        f"{factor:.2f} times as long per micro-batch as the others, in all {len(works)} replicas",
        (
            Evidence("work_of_stage", factor, 1.0, "times the others"),
            Evidence("least_replica", float(np.median(ratios[:, :, stage], axis=1).min()), 1.0, "times"),
            Evidence("replicas_alike", float(len(works)), float(len(works)), "replicas"),
        ),
        onset=first,
        detected=min(first + 2, job.iterations - 1),
        cost_ns=cost * job.iterations,
        confidence=0.9,
        scope="stage",
    )


def replica_work(traffic: Traffic, program: Program, dimensions: Sequence[Dimension]) -> list[Work] | None:
    """What the stages of every replica compute; None where pipelines differ, or any of them does not tell."""
    chains = [(n, d.stages) for n, d in enumerate(dimensions) if d.name == "pp" and d.stages]
    lengths = {len(stages) for _, stages in chains}
    if len(lengths) != 1 or lengths.pop() < _FEWEST_STAGES:
        return None
    works = [_work(traffic, program, number, stages) for number, stages in chains]
    known = [work for work in works if work is not None]
    return known if len(known) == len(works) else None


def heavier(
    ahead: NDArray[np.float64], back: NDArray[np.float64], both: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How many times as long each stage computes as the median of the others: (iteration, stage).

    The first stage shows one way only, and is held up where the second takes long to get its blocks.
    """
    ways = np.column_stack([ahead[:, 1:] + back, both])
    first = ahead[:, 0] / np.median(ahead[:, 1:], axis=1)
    others = [np.median(np.delete(ways, stage, axis=1), axis=1) for stage in range(ways.shape[1])]
    return np.column_stack([first, ways / np.stack(others, axis=1)])


def heavy_stage(ratios: NDArray[np.float64]) -> int | None:
    """The only stage that is clearly heavier in every replica (replica, iteration, stage), None without."""
    least = np.nanmedian(ratios, axis=1).min(axis=0)
    heavy = np.flatnonzero(least >= 1 + _LEAST_HEAVIER)
    if len(heavy) > 1 and heavy[0] == 0:
        heavy = heavy[1:]  # the first stage is held up behind another
    if len(heavy) != 1:
        return None
    stage = int(heavy[0])
    alike = np.mean(ratios[:, :, stage] >= 1 + _LEAST_HEAVIER / 2, axis=1).min()
    return stage if alike >= _ALIKE else None


def _work(traffic: Traffic, program: Program, number: int, stages: tuple[int, ...]) -> Work | None:
    """What the stages of one pipeline compute; None where its blocks are not clear."""
    lanes = {(lane.src, lane.dst): lane for lane in program.lanes if lane.group == number}
    if len(lanes) != 2 * (len(stages) - 1) or sum(x.group == number for x in program.lanes) != len(lanes):
        return None  # several channels: which of them carries which part of a block is not known
    hops = {ends: _hop(traffic, program, lane) for ends, lane in lanes.items()}
    block = block_messages([hop.start for hop in hops.values()])
    if block is None or any(hop.start.shape[1] < 2 * block for hop in hops.values()):
        return None
    first, last = stages[0], stages[-1]
    out, into = hops[first, stages[1]], hops[stages[-2], last]
    answer = hops[last, stages[-2]].start[:, 0]
    if np.nanmedian(answer - into.arrival[:, -1]) > 0:
        return None  # it answers when all has come: what it takes for one block does not show
    middle = list(zip(stages, stages[1:], stages[2:], strict=False))
    ahead = [out.start[:, block] - out.arrival[:, block - 1]]
    ahead += [hops[b, c].start[:, 0] - hops[a, b].arrival[:, block - 1] for a, b, c in middle]
    back = [hops[b, a].start[:, -block] - hops[c, b].arrival[:, -1] for a, b, c in middle]
    both = answer - into.arrival[:, block - 1]
    blocks = out.start.shape[1] // block
    work = Work(stages, np.stack(ahead, axis=1), np.stack(back, axis=1), both, blocks)
    least = min(np.nanmedian(work.ahead), np.nanmedian(work.back), np.nanmedian(both))
    return work if least > 0 else None


def _hop(traffic: Traffic, program: Program, lane: Lane) -> _Hop:
    rows = traffic.transfers[lane.rows]
    known = (lane.unit != UNKNOWN) & (lane.place < lane.volume)
    found = []
    for times in (send_start(rows), arrival(rows)):
        table = np.full((program.job.iterations, lane.volume), np.nan)
        since = times[known] - program.job.boundaries_ns[0]
        table[lane.unit[known], lane.place[known]] = since
        found.append(table)
    return _Hop(*found)


def block_messages(starts: Sequence[NDArray[np.float64]]) -> int | None:
    """How many messages a block has: messages of one follow each other at once on every edge.

    ``starts`` are (iteration, place) per edge. None where no pauses part the messages of some edge.
    """
    size = 0
    for start in starts:
        if start.shape[1] < 2:
            return None
        pauses = np.nanmedian(np.diff(start, axis=1), axis=0)
        cuts = np.flatnonzero(pauses > _PAUSE * np.nanmax(pauses)) + 1
        for a, b in pairwise([0, *cuts.tolist(), start.shape[1]]):
            size = gcd(size, b - a)
    return size or None
