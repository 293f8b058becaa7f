# SPDX-License-Identifier: Apache-2.0
"""CCL-D: six classes of slow and hanging collectives, told apart by entry, duration and rate of each rank.

Source: "CCL-D: A High-Precision Diagnostic System for Slow and Hang Anomalies in Large-Scale Model Training",
arXiv 2605.04478 (PPoPP 2026); read from its abstract, summaries and comparisons in later work.

Reading. *Hang*: ranks that did not enter what others wait in; else ranks whose call differs from the others'
(kind or size); else the rank that has sent the least of what it should. *Slow*: within a window, collectives
that last about three times as long as usual. If durations within the group differ as much, the rank with the
shortest one came last and computes slowly; if not, the rank that sends at the lowest rate communicates
slowly. The mixed class is both at once, here decided collective by collective.

Where the description is open, what helps: usual is the median of the same collective's past; the window is a
few iterations instead of a minute; the rank that wins most slow collectives of the window is named, if most
agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import absent, absent_partners, machines_of, only, standing, stands
from bench.peers.operator_log import NEVER, NO_NUMBER, OperatorLog, Table, operator_log

SLOW = 3.0  # published, "near 3"
RATE = 0.8  # a sender below this share of the median is slow
WINDOW = 5  # iterations
SHARE = 0.6  # of the window that must hold a slow collective, and of the votes that must agree
HISTORY = 4


class CclD:
    """The rules of CCL-D on an operator log."""

    name = "ccl-d"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """Hangs and slow collectives, job by job."""
        log = operator_log(truth)
        return [verdict for job in log.jobs for verdict in judge(log.job(job))]


def judge(log: OperatorLog) -> list[ContenderVerdict]:
    """What CCL-D says of one job."""
    return _hang(log) if stands(log) else _slow(log)


def _hang(log: OperatorLog) -> list[ContenderVerdict]:
    waiting = standing(log)
    iteration = int(waiting["step"].max())
    idle = machines_of(log, absent(log))
    if idle:
        return [ContenderVerdict(only(idle), "hang", "fail_stop", iteration)]
    odd = _odd_callers(log, waiting)
    if odd:
        return [ContenderVerdict(only(odd), "op_mismatch", "fail_stop", iteration)]
    idle = machines_of(log, absent_partners(log))
    if len(idle) == 1:
        return [ContenderVerdict(only(idle), "hang", "fail_stop", iteration)]
    return [ContenderVerdict(_least_progress(log), "nic_dead", "fail_stop", iteration)]


def _odd_callers(log: OperatorLog, waiting: Table) -> set[str]:
    """Machines whose call differs from what most ranks of the group call."""
    odd: set[str] = set()
    collectives = waiting[waiting["number"] != NO_NUMBER]
    alltoall = [n for n, kind in enumerate(log.kinds) if kind == "all_to_all"]  # sizes differ by nature
    for group, number in {(int(r["group"]), int(r["number"])) for r in collectives}:
        mine = (log.operations["group"] == group) & (log.operations["number"] == number)
        rows = log.operations[mine]
        sizes = np.where(np.isin(rows["kind"], alltoall), 0, rows["bytes"]).tolist()
        calls = list(zip(rows["kind"].tolist(), sizes, strict=True))
        usual, count = Counter(calls).most_common(1)[0]
        if 2 * count > len(calls):
            ranks = rows["rank"].tolist()
            odd |= {log.machine(r) for r, call in zip(ranks, calls, strict=True) if call != usual}
    return odd


def _least_progress(log: OperatorLog) -> str | None:
    """The machine that has sent the smallest share of what its standing operations ask for."""
    rows = np.flatnonzero(log.operations["end_ns"] == NEVER)
    shares: dict[str, float] = {}
    for one in log.requests[np.isin(log.requests["operation"], rows)]:
        machine = log.machine(int(log.operations["rank"][one["operation"]]))
        share = float(one["completed_bytes"]) / max(1.0, float(one["bytes"]))
        shares[machine] = min(share, shares.get(machine, 1.0))
    least = min(shares.values(), default=1.0)
    return only({machine for machine, share in shares.items() if share == least})


def _slow(log: OperatorLog) -> list[ContenderVerdict]:
    past: dict[tuple[int, int], list[float]] = {}
    votes: dict[int, Counter[tuple[str | None, str]]] = {}
    rates = _rates(log)
    for rows in log.collectives():
        if len(rows) < 2 or np.any(rows["end_ns"] == NEVER):
            continue
        step, key = int(rows["step"][0]), (int(rows["group"][0]), int(rows["place"].min()))
        lasted = (rows["end_ns"] - rows["enter_ns"]).astype(float)
        usual = past.setdefault(key, [])
        if len(usual) >= HISTORY and lasted.max() > SLOW * np.median(usual):
            votes.setdefault(step, Counter())[_blame(log, rows, lasted, rates)] += 1
            continue  # what is slow does not become usual
        usual.append(float(lasted.max()))
    return _decide(votes, int(log.operations["step"].max(initial=-1)))


def _blame(
    log: OperatorLog, rows: Table, lasted: np.ndarray, rates: dict[tuple[int, int], float]
) -> tuple[str | None, str]:
    if lasted.max() >= SLOW * lasted.min():
        return log.machine(int(rows["rank"][lasted.argmin()])), "compute_slow"
    sent = np.array([rates.get((int(r["rank"]), int(r["enter_ns"])), np.nan) for r in rows])
    if np.all(np.isnan(sent)) or np.nanmin(sent) > RATE * np.nanmedian(sent):
        return None, "link_slow"
    return log.machine(int(rows["rank"][np.nanargmin(sent)])), "nic_slow"


def _rates(log: OperatorLog) -> dict[tuple[int, int], float]:
    """Bytes per ns of request time, by rank and entry of the operation."""
    sums: dict[tuple[int, int], list[float]] = {}
    for one in log.requests:
        operation = log.operations[one["operation"]]
        both = sums.setdefault((int(operation["rank"]), int(operation["enter_ns"])), [0.0, 0.0])
        both[0] += float(one["completed_bytes"])
        both[1] += float(one["busy_ns"])
    return {key: sent / busy for key, (sent, busy) in sums.items() if busy > 0}


def _decide(votes: dict[int, Counter[tuple[str | None, str]]], last: int) -> list[ContenderVerdict]:
    """The first window in which enough iterations hold slow collectives decides."""
    for first in range(last - WINDOW + 2):
        window = [votes[step] for step in range(first, first + WINDOW) if step in votes]
        if len(window) < SHARE * WINDOW:
            continue
        total: Counter[tuple[str | None, str]] = sum(window, Counter())
        (machine, cause), count = total.most_common(1)[0]
        agreed = count >= SHARE * total.total()
        return [ContenderVerdict(machine if agreed else None, cause, "fail_slow", first)]
    return []
