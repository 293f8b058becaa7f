# SPDX-License-Identifier: Apache-2.0
"""Holmes: irregular iterations, abnormal operators in them, a search along waiting, a vote over iterations.

Source: "Holmes: Localizing Irregularities in LLM Training with Mega-scale GPU Clusters", NSDI 2025; read from
the abstract and summaries.

Reading. An iteration that lasts longer than usual is irregular. In it, operators whose duration is unlike
their past are abnormal (a random forest over operator features in the paper). Operators are joined to a
graph: those of one collective, and those that follow each other on a GPU. The search begins at the abnormal
operator that comes first and goes to whom it waits for, until it meets a GPU that waits for nobody. A vote
over irregular iterations decides.

Where the description is open, what helps: in place of a forest trained on labelled faults, which a site does
not have, one threshold on duration against the same operator's median in regular iterations, set on healthy
runs (constants below); an operator counts only if it explains part of the iteration's delay; in a collective
the rank that waits for nobody is the last to enter if it did not wait itself; between two ranks the one that
came back latest from computing. A collective in which all ranks last long is found by the paper as a group:
no machine is named then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import Floats, iteration_times
from bench.peers.operator_log import NEVER, NO_NUMBER, OperatorLog, Table, operator_log

IRREGULAR = 1.1  # of the usual iteration
ABNORMAL = 1.5  # of the operator's usual duration
EXPLAINS = 0.25  # of the iteration's delay that an abnormal operator must explain
HISTORY = 4  # regular iterations before anything is judged
VOTES = 3  # irregular iterations before a verdict
MAJORITY = 0.6

Key = tuple[int, int]  # rank and place of an operation in its step
Finding = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class Usual:
    """Median duration of every operator, and of the computing before it, in regular iterations."""

    duration_ns: Mapping[Key, float]
    before_ns: Mapping[Key, float]


class Holmes:
    """The search of Holmes on an operator log."""

    name = "holmes"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """Irregularities, job by job."""
        log = operator_log(truth)
        return [verdict for job in log.jobs for verdict in judge(log.job(job))]


def judge(log: OperatorLog) -> list[ContenderVerdict]:
    """What Holmes says of one job; it is not made for jobs that stand."""
    times = iteration_times(log)
    irregular = irregular_steps(times)
    if len(irregular) < VOTES:
        return []
    regular = sorted(set(range(1, len(times) + 1)) - set(irregular))
    usual = _usual(log, regular)
    votes: Counter[Finding] = Counter()
    for step in irregular:
        delay = float(times[step - 1] - np.median(times[[r - 1 for r in regular]]))
        finding = _search(log, step, usual, delay)
        if finding is not None:
            votes[finding] += 1
    if votes.total() < VOTES:
        return []
    (machine, cause), count = votes.most_common(1)[0]
    agreed = count >= MAJORITY * len(irregular)
    return [ContenderVerdict(machine if agreed else None, cause, "fail_slow", irregular[0])]


def irregular_steps(times: Floats) -> list[int]:
    """Steps that last longer than the median of the regular ones before."""
    regular: list[float] = list(times[:HISTORY])
    found = []
    for place, time in enumerate(times[HISTORY:].tolist(), HISTORY):
        if time > IRREGULAR * float(np.median(regular)):
            found.append(place + 1)
        else:
            regular.append(time)
    return found


def _usual(log: OperatorLog, regular: list[int]) -> Usual:
    durations: dict[Key, list[float]] = {}
    befores: dict[Key, list[float]] = {}
    for rank in log.ranks:
        rows = log.of_rank(rank)
        for row, before in zip(rows, _before_ns(rows), strict=True):
            if row["step"] in regular and row["end_ns"] != NEVER:
                key = rank, int(row["place"])
                durations.setdefault(key, []).append(float(row["end_ns"] - row["enter_ns"]))
                befores.setdefault(key, []).append(before)
    return Usual(
        {key: float(np.median(values)) for key, values in durations.items()},
        {key: float(np.median(values)) for key, values in befores.items()},
    )


def _before_ns(rows: Table) -> list[float]:
    """How long a rank was outside of operations before each of its operations."""
    ends = rows["end_ns"]
    return [0.0, *(rows["enter_ns"][1:] - ends[:-1]).astype(float).tolist()] if len(rows) else []


def _search(log: OperatorLog, step: int, usual: Usual, delay_ns: float) -> Finding | None:
    rows = log.operations[(log.operations["step"] == step) & (log.operations["end_ns"] != NEVER)]
    excess = np.array([_excess(row, usual) for row in rows])
    lasted = (rows["end_ns"] - rows["enter_ns"]).astype(float)
    abnormal = (lasted > ABNORMAL * (lasted - excess)) & (excess > EXPLAINS * delay_ns)
    if not abnormal.any():
        return None
    first = rows[abnormal][rows["end_ns"][abnormal].argmin()]
    if first["number"] == NO_NUMBER:
        return log.machine(_slower_partner(log, first, usual)), "compute_slow"
    group = (rows["group"] == first["group"]) & (rows["number"] == first["number"])
    if abnormal[group].all():
        return None, "link_slow"
    mine = rows[group]
    return log.machine(int(mine["rank"][mine["enter_ns"].argmax()])), "compute_slow"


def _excess(row: np.void, usual: Usual) -> float:
    lasted = float(row["end_ns"] - row["enter_ns"])
    return lasted - usual.duration_ns.get((int(row["rank"]), int(row["place"])), lasted)


def _slower_partner(log: OperatorLog, waiting: np.void, usual: Usual) -> int:
    """Of the ranks that an operation may wait for, the one that computed longest beyond usual."""
    rank = int(waiting["rank"])
    best, most = rank, -np.inf
    for partner in log.partners().get(rank, set()):
        mine = log.of_rank(partner)
        for row, before in zip(mine, _before_ns(mine), strict=True):
            if row["step"] != waiting["step"] or row["enter_ns"] > waiting["end_ns"]:
                continue
            beyond = before - usual.before_ns.get((partner, int(row["place"])), before)
            if beyond > most:
                best, most = partner, beyond
    return best
