# SPDX-License-Identifier: Apache-2.0
"""The published Pulse: active communication time and volume per operator, in epochs of 32 us.

Source: "Fine-grained and Non-intrusive LLM Training Monitoring via Microsecond-level Traffic Measurement",
ASPLOS 2026; read from the abstract, the authors' summary and notes on its design (epochs, metrics per
operator, the table of anomaly classes). Thresholds, the gap that ends an operator and clock alignment are not
published.

Reading. Per rank and operator: the epochs of 32 us in which any of its sender QPs sent data give the active
communication time (ACT); VOLUME is what they sent, DUR how long the operator lasted. *Communication
fail-slow*: in a built-in collective the node with the larger ACT, in custom ones (send/recv, all-to-all) the
node with the lower rate VOLUME / ACT. *Fail-stop*: the node that sent the least data of a collective that
does not end; in custom ones the node whose sends are incomplete (most so, if several are). *Computation
anomaly*: later operators start late or never, or DUR grows while ACT does not: the node whose operators start
latest after the ones before.

Where the description is open, what helps: operators are cut exactly, by the library's own entry and end
instead of bytes and gaps; NIC clocks agree perfectly; epochs are exact in bytes; a figure is that of an
iteration, compared with the rank's own past and with what its peers changed by, and must stay beyond the
threshold for several iterations; nothing is judged unless iterations grow; a larger ACT goes before a late
start; in hangs a node is named only when it is alone. An operator starts when its rank enters it, as the hook
on the library tells. Thresholds were set on development runs. Epochs are not scaled: link rate and slot size
of the simulation are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.activity import NOBODY, Activity, activity
from bench.peers.interface import ContenderVerdict
from bench.peers.iterations import (
    absent,
    absent_partners,
    iteration_times,
    machines_of,
    only,
    standing,
    stands,
)
from bench.peers.operator_log import NEVER, OperatorLog, Table, operator_log

EPOCH_NS = 32_000  # published
GROWN = 1.03  # of the usual iteration: what is judged at all
ACTIVE = 0.3  # how much more ACT per byte than usual, beyond the peers' change
LATE = 0.03  # of an iteration: how much later than usual a rank must start, in sum, beyond its peers
HISTORY, WINDOW = 4, 3  # iterations
CUSTOM = ("send_recv", "all_to_all")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Per operation (row of the log): epochs with data, and bytes sent."""

    epochs: NDArray[np.int64]
    volume: NDArray[np.int64]


class EpochMeter:
    """The rules of the published Pulse on an operator log and 32 us byte counts per QP."""

    name = "pulse-paper"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """All classes of anomaly, job by job."""
        log, seen = operator_log(truth), activity(truth, frames)
        return [verdict for job in log.jobs for verdict in judge(log.job(job), seen)]


def judge(log: OperatorLog, seen: Activity) -> list[ContenderVerdict]:
    """What the published Pulse says of one job."""
    metrics = measure(log, seen)
    return _stop(log, metrics) if stands(log) else _slow(log, metrics)


def measure(log: OperatorLog, seen: Activity) -> Metrics:
    """Give every data message to the operation of its rank that was entered last, and count epochs."""
    count = len(log.operations)
    epochs, volume = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for rank in log.ranks:
        rows = np.flatnonzero(log.operations["rank"] == rank)
        sent = seen.messages[(seen.messages["rank"] == rank) & (seen.messages["rank"] != NOBODY)]
        place = np.searchsorted(log.operations["enter_ns"][rows], sent["begin_ns"], side="right") - 1
        sent, place = sent[place >= 0], place[place >= 0]
        if not len(sent):
            continue
        np.add.at(volume, rows[place], sent["bytes"])
        epochs[rows] = _busy_epochs(sent, place, len(rows))
    return Metrics(epochs, volume)


def _busy_epochs(sent: Table, place: NDArray[np.int64], operations: int) -> NDArray[np.int64]:
    """In how many epochs each operation has data."""
    begin, end = sent["begin_ns"] // EPOCH_NS, sent["end_ns"] // EPOCH_NS
    length = end - begin + 1
    message = np.repeat(np.arange(len(sent)), length)
    epoch = begin[message] + np.arange(len(message)) - np.repeat(np.cumsum(length) - length, length)
    busy = np.unique(np.stack([place[message], epoch]), axis=1)
    return np.bincount(busy[0], minlength=operations).astype(np.int64)


# ---- fail-stop


