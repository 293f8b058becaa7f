# SPDX-License-Identifier: Apache-2.0
"""The whole job pauses every k iterations, as for a checkpoint or an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from host_ctl.attribute.features import Features
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import machine_columns, usable_iterations
from host_ctl.diagnose.notices import LEAST_COST, held_up_by_hosts, notice, usual_ns
from host_ctl.diagnose.verdict import Evidence, Verdict
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

_FEWEST = 3  # two pauses have a distance, three have a period
_LEAST_PERIOD = 3  # of iterations that take turns neither kind is the usual one
_SURE = 4.0  # sigmas: one iteration in 30,000 is so late by chance
_ALIKE = 0.5  # the same thing is saved each time, to storage that is now quicker, now slower
_LATE = 0.1  # of the pause: stages of a pipeline pause one after the other, each for its part
_BY_CHANCE = 0.05  # among jobs that do pause three times and more; others are never asked
_SIGMA_OF_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Periodic:
    """Pauses in the iterations ``places``, ``period`` apart; ``p_value``: chance that so many fall so."""

    period: int
    places: NDArray[np.int64]
    pause_ns: float
    p_value: float


def periodic_pause(traffic: Traffic, job: Job, features: Features, replayed: Replay) -> Verdict | None:
    """A notice when all hosts, or always the same ones, pause every k iterations."""
    held = held_up_by_hosts(replayed, job)
    found = find_period(held, usable_iterations(features), usual_ns(features))
    if found is None:
        return None
    columns = machine_columns(traffic, job)
    members = [[job.members[c] for c in own] for own in columns.values()]
    late = longest_delay(replayed, members)[found.places] >= _LATE * found.pause_ns
    always = late.all(axis=0)
    if not always.any():
        # Now this machine, now that one: what comes so does not come by a plan.
        return None
    alone = next(iter(np.array(list(columns))[always])) if late.any(axis=0).sum() == 1 else None
    who = f"{alone} resumes last, and all wait for it" if alone else "all do, and nobody in particular"
    cost = float(held[found.places].sum())
    return notice(
        job,
        "periodic_pause",
        f"no machine is to blame: {job.id} pauses every {found.period} iterations for "
        f"{found.pause_ns / 1e6:.1f} ms, as for a checkpoint; {who}",
        (
            Evidence("period", float(found.period), None, "iterations"),
            Evidence("pause", found.pause_ns / 1e3, usual_ns(features) / 1e3, "us"),
            Evidence("pauses", float(len(found.places)), None, "pauses"),
            Evidence("machines_late", float(always.sum()), float(len(columns)), "machines"),
        ),
        onset=int(found.places[0]),
        detected=int(found.places[_FEWEST - 1]),
        cost_ns=cost,
        confidence=1.0 - found.p_value,
    )


def find_period(
    held_ns: NDArray[np.float64], usable: NDArray[np.bool_], usual_iteration_ns: float
) -> Periodic | None:
    """The period in which pauses come from the first of them on, unless they may fall so by chance.

    ``held_ns`` is what each iteration lost. Noise is measured below the median only: pauses lie above it.
    """
    rows = np.flatnonzero(usable)
    series = held_ns[rows]
    n = len(series)
    if n < _FEWEST * _LEAST_PERIOD:
        return None
    middle = float(np.median(series))
    sigma = _SIGMA_OF_MAD * float(np.median(middle - series[series <= middle]))
    excess = series - middle
    best: Periodic | None = None
    tried = np.zeros(n + 1, dtype=np.int64)
    for period in range(_LEAST_PERIOD, (n - 1) // (_FEWEST - 1) + 1):
        # A pause is long for the noise, and they come often enough to be worth mentioning.
        least = max(_SURE * sigma, LEAST_COST * period * usual_iteration_ns)
        for first in range(n - (_FEWEST - 1) * period):
            places = np.arange(first, n, period)
            tried[len(places)] += 1
            size = float(np.median(excess[places]))
            alike = max(least, _ALIKE * size)
            if excess[places].min() < alike:
                continue
            long = int((excess >= alike).sum())
            chance = float(hypergeom.sf(len(places) - 1, n, long, len(places)))
            if best is None or chance < best.p_value:
                best = Periodic(period, rows[places], size, chance)
    if best is None:
        return None
    # Among all sequences of as many places; the run may have begun before the first pause.
    chance = best.p_value * float(tried[len(best.places)])
    return replace(best, p_value=chance) if chance <= _BY_CHANCE else None


def longest_delay(replayed: Replay, machines: list[list[int]]) -> NDArray[np.float64]:
    """The longest delay of a send or a credit that is its host's own (ns), (iteration, machine)."""
    longest = np.zeros((replayed.iterations, len(machines)))
    for column, members in enumerate(machines):
        for end, delay in (
            (replayed.src, replayed.excess["host"]),
            (replayed.dst, replayed.excess["credit"]),
        ):
            mine = np.isin(end, members)
            np.maximum.at(longest[:, column], replayed.iteration[mine], delay[mine])
    return longest
