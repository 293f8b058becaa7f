# SPDX-License-Identifier: Apache-2.0
"""Sums charges per iteration into what the diagnosis compares: one number per NIC and iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.charges import CHARGE, Charge
from host_ctl.attribute.program import UNKNOWN, Program, iteration_of_rows
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start


@dataclass(frozen=True, slots=True)
class Features:
    """Lost time in ns per (iteration, member), members in the job's order.

    ``host``: late sends and late credits together; ``egress`` and ``ingress``: slow transfers out of and
    into the NIC; ``repair``: repeats of what the NIC sent, data and credits. ``duration_ns`` is each
    iteration's time.
    """

    members: tuple[int, ...]
    duration_ns: NDArray[np.int64]
    host: NDArray[np.float64]
    egress: NDArray[np.float64]
    ingress: NDArray[np.float64]
    repair: NDArray[np.float64]


def extract_features(charges: Table, job: Job) -> Features:
    """The features of a job from its charges."""
    kind = charges["kind"]
    own = np.where(kind == Charge.CREDIT, charges["dst"], charges["src"])
    is_host = np.isin(kind, (Charge.HOST, Charge.CREDIT))
    repair_src = np.where(kind == Charge.REPAIR_CREDIT, charges["dst"], charges["src"])
    return Features(
        members=job.members,
        duration_ns=np.diff(job.boundaries_ns),
        host=_sum(charges, own, is_host, job),
        egress=_sum(charges, charges["src"], kind == Charge.TRANSFER, job),
        ingress=_sum(charges, charges["dst"], kind == Charge.TRANSFER, job),
        repair=_sum(charges, repair_src, np.isin(kind, (Charge.REPAIR, Charge.REPAIR_CREDIT)), job),
    )


def under_way(traffic: Traffic, program: Program) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time per (iteration, member) with anything under way out of the NIC, and into it (ns).

    Messages that share a port slow each other, so that the longest of many says little of the port: what a
    late member has piled up it sends at once, and every message takes long. All of them together do not.
    """
    iteration = iteration_of_rows(traffic, program)
    rows = np.flatnonzero(iteration != UNKNOWN)
    t = traffic.transfers[rows]
    moves = np.zeros(len(rows), CHARGE)
    moves["start"], moves["end"], moves["iteration"] = send_start(t), arrival(t), iteration[rows]
    edges = np.array(traffic.edges).reshape(-1, 2)[t["edge"]]
    every = np.ones(len(rows), dtype=bool)
    return _sum(moves, edges[:, 0], every, program.job), _sum(moves, edges[:, 1], every, program.job)


def _sum(charges: Table, owner: NDArray[np.int64], mask: NDArray[np.bool_], job: Job) -> NDArray[np.float64]:
    """Length of the union of the chosen charges per iteration and owner.

    A NIC that holds up two messages at once loses the time once.
    """
    out = np.zeros((job.iterations, len(job.members)))
    chosen = charges[mask]
    own = owner[mask]
    for column, member in enumerate(job.members):
        out[:, column] = time_covered(chosen[own == member], job.iterations)
    return out


def time_covered(charges: Table, iterations: int) -> NDArray[np.float64]:
    """Length of the union of some charges in each iteration (ns)."""
    out = np.zeros(iterations)
    if not len(charges):
        return out
    part = charges[np.argsort(charges["start"], kind="stable")]
    reached = np.maximum.accumulate(part["end"])
    begin = np.maximum(part["start"], np.r_[part["start"][0], reached[:-1]])
    length = np.maximum(part["end"] - begin, 0)
    np.add.at(out, part["iteration"], length.astype(np.float64))
    return out
