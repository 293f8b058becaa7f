# SPDX-License-Identifier: Apache-2.0
"""RAS: ranks whose counts of collective calls differ, and processes that do not answer.

Source: the RAS subsystem of NCCL (since 2.24; counts per collective type since 2.26), as the NCCL user guide
describes it under "RAS", and public reports about it (NVIDIA/nccl issues 1730 and 1911).

Reading. The RAS threads keep each other alive over TCP, beside the RDMA network: a process that ended is
reported dead. When asked, RAS compares per communicator how often each rank has called each collective; ranks
that differ from the rest are outliers. Slowness is no matter of RAS: a rank that is late catches up before
anybody asks.

Where the description is open, what helps: it is asked at the end of the run, after the job has stood for
long, and only if an operation is open; of two unequal camps the smaller one that lags is named, never those
ahead (the real report prints the minority, also when it is ahead); an outlier that itself waits in an
operation of another communicator is left out; point-to-point calls are not counted, as their number differs
by design.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import only, standing, stands
from bench.peers.operator_log import OperatorLog, operator_log


class Ras:
    """The report of RAS on a job that stands."""

    name = "ras"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """Dead processes and outliers, job by job."""
        log = operator_log(truth)
        return [verdict for job in log.jobs for verdict in judge(log.job(job))]


def judge(log: OperatorLog) -> list[ContenderVerdict]:
    """What RAS says of one job."""
    dead = {place.machine for place in log.ranks.values() if place.ended_ns is not None}
    if dead:
        return [ContenderVerdict(only(dead), "crash", "fail_stop", _reached(log))]
    if not stands(log):
        return []
    lagging = {log.machine(rank) for rank in _lagging(log)}
    return [ContenderVerdict(only(lagging), "hang", "fail_stop", _reached(log))] if lagging else []


def _lagging(log: OperatorLog) -> set[int]:
    """Ranks that called fewer collectives of a communicator than the others, and do not wait elsewhere."""
    blocked = set(standing(log)["rank"].tolist())
    found: set[int] = set()
    for group in range(len(log.groups)):
        members = log.members(group)
        counts = {rank: _calls(log, rank, group) for rank in members}
        behind = {rank for rank, count in counts.items() if count < max(counts.values())}
        if behind and 2 * len(behind) <= len(members):
            found |= behind - blocked
    return found


def _calls(log: OperatorLog, rank: int, group: int) -> int:
    rows = log.of_rank(rank)
    return int(((rows["group"] == group) & (rows["number"] >= 0)).sum())


def _reached(log: OperatorLog) -> int | None:
    return int(log.operations["step"].max()) if len(log.operations) else None
