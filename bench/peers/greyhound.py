# SPDX-License-Identifier: Apache-2.0
"""Greyhound: a change point in iteration time, then profiling of groups, then validation of GPUs and links.

Source: "Greyhound: Hunting Fail-Slows in Hybrid-Parallel Training at Scale", USENIX ATC 2025 (preprint:
Falcon, arXiv 2410.12588); read from the abstract and notes on both.

Reading. Iterations are found from the period of collective calls. Bayesian online change-point detection on
iteration time proposes an onset, which counts if the mean behind it is 10 % above the mean before. Groups
whose collectives are slow are profiled; in them a matrix product is timed on every GPU, and transfers between
neighbours on every link. A GPU or a link that is 10 % slower than the median is the cause. Hangs are no
matter of Greyhound.

What cannot be had: its benchmarks run while training is paused, and a recorded run cannot be paused. Their
place is taken by what the log holds of the same parts: for a GPU the time outside of operations per
iteration, for a link the request time per byte on each rank-to-rank edge, both since the change. The first
misses slowness that overlaps with operations, the second sees a link under load instead of alone.

Where the description is open, what helps: all groups are validated, not only slow ones; GPUs of a machine
that wait for each other are told apart from a slow one by the least waiting; a machine is named for slow
links when all slow ones touch it and there are two; a single slow link is reported as a link. The share by
which a link must be slow is raised to 1.5, since load makes healthy ones differ by more than 10 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.change_point import change_points
from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import Floats, iteration_times
from bench.peers.operator_log import NEVER, OperatorLog, operator_log

SLOWER = 1.1  # published: verification of a change
GPU_SLOWER = 1.1  # published: validation
LINK_SLOWER = 1.5  # published: 1.1; see above
LEAST_OUTSIDE = 0.1  # of an iteration that must be outside of operations to stand for computing
HAZARD = 1 / 100  # prior of a change per iteration
SPREAD = 0.01  # prior spread of iteration times, as a share


class Greyhound:
    """The three phases of Greyhound on an operator log."""

    name = "greyhound"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """Fail-slows, job by job."""
        log = operator_log(truth)
        return [verdict for job in log.jobs for verdict in judge(log.job(job))]


def judge(log: OperatorLog) -> list[ContenderVerdict]:
    """What Greyhound says of one job."""
    change = slowdown(iteration_times(log))
    if change is None:
        return []
    step = change + 1
    machines = _slow_machines(log, step)
    if machines:
        return [ContenderVerdict(one, "compute_slow", "fail_slow", step) for one in machines]
    links = _slow_links(log, step)
    if not links:
        return [ContenderVerdict(None, None, "fail_slow", step)]
    ends = [{log.machine(a), log.machine(b)} for a, b in links]
    shared = set.intersection(*ends)
    machine = next(iter(shared)) if len(shared) == 1 and len(links) > 1 else None
    return [ContenderVerdict(machine, "link_slow", "fail_slow", step)]


def slowdown(times: Floats) -> int | None:
    """The first change point behind which iterations are slower on average, to the end or the next change."""
    if len(times) < 3:
        return None
    places = [*change_points(np.log(times / times[0]), HAZARD, SPREAD), len(times)]
    before = 0
    for change, end in pairwise(places):
        past, now = times[before:change], times[change:end]
        if len(past) and len(now) and now.mean() > SLOWER * past.mean():
            return change
        before = change
    return None


def _slow_machines(log: OperatorLog, step: int) -> list[str]:
    """Machines with a GPU whose time outside of operations is above the others' median.

    GPUs of a machine wait for each other there as well, so that its least waiting GPU stands for it. Where
    the time is a small part of the iteration, computing overlaps with operations, and it tells nothing.
    """
    outside: dict[str, float] = {}
    for rank in log.ranks:
        machine = log.machine(rank)
        outside[machine] = min(_outside_ns(log, rank, step), outside.get(machine, np.inf))
    usual = float(np.median(list(outside.values())))
    if usual < LEAST_OUTSIDE * float(np.median(iteration_times(log))):
        return []
    return sorted(machine for machine, ns in outside.items() if ns > GPU_SLOWER * usual)


def _outside_ns(log: OperatorLog, rank: int, step: int) -> float:
    """Median over iterations since ``step`` of the time that a rank spends between operations."""
    rows = log.of_rank(rank)
    rows = rows[(rows["step"] >= step - 1) & (rows["end_ns"] != NEVER)]
    if len(rows) < 2:
        return 0.0
    gaps = rows["enter_ns"][1:] - rows["end_ns"][:-1]
    steps = rows["step"][1:]
    sums = [float(gaps[steps == one].sum()) for one in np.unique(steps[steps >= step])]
    return float(np.median(sums)) if sums else 0.0


def _slow_links(log: OperatorLog, step: int) -> list[tuple[int, int]]:
    """Edges whose request time per byte is above the median of all edges."""
    sums: dict[tuple[int, int], list[float]] = {}
    for one in log.requests:
        operation = log.operations[one["operation"]]
        if operation["step"] >= step and one["completed_bytes"] > 0:
            both = sums.setdefault((int(operation["rank"]), int(one["peer"])), [0.0, 0.0])
            both[0] += float(one["busy_ns"])
            both[1] += float(one["completed_bytes"])
    cost = {edge: busy / sent for edge, (busy, sent) in sums.items()}
    usual = float(np.median(list(cost.values()))) if cost else 0.0
    return [edge for edge, one in cost.items() if one > LINK_SLOWER * usual]
