# SPDX-License-Identifier: Apache-2.0
"""What a fault cost: the run against the same seed without it, and whether that is enough to count."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import mean, median

from sim.output.records import iteration_times_ms, records_of
from sim.simulate import simulate, without_faults
from sim.spec import CaptureSpec, ClockSpec, Scenario

_LEAST_COST = 0.02
_SPREADS = 3.0
_STATIC_SPREADS = 5.0
_TWINS_KEPT = 32
_MAD_TO_SIGMA = 1.4826

Iterations = tuple[tuple[float, ...], ...]
"""Milliseconds of every whole iteration, by job."""


@dataclass(frozen=True, slots=True)
class Cost:
    """See ``FaultFacts``."""

    slowdown: float
    spread: float
    iterations: int


def without(scenario: Scenario, number: int) -> Scenario:
    """The run without one of its faults; the other one, if there is one, stays."""
    others = [fault for place, fault in enumerate(scenario.faults) if place != number]
    if others:
        return replace(scenario, fault=others[0], second_fault=None)
    return without_faults(scenario)


def iterations_of(scenario: Scenario) -> Iterations:
    """Iteration times of a run that nobody captures. Runs that differ in taps and clocks alone are one."""
    return _iterations(replace(scenario, name="twin", capture=CaptureSpec(), clock=ClockSpec()))


@lru_cache(maxsize=_TWINS_KEPT)
def _iterations(scenario: Scenario) -> Iterations:
    outcome = simulate(scenario)
    records = records_of(outcome)
    ranks = [
        [rank.number for rank in outcome.world.ranks if rank.job == job] for job in range(len(scenario.jobs))
    ]
    return tuple(tuple(iteration_times_ms(records, members)) for members in ranks)


def cost_of_fault(scenario: Scenario, number: int, now: Iterations, job: int | None) -> Cost | None:
    """What one of a run's faults cost a job, or the job that paid most; ``now`` is the run with all."""
    usual, healthy = iterations_of(without(scenario, number)), iterations_of(without_faults(scenario))
    return cost_of(now, usual, healthy, scenario.faults[number].onset_step, job)


def cost_of(
    now: Iterations, usual: Iterations, healthy: Iterations, onset: int, job: int | None
) -> Cost | None:
    """The cost from the onset on, the spread from the healthy run; None when nothing can be compared."""
    jobs = range(len(usual)) if job is None else [job]
    found = []
    for n in jobs:
        last = min(len(now[n]), len(usual[n]))
        after = now[n][onset:last]
        if after:
            slowdown = mean(after) / mean(usual[n][onset:last])
            found.append(Cost(slowdown, spread_of(healthy[n]), len(after)))
    return max(found, key=lambda cost: cost.slowdown, default=None)


def spread_of(iterations_ms: tuple[float, ...]) -> float:
    """The spread of the log-ratio to the median; a rare pause, which is no noise, does not move it."""
    middle = median(iterations_ms)
    return _MAD_TO_SIGMA * median(abs(math.log(one / middle)) for one in iterations_ms)


def counts(cost: Cost, onset: int, static_spread: float) -> bool:
    """Whether a slow run must be found: its cost stands out from noise.

    Without a before, it must stand out from the static differences between healthy machines as well.
    """
    least = max(_LEAST_COST, _SPREADS * cost.spread / math.sqrt(cost.iterations))
    if onset == 0:
        least = max(least, _STATIC_SPREADS * static_spread)
    return cost.slowdown - 1.0 >= least
