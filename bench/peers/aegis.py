# SPDX-License-Identifier: Apache-2.0
"""Aegis: failures by launch and work-request counts, degradation by collective durations.

Source: "Evolution of Aegis: Fault Diagnosis for AI Model Training Service in Production", NSDI 2025, the
second phase (procedure-aware diagnosis by a customised collective library) and the section on performance
degradation; read from notes and reference works, the text itself was not at hand.

Reading. *Failure*: a rank that launched fewer collectives (CL) than the others has failed in computing. If
all launched, ranks whose work requests (WR) and completions (WC) differ have failed in communication; source
and destination of each such pair are suspects. *Degradation*: a metric that leaves its past by Z-score for
long starts it. A rank whose collective lasts less than 0.8 of the group's mean came last, so it computes
slowly. A rank whose network phase lasts more than 1.5 of the mean communicates slowly.

Where the description is open, what helps: the watched metric is the iteration time itself; a rank that has
not launched because it waits in another operation is no suspect; of the suspects of several pairs, the
machine that all pairs share is named; N is read as the time during which requests are under way (with N as
bytes per second nobody would ever be slow); a suspect must be one in most iterations since the alarm, and
communication is judged first, since a late rank does not prolong requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import (
    Floats,
    absent,
    absent_partners,
    iteration_times,
    machines_of,
    only,
    standing,
    stands,
)
from bench.peers.operator_log import NEVER, OperatorLog, operator_log

SHORT, LONG = 0.8, 1.5  # published: alpha and beta
Z_LIMIT = 3.0
LEAST_SPREAD = 0.01  # of the mean: no run is steadier than this
WINDOW = 3  # iterations that stand for the published ten minutes
HISTORY = 4
SHARE = 0.6  # of the iterations since the alarm in which a suspect must be one


class Aegis:
    """The rules of Aegis on an operator log."""

    name = "aegis"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """Both kinds of rule, job by job."""
        log = operator_log(truth)
        return [verdict for job in log.jobs for verdict in judge(log.job(job))]


def judge(log: OperatorLog) -> list[ContenderVerdict]:
    """What Aegis says of one job."""
    return _failure(log) if stands(log) else _degradation(log)


def _failure(log: OperatorLog) -> list[ContenderVerdict]:
    waiting = standing(log)
    iteration = int(waiting["step"].max())
    idle = machines_of(log, absent(log))
    if idle:
        return [ContenderVerdict(only(idle), "hang", "fail_stop", iteration)]
    rows = np.flatnonzero(log.operations["end_ns"] == NEVER)
    requests = log.requests[np.isin(log.requests["operation"], rows)]
    pending = requests[requests["requests"] != requests["completions"]]
    pairs = [
        {log.machine(int(log.operations["rank"][one["operation"]])), log.machine(int(one["peer"]))}
        for one in pending
    ]
    if pairs:
        return [ContenderVerdict(only(set.intersection(*pairs)), "nic_dead", "fail_stop", iteration)]
    idle = machines_of(log, absent_partners(log))
    return [ContenderVerdict(only(idle), "hang" if idle else None, "fail_stop", iteration)]


def alarm(times: Floats) -> int | None:
    """The first entry from which WINDOW iterations in a row leave the past by Z-score."""
    for first in range(HISTORY, len(times) - WINDOW + 1):
        past = times[:first]
        spread = max(float(past.std()), LEAST_SPREAD * float(past.mean()))
        if np.all(times[first : first + WINDOW] > past.mean() + Z_LIMIT * spread):
            return first
    return None


def _degradation(log: OperatorLog) -> list[ContenderVerdict]:
    first = alarm(iteration_times(log))
    if first is None:
        return []
    step = first + 1
    slow, late = _suspects(log, step)
    steps = int(log.operations["step"].max()) - step + 1
    for found, cause in ((slow, "nic_slow"), (late, "compute_slow")):
        most = found.most_common(1)
        if most and most[0][1] >= SHARE * steps:
            return [ContenderVerdict(most[0][0], cause, "fail_slow", step)]
    return [ContenderVerdict(None, None, "fail_slow", step)]


def _suspects(log: OperatorLog, step: int) -> tuple[Counter[str], Counter[str]]:
    """In how many iterations each machine communicates slowly, and comes late."""
    busy = _network_ns(log)
    slow: set[tuple[int, str]] = set()
    late: set[tuple[int, str]] = set()
    for rows in log.collectives():
        now = int(rows["step"][0])
        if now < step or len(rows) < 2 or np.any(rows["end_ns"] == NEVER):
            continue
        lasted = (rows["end_ns"] - rows["enter_ns"]).astype(float)
        network = np.array([busy.get((int(r["rank"]), int(r["enter_ns"])), 0.0) for r in rows])
        for rank in rows["rank"][lasted < SHORT * lasted.mean()].tolist():
            late.add((now, log.machine(rank)))
        for rank in rows["rank"][network > LONG * network.mean()].tolist():
            slow.add((now, log.machine(rank)))
    return Counter(machine for _, machine in slow), Counter(machine for _, machine in late)


def _network_ns(log: OperatorLog) -> dict[tuple[int, int], float]:
    """How long requests were under way, by rank and entry of the operation."""
    found: dict[tuple[int, int], float] = {}
    for one in log.requests:
        operation = log.operations[one["operation"]]
        key = int(operation["rank"]), int(operation["enter_ns"])
        found[key] = found.get(key, 0.0) + float(one["busy_ns"])
    return found