def _stop(log: OperatorLog, metrics: Metrics) -> list[ContenderVerdict]:
    waiting = standing(log)
    iteration = int(waiting["step"].max())
    never = machines_of(log, absent(log)) or machines_of(log, absent_partners(log))
    if len(never) == 1:
        return [ContenderVerdict(only(never), "hang", "fail_stop", iteration)]
    rows = np.flatnonzero(log.operations["end_ns"] == NEVER)
    built_in = rows[~_custom(log, log.operations[rows])]
    if len(built_in):
        return [ContenderVerdict(_least(log, metrics, built_in), "nic_dead", "fail_stop", iteration)]
    share = metrics.volume[rows] / np.maximum(_asked(log)[rows], 1)
    least = rows[share == share.min()] if share.min() < 1 else rows[:0]
    return [ContenderVerdict(only(_machines(log, least)), "nic_dead", "fail_stop", iteration)]


def _machines(log: OperatorLog, rows: NDArray[np.int64]) -> set[str]:
    return machines_of(log, set(log.operations["rank"][rows].tolist()))


def _custom(log: OperatorLog, rows: Table) -> NDArray[np.bool_]:
    kinds = [number for number, kind in enumerate(log.kinds) if kind in CUSTOM]
    return np.isin(rows["kind"], kinds)


def _least(log: OperatorLog, metrics: Metrics, rows: NDArray[np.int64]) -> str | None:
    """The machine that sent the least in a standing collective, if one did so alone."""
    volume = metrics.volume[rows]
    return only(_machines(log, rows[volume == volume.min()]))


def _asked(log: OperatorLog) -> NDArray[np.int64]:
    asked = np.zeros(len(log.operations), np.int64)
    np.add.at(asked, log.requests["operation"], log.requests["bytes"])
    return asked


# ---- slow


def _slow(log: OperatorLog, metrics: Metrics) -> list[ContenderVerdict]:
    if not metrics.volume.any():
        return []  # nothing was measured
    ranks = sorted(log.ranks)
    steps = int(log.operations["step"].max(initial=-1)) + 1
    cost = _active_per_byte(log, metrics, ranks, steps)
    late = _lateness(log, ranks, steps)
    length = np.r_[np.nan, iteration_times(log)]
    for last in range(HISTORY + WINDOW - 1, steps):
        now, past = slice(last - WINDOW + 1, last + 1), slice(1, last - WINDOW + 1)
        usual = float(np.median(length[past]))
        if np.median(length[now]) < GROWN * usual:
            continue
        active = _excess(cost, now, past, relative=True)
        if active.max() > ACTIVE:
            return [_accuse(log, ranks, active, "nic_slow", last - WINDOW + 1)]
        behind = _excess(late, now, past, relative=False) / usual
        if behind.max() > LATE:
            return [_accuse(log, ranks, behind, "compute_slow", last - WINDOW + 1)]
    return []


def _accuse(log: OperatorLog, ranks: list[int], excess: Floats, cause: str, step: int) -> ContenderVerdict:
    return ContenderVerdict(log.machine(ranks[int(excess.argmax())]), cause, "fail_slow", step)


def _excess(table: Floats, now: slice, past: slice, *, relative: bool) -> Floats:
    """Per rank, the least excess in the window over its own past and over its peers; ranks without: none."""
    own = np.median(table[:, past], axis=1)[:, None]
    change = table[:, now] / own - 1 if relative else table[:, now] - own
    beyond: Floats = (change - np.nanmedian(change, axis=0)).min(axis=1)
    return np.where(np.isnan(beyond), -np.inf, beyond)


def _active_per_byte(log: OperatorLog, metrics: Metrics, ranks: list[int], steps: int) -> Floats:
    """Active time per byte of each rank and step: ACT of built-in collectives, 1 / rate of custom ones."""
    table = np.full((len(ranks), steps), np.nan)
    rows = log.operations
    built_in = ~_custom(log, rows)
    for line, rank in enumerate(ranks):
        mine = rows["rank"] == rank
        chosen = mine & built_in if np.any(mine & built_in) else mine
        for step in range(steps):
            here = chosen & (rows["step"] == step) & (metrics.volume > 0)
            if here.any():
                table[line, step] = metrics.epochs[here].sum() * EPOCH_NS / metrics.volume[here].sum()
    return table


def _lateness(log: OperatorLog, ranks: list[int], steps: int) -> Floats:
    """Per rank and step: the time from the end of each operation to the start of the next, in sum."""
    table = np.zeros((len(ranks), steps))
    for line, rank in enumerate(ranks):
        rows = log.of_rank(rank)
        gap = (rows["enter_ns"][1:] - rows["end_ns"][:-1]).astype(float)
        np.add.at(table[line], rows["step"][1:], gap)
    return table
