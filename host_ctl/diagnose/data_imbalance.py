# SPDX-License-Identifier: Apache-2.0
"""Machines compute for unequal times, others in every iteration, as with sequences of unequal length.

Healthy machines differ as well, by 1 to 2 % for good and by as much from iteration to iteration, by more
where others use their processors. Somebody has more to do than the others in every iteration of an
imbalanced job, and everybody waits for it: the spread is large, and whose turn it is changes as chance has
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from host_ctl.attribute.features import Features
from host_ctl.attribute.path import Step, path_time
from host_ctl.attribute.program import Program
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import machine_columns, usable_iterations
from host_ctl.diagnose.notices import LEAST_COST, held_up_by_hosts, notice, usual_ns
from host_ctl.diagnose.verdict import Evidence, Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

_HEALTHY = 0.02  # spread of healthy machines from iteration to iteration; 1 to 2 % in jobs of their own
_SHARED = 0.05  # where others take their processors too: 3 to 5 % in captures of healthy jobs
_STEADY = 0.5  # of the spread: hosts that forward on time are not kept from computing either
_SURE = 3.0  # standard errors of a measured spread: one healthy job in 700 seems so uneven
_SPREAD_ERROR = 0.96  # standard error of a 68 % quantile over its value, times sqrt(values), if normal
_ONE_SIGMA = 0.6827
_BEYOND_LASTING = 2.0  # whatever differs for good has other reasons, and is the larger part otherwise
_BY_CHANCE = 1e-3
_FEWEST = 8  # iterations
_SEEN = 0.2  # of the hosts' time on the critical path: else what is computed elsewhere decides


@dataclass(frozen=True, slots=True)
class Spread:
    """By how much machines differ in how long they compute, as shares of what an iteration computes.

    ``changing``: from iteration to iteration; ``lasting``: for good, what chance leaves of the changing part
    taken out; ``most_often``: the share of iterations in which the machine that was latest most often was.
    """

    changing: float
    lasting: float
    most_often: float
    by_turns: bool
    values: int


def data_imbalance(
    traffic: Traffic, program: Program, features: Features, replayed: Replay, paths: Table
) -> Verdict | None:
    """A notice when machines compute unequally, others each time, and the job waits for it."""
    job = program.job
    usable = usable_iterations(features)
    columns = machine_columns(traffic, job)
    if len(columns) < 2 or usable.sum() < _FEWEST:
        return None
    late, spread, steady = _measured(job, program, features, replayed, paths, list(columns.values()), usable)
    held = held_up_by_hosts(replayed, job)[usable]
    latest = late.max(axis=1) - np.median(late, axis=1)
    # The latest holds up the rest by no more than that, and only if they wait for it.
    waited = np.maximum(np.minimum(held, latest), 0.0)
    cost, base = float(np.median(waited)), usual_ns(features)
    if not is_uneven(spread, steady) or cost < LEAST_COST * base:
        return None
    first = int(np.flatnonzero(usable)[0])
    return notice(
        job,
        "data_imbalance",
        f"no machine is to blame: machines of {job.id} compute for unequal times, others in every iteration "
        f"(spread {100 * spread.changing:.1f} %); waiting for the latest takes at least {cost / 1e6:.1f} of "
        f"{base / 1e6:.1f} ms per iteration",
        (
            Evidence("spread", spread.changing, _HEALTHY if steady else _SHARED, "share of computing"),
            Evidence("lasting_spread", spread.lasting, None, "share of computing"),
            Evidence("same_machine_latest", spread.most_often, 1.0 / len(columns), "share"),
            Evidence("waiting", cost / 1e3, None, "us"),
        ),
        onset=first,
        detected=first + _FEWEST - 1,
        cost_ns=float(waited.sum()),
        confidence=0.9,
    )


def _measured(
    job: Job,
    program: Program,
    features: Features,
    replayed: Replay,
    paths: Table,
    columns: list[list[int]],
    usable: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], Spread, bool]:
    """How late machines are in usable iterations (ns), their spread, and whether they are steady otherwise.

    Where little computing is seen (micro-batches are short, and not told from other delays) all lateness of
    each NIC counts, and nothing tells whether hosts are steady.
    """
    rows = np.concatenate([lane.rows for lane in program.lanes])
    seen = paths[np.isin(paths["row"], rows[replayed.computes])]
    seen_ns, hosts_ns = (
        max(1.0, float(np.median(path_time(p, Step.HOST, "src", list(job.members), job.iterations)[usable])))
        for p in (seen, paths)
    )
    if seen_ns < _SEEN * hosts_ns:
        machine_of = np.zeros(len(job.members), dtype=np.int64)
        for number, own in enumerate(columns):
            machine_of[own] = number
        late = features.host[usable]
        return late, spread_between(late / hosts_ns, machine_of), False
    members = [[job.members[c] for c in own] for own in columns]
    late = late_at_computing(replayed, members)[usable]
    others = late_at_computing(replace(replayed, computes=~replayed.computes), members)[usable]
    spread = spread_between(late / seen_ns)
    return late, spread, spread_between(others / seen_ns).changing <= _STEADY * spread.changing


def spread_between(late: NDArray[np.float64], machine_of: NDArray[np.int64] | None = None) -> Spread:
    """The spread of how late machines are (iteration, machine), in units of the table.

    Against the median machine of each iteration, since what holds up all alike is no difference; by
    quantiles, which a few long pauses do not move. With ``machine_of`` columns are NICs: those of one machine
    may be late together, so that they count once.
    """
    iterations, columns = late.shape
    machine_of = np.arange(columns) if machine_of is None else machine_of
    machines = int(machine_of.max()) + 1
    relative = late - np.median(late, axis=1, keepdims=True)
    usual = np.median(relative, axis=0)
    changing = float(np.quantile(np.abs(relative - usual), _ONE_SIGMA))
    left = changing**2 * np.pi / 2 / iterations  # variance of a median
    lasting = sqrt(max(0.0, float(usual.var()) - left))
    counts = np.bincount(machine_of[relative.argmax(axis=1)], minlength=machines)
    chance = machines * float(binom.sf(counts.max() - 1, iterations, 1 / machines))
    values = iterations * (machines - 1)
    return Spread(changing, lasting, float(counts.max()) / iterations, chance >= _BY_CHANCE, values)


def is_uneven(spread: Spread, steady: bool) -> bool:
    """Whether a spread is more than that of healthy machines, changes, and takes turns.

    ``steady``: the hosts are on time wherever they do not compute, so that it is not their processors.
    """
    sure = (_HEALTHY if steady else _SHARED) * (1 + _SURE * _SPREAD_ERROR / sqrt(spread.values))
    return spread.changing >= max(sure, _BEYOND_LASTING * spread.lasting) and spread.by_turns


def late_at_computing(replayed: Replay, machines: list[list[int]]) -> NDArray[np.float64]:
    """How late machines send after computing (ns), (iteration, machine): per place the mean over the lanes.

    Only sends that the host computes before: small delays of many others add up to more than what is meant.
    """
    places = int(replayed.place.max(initial=0)) + 1
    late = np.zeros((replayed.iterations, len(machines)))
    for column, members in enumerate(machines):
        mine = np.isin(replayed.src, members) & replayed.computes
        cell = replayed.iteration[mine] * places + replayed.place[mine]
        size = replayed.iterations * places
        total = np.bincount(cell, replayed.excess["host"][mine].astype(np.float64), minlength=size)
        count = np.bincount(cell, minlength=size)
        late[:, column] = (total / np.maximum(count, 1)).reshape(-1, places).sum(axis=1)
    return late
