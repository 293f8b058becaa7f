# SPDX-License-Identifier: Apache-2.0
"""A case against somebody slow, and what it is measured by: lateness, and time of the critical path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features
from host_ctl.attribute.path import Step, path_time
from host_ctl.diagnose.decide import Shift
from host_ctl.diagnose.queues import Queue
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

_MIN_SIDE = 3  # iterations


@dataclass(frozen=True, slots=True)
class SlowCase:
    """One accepted shift with the feature that it was found in.

    ``names`` are columns of the features;
    ``shared`` the edges, without a common end, that are slow together; ``queue`` the one that the network
    marked their packets in, if it did; ``worth_ns`` what an iteration would gain by the replay.
    """

    feature: str
    names: tuple[int, ...]
    shift: Shift
    shared: tuple[tuple[int, int], ...] = ()
    queue: Queue | None = None
    worth_ns: float = 0.0


def usable_iterations(features: Features) -> NDArray[np.bool_]:
    """Iterations to judge by: leave out the first iteration (warm-up) and the last (perhaps cut off)."""
    usable = np.ones(len(features.duration_ns), dtype=bool)
    usable[:1] = usable[-1:] = False
    return usable


def machine_columns(traffic: Traffic, job: Job) -> dict[str, list[int]]:
    """Columns of the features by machine."""
    found: dict[str, list[int]] = {}
    for column, member in enumerate(job.members):
        found.setdefault(traffic.endpoints[member].machine, []).append(column)
    return found


def excess_of(table: NDArray[np.float64], case: SlowCase, features: Features) -> float:
    """How much more a member lost inside the shift than the median of the others."""
    inside = np.zeros(len(features.duration_ns), dtype=bool)
    inside[case.shift.onset : case.shift.end] = True
    own = table[:, list(case.names)].mean(axis=1)
    others = np.delete(table, list(case.names), axis=1)
    return float(np.median(own[inside] - np.median(others[inside], axis=1))) if others.shape[1] else 0.0


def rise_inside(features: Features, usable: NDArray[np.bool_], inside: tuple[int, int]) -> float | None:
    """By how much iterations are longer inside than outside (ns), None without enough of both."""
    within = np.zeros(len(usable), dtype=bool)
    within[inside[0] : inside[1]] = True
    before, after = features.duration_ns[usable & ~within], features.duration_ns[usable & within]
    if min(len(before), len(after)) < _MIN_SIDE:
        return None
    return float(np.median(after) - np.median(before))


def path_excess(case: SlowCase, job: Job, paths: Table) -> float:
    """What the accused take of the critical path per iteration inside the shift, beyond others' median."""
    inside = slice(case.shift.onset, case.shift.end)
    own = path_time(paths, Step.HOST, "src", [job.members[n] for n in case.names], job.iterations)[inside]
    others = [
        float(path_time(paths, Step.HOST, "src", [m], job.iterations)[inside].mean())
        for n, m in enumerate(job.members)
        if n not in case.names
    ]
    return float(own.mean()) - (float(np.median(others)) if others else 0.0)
