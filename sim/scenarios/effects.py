# SPDX-License-Identifier: Apache-2.0
"""What each scenario of the catalogue does to a healthy run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sim.spec import FaultKind, FaultSpec, JobSpec, NetworkSpec, Scenario, SimulationError

SLOWING, STOPPING = (0.3, 0.45), (0.5, 0.7)


@dataclass(frozen=True, slots=True)
class Severity:
    """What the number means, the range that it is drawn from, and what may be given."""

    unit: str
    low: float
    high: float
    least: float
    most: float
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault before its strength is filled in: the run, the job that it meets, severity, random choices."""

    scenario: Scenario
    job: JobSpec
    fault: FaultSpec
    severity: float
    rng: np.random.Generator


Effect = Callable[[Hit], tuple[Scenario, FaultSpec]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One scenario.

    ``row`` is that of the fault table in ``docs/simulator.md``; ``onset`` a range of shares of the run (None
    = from its beginning); ``ends`` tells whether a duration can be given; ``workloads`` are the only ones
    that it goes with (empty = all).
    """

    name: str
    row: int
    text: str
    kind: FaultKind | None
    effect: Effect
    severity: Severity | None = None
    onset: tuple[float, float] | None = SLOWING
    has_culprit: bool = True
    whole_machine: bool = False
    ends: bool = True
    changes_switches: bool = False
    workloads: tuple[str, ...] = ()


# ---- compute and processes


def plain(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Nothing but the fault itself."""
    return hit.scenario, hit.fault


def slower(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """The severity is a factor."""
    return hit.scenario, replace(hit.fault, factor=hit.severity)


def cpu_taken(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Compute stretches, and the proxy thread is now and then away for a time slice of the scheduler."""
    return hit.scenario, replace(
        hit.fault,
        factor=hit.severity,
        probability=float(hit.rng.uniform(0.003, 0.01)),
        duration_ns=int(hit.rng.uniform(200_000, 800_000)),
    )


def cpu_taken_ever_more(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """The same, at full strength after two thirds of what is left of the run."""
    scenario, fault = cpu_taken(hit)
    return scenario, replace(fault, period_steps=max(3, (hit.job.steps - fault.onset_step) * 2 // 3))


def share_of_compute(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """The severity is a share of an iteration's compute."""
    return hit.scenario, replace(hit.fault, duration_ns=int(hit.severity * hit.job.compute_ns))


def random_pauses(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Each rank pauses in one of twelve iterations."""
    scenario, fault = share_of_compute(hit)
    return scenario, replace(fault, probability=0.08)


def checkpoint(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """All ranks stop every few iterations."""
    scenario, fault = share_of_compute(hit)
    longest = max(2, hit.job.steps // 3)
    return scenario, replace(fault, period_steps=min(longest, int(hit.rng.integers(4, 8))))


def imbalance(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """The severity is a spread that holds for the whole run."""
    noise = replace(hit.scenario.noise, imbalance=hit.severity)
    return replace(hit.scenario, noise=noise), hit.fault


def stage_imbalance(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """One stage of every pipeline has more to compute."""
    jobs = []
    for job in hit.scenario.jobs:
        factors = np.ones(job.stages)
        factors[hit.rng.integers(0, job.stages)] = hit.severity
        jobs.append(replace(job, stage_factors=tuple(factors.tolist())) if job.stages > 1 else job)
    if all(job.stages < 2 for job in jobs):
        raise SimulationError("scenario stage_imbalance: no job has stages; give a pipeline")
    return replace(hit.scenario, jobs=tuple(jobs)), replace(hit.fault, factor=hit.severity)


def clock_error(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Offsets up to the severity, and drifts that move the clocks about as far during a long run."""
    clock = replace(hit.scenario.clock, offset_ns=int(hit.severity * 1_000), drift_ppm=50.0, wander_ppm=1.0)
    return replace(hit.scenario, clock=clock), replace(hit.fault, duration_ns=int(hit.severity * 1_000))


# ---- NICs and links


def slow_port(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Both directions of the cable run at the lower rate."""
    return hit.scenario, replace(hit.fault, factor=hit.severity, before_tap=False, ingress=True)


def slow_sender(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """One of several NICs sends slowly."""
    if hit.scenario.nics_per_machine < 2:
        raise SimulationError("scenario rail_slow: give machines of several NICs, or use port_slow")
    return hit.scenario, replace(hit.fault, factor=hit.severity, before_tap=True)


def loss(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Loss ahead of the tap or behind it, sometimes towards the NIC."""
    before, ingress = (hit.rng.random(2) < (0.5, 0.3)).tolist()
    return hit.scenario, replace(hit.fault, probability=hit.severity, before_tap=before, ingress=ingress)


def flap(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """The severity is a time in milliseconds."""
    return hit.scenario, replace(hit.fault, duration_ns=int(hit.severity * 1e6))


# ---- switches


def _leaves(hit: Hit, uplinks: int, speed: float, interleaved: bool = False) -> Scenario:
    """Two leaves per rail, each uplink ``speed`` times as fast as a NIC; a network that has several stays."""
    network: NetworkSpec = hit.scenario.network
    if network.leaves > 1:
        return hit.scenario
    wider = replace(
        network,
        leaves=2,
        interleaved=interleaved,
        uplinks=uplinks,
        uplink_rate_gbps=speed * network.rate_gbps,
    )
    return replace(hit.scenario, network=wider)


def congestion(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Others take a share of two uplinks' worth of rate."""
    return _leaves(hit, uplinks=1, speed=2.0), replace(hit.fault, factor=hit.severity)


def slow_uplinks(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """Uplinks that are wide enough for all until they slow."""
    speed = max(1.0, hit.scenario.machines / 2)
    return _leaves(hit, uplinks=1, speed=speed), replace(hit.fault, factor=hit.severity)


def fabric_loss(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """So many uplinks that one pair alone is hit."""
    scenario = _leaves(hit, uplinks=16 * hit.scenario.machines, speed=1.0, interleaved=True)
    return scenario, replace(hit.fault, probability=hit.severity)


def collision(hit: Hit) -> tuple[Scenario, FaultSpec]:
    """So many uplinks that no others collide.

    Two flows share an uplink. Each is one channel's part of a NIC's rate, so the uplink slows by as much.
    """
    scenario = _leaves(hit, uplinks=4 * hit.scenario.machines, speed=1.0, interleaved=True)
    return scenario, replace(hit.fault, factor=hit.severity * hit.scenario.stack.channels / 2)
