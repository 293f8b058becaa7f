# SPDX-License-Identifier: Apache-2.0
"""Iteration times and standstills, as any method can read them from an operator log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.peers.operator_log import NEVER, NO_NUMBER, OperatorLog, Table

Floats = NDArray[np.float64]


def step_ends(log: OperatorLog) -> Floats:
    """When the last rank left the last operation of each step that all ranks have finished."""
    operations = log.operations
    if not len(operations):
        return np.zeros(0)
    standing = operations["step"][operations["end_ns"] == NEVER]
    last = int(operations["step"].max()) if not len(standing) else int(standing.min()) - 1
    reached = [int(log.of_rank(rank)["step"].max(initial=-1)) for rank in log.ranks]
    last = min(last, *reached)
    ends = [operations["end_ns"][operations["step"] == step].max() for step in range(last + 1)]
    return np.array(ends, dtype=np.float64)


def iteration_times(log: OperatorLog) -> Floats:
    """Nanoseconds per iteration, from the second one on: entry ``n`` belongs to step ``n + 1``."""
    return np.diff(step_ends(log))


def stands(log: OperatorLog) -> bool:
    """Whether an operation was entered and never left, so that the job waits for good."""
    return bool(np.any(log.operations["end_ns"] == NEVER))


def standing(log: OperatorLog) -> Table:
    """The operations that were entered and never left, by entry."""
    rows = log.operations[log.operations["end_ns"] == NEVER]
    ordered: Table = rows[np.argsort(rows["enter_ns"], kind="stable")]
    return ordered


def only(values: set[str]) -> str | None:
    """The one machine of a set; None when it is empty or there are several."""
    return next(iter(values)) if len(values) == 1 else None


def absent(log: OperatorLog) -> set[int]:
    """Ranks that have not entered a collective in which others stand, and do not stand themselves."""
    waiting = standing(log)
    collective = waiting[waiting["number"] != NO_NUMBER]
    missing: set[int] = set()
    for group, number in {(int(r["group"]), int(r["number"])) for r in collective}:
        here = (log.operations["group"] == group) & (log.operations["number"] == number)
        missing |= log.members(group) - set(log.operations["rank"][here].tolist())
    return _not_waiting(log, missing)


def absent_partners(log: OperatorLog) -> set[int]:
    """Ranks that exchange data with those that stand point to point, and do not stand themselves."""
    waiting = standing(log)
    partners = log.partners()
    alone = waiting["rank"][waiting["number"] == NO_NUMBER].tolist()
    return _not_waiting(log, set().union(*(partners.get(rank, set()) for rank in alone)))


def _not_waiting(log: OperatorLog, ranks: set[int]) -> set[int]:
    """Those of ``ranks`` that wait for nobody.

    GPUs of a machine meet without a logged operation here, where a real log holds one: beside a rank that
    stands, its idle neighbour waits for it, and is left out unless nobody else is left.
    """
    blocked = set(standing(log)["rank"].tolist())
    halted = {log.machine(rank) for rank in blocked}
    idle = ranks - blocked
    return {rank for rank in idle if log.machine(rank) not in halted} or idle


def machines_of(log: OperatorLog, ranks: set[int]) -> set[str]:
    """The machines of some ranks."""
    return {log.machine(rank) for rank in ranks}
