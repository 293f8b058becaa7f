# SPDX-License-Identifier: Apache-2.0
"""The fault scenarios by name: what each does, how strongly, to whom, and with which workloads it goes.

Everything that is not chosen is drawn from the seed, each draw from a stream of its own: to choose one thing
shifts no other.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sim.scenarios.cluster_file import ClusterSpec
from sim.scenarios.effects import Entry, Hit, Severity
from sim.scenarios.presets import DEFAULT_CLUSTER, DEFAULT_STEPS, DEFAULT_WORKLOAD, with_workload
from sim.scenarios.table import ENTRIES
from sim.spec import FaultSpec, JobSpec, Scenario, SimulationError, stream

CATALOGUE: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in ENTRIES})
HEALTHY = "healthy"
TWO_FAULTS = "two_faults"
_PAIR = ("gpu_slow", "port_slow")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user decides about the (first) fault; None = drawn from the seed.

    ``duration_steps`` 0 or None: it stays.
    """

    machine: int | None = None
    nic: int | None = None
    severity: float | None = None
    onset_step: int | None = None
    duration_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A run as asked for; without a workload the cluster's own jobs run, or else what suits the scenario."""

    scenario: str
    seed: int = 1
    cluster: ClusterSpec = DEFAULT_CLUSTER
    workload: str | None = None
    steps: int | None = None
    scale: float | None = None
    choice: Choice = Choice()


def entries_named(name: str) -> list[Entry]:
    """The one or two faults of a scenario's name. Raises SimulationError, with close names, when unknown."""
    parts = list(_PAIR) if name == TWO_FAULTS else name.split("+")
    for part in parts:
        if part not in CATALOGUE or (part == TWO_FAULTS and len(parts) > 1):
            raise SimulationError(f"no scenario {part!r}; {_hint(part)}")
    if len(parts) > 2:
        raise SimulationError(
            f"scenario {name}: {len(parts)} faults; give at most two, as in gpu_slow+port_slow"
        )
    if len(parts) == 2 and HEALTHY in parts:
        raise SimulationError(f"scenario {name}: healthy is no fault that another can join")
    found = [CATALOGUE[part] for part in parts]
    if sum(entry.changes_switches for entry in found) > 1:
        raise SimulationError(
            f"scenario {name}: both faults need switches of their own kind; give one of them"
        )
    return found


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, CATALOGUE, 3)
    return f"did you mean {' or '.join(close)}?" if close else "`pulse sim list` shows all names"


def build(order: Order) -> Scenario:
    """The scenario of an order. Raises SimulationError, in one line, when it is impossible."""
    entries = entries_named(order.scenario)
    if order.seed < 0:
        raise SimulationError(f"seed {order.seed} is negative; give 0 or more")
    scenario = _cluster(order, entries).scenario(order.scenario, order.seed)
    faults: list[FaultSpec] = []
    for entry in entries:
        if entry.kind is None:
            _refuse_choices(entry, order.choice)
            continue
        choice = order.choice if not faults else _elsewhere(scenario, entry, faults[0], order.seed)
        scenario, fault = _with_fault(scenario, entry, choice)
        faults.append(fault)
    return replace(
        scenario,
        fault=faults[0] if faults else None,
        second_fault=faults[1] if len(faults) > 1 else None,
    )


def _cluster(order: Order, entries: list[Entry]) -> ClusterSpec:
    """The cluster with its jobs; each job has the steps that were asked for."""
    cluster = order.cluster
    if cluster.jobs and order.workload is not None:
        raise SimulationError(f"the cluster file describes its jobs; leave workload {order.workload} out")
    if cluster.jobs:
        if order.scale is not None:
            raise SimulationError("the cluster file describes its jobs, sizes included; leave the scale out")
        steps = order.steps
        jobs = cluster.jobs if steps is None else tuple(replace(job, steps=steps) for job in cluster.jobs)
        return replace(cluster, jobs=jobs)
    needed = [entry for entry in entries if entry.workloads]
    usual = needed[0].workloads[0] if needed else DEFAULT_WORKLOAD
    name = order.workload or usual
    steps = DEFAULT_STEPS if order.steps is None else order.steps
    filled = with_workload(cluster, name, order.seed, steps, order.scale)
    for entry in needed:
        if name not in entry.workloads:
            raise SimulationError(
                f"scenario {entry.name} does not go with workload {name}; give {' or '.join(entry.workloads)}"
            )
    return filled


# ---- one fault


def _with_fault(scenario: Scenario, entry: Entry, choice: Choice) -> tuple[Scenario, FaultSpec]:
    assert entry.kind is not None
    job = _job_of(scenario, entry, choice)
    onset = _onset(scenario, entry, choice, job)
    fault = FaultSpec(
        entry.kind,
        _machine(scenario, entry, choice, job),
        _nic(scenario, entry, choice),
        onset,
        until_step=_until(entry, choice, onset, job),
    )
    severity = None if entry.severity is None else _severity(scenario, entry, entry.severity, choice)
    if entry.severity is None and choice.severity is not None:
        raise SimulationError(f"scenario {entry.name} has no severity; leave it out")
    rng = stream(scenario.seed, "catalogue", entry.name, "effect")
    hit = Hit(scenario, job, fault, severity if severity is not None else 1.0, rng)
    return entry.effect(hit)


def _job_of(scenario: Scenario, entry: Entry, choice: Choice) -> JobSpec:
    """The job that the fault meets: that of the chosen machine, or any."""
    if choice.machine is not None and entry.has_culprit:
        for job in scenario.jobs:
            if choice.machine in job.machines:
                return job
        if not 0 <= choice.machine < scenario.machines:
            raise SimulationError(
                f"machine {choice.machine} does not exist; give 0 to {scenario.machines - 1}"
            )
        raise SimulationError(f"machine {choice.machine} runs no job; give one that does")
    rng = stream(scenario.seed, "catalogue", entry.name, "job")
    return scenario.jobs[int(rng.integers(0, len(scenario.jobs)))]


def _machine(scenario: Scenario, entry: Entry, choice: Choice, job: JobSpec) -> int | None:
    if not entry.has_culprit:
        if choice.machine is not None or choice.nic is not None:
            raise SimulationError(f"scenario {entry.name} blames no machine; leave machine and NIC out")
        return None
    if choice.machine is not None:
        return choice.machine
    return int(stream(scenario.seed, "catalogue", entry.name, "machine").choice(job.machines))


def _nic(scenario: Scenario, entry: Entry, choice: Choice) -> int:
    last = scenario.nics_per_machine - 1
    if choice.nic is None:
        if entry.whole_machine or not entry.has_culprit:
            return 0
        return int(stream(scenario.seed, "catalogue", entry.name, "nic").integers(0, last + 1))
    if entry.whole_machine:
        raise SimulationError(f"scenario {entry.name} hits a whole machine; leave the NIC out")
    if not 0 <= choice.nic <= last:
        raise SimulationError(f"NIC {choice.nic} does not exist; give 0 to {last}")
    return choice.nic


def _onset(scenario: Scenario, entry: Entry, choice: Choice, job: JobSpec) -> int:
    if entry.onset is None:
        if choice.onset_step is not None or choice.duration_steps:
            raise SimulationError(
                f"scenario {entry.name} holds for the whole run; leave onset and duration out"
            )
        return 0
    if choice.onset_step is not None:
        if not 0 <= choice.onset_step < job.steps:
            raise SimulationError(
                f"onset in iteration {choice.onset_step} is impossible; give 0 to {job.steps - 1}"
            )
        return choice.onset_step
    share = stream(scenario.seed, "catalogue", entry.name, "onset").uniform(*entry.onset)
    return min(job.steps - 1, max(1, round(share * job.steps)))


def _until(entry: Entry, choice: Choice, onset: int, job: JobSpec) -> int:
    if choice.duration_steps is None:
        return 0
    if not entry.ends:
        raise SimulationError(f"scenario {entry.name} does not end by itself; leave the duration out")
    if choice.duration_steps < 1:
        raise SimulationError(
            f"a duration of {choice.duration_steps} iterations is impossible; give 1 or more"
        )
    until = onset + choice.duration_steps
    return 0 if until >= job.steps else until


def _severity(scenario: Scenario, entry: Entry, severity: Severity, choice: Choice) -> float:
    if choice.severity is None:
        drawn = stream(scenario.seed, "catalogue", entry.name, "severity").uniform()
        if severity.logarithmic:
            return float(severity.low * (severity.high / severity.low) ** drawn)
        return float(severity.low + (severity.high - severity.low) * drawn)
    if not math.isfinite(choice.severity) or not severity.least <= choice.severity <= severity.most:
        raise SimulationError(
            f"severity {choice.severity:g} of {entry.name} is impossible: it is {severity.unit}; "
            f"give {severity.least:g} to {severity.most:g}"
        )
    return choice.severity


def _elsewhere(scenario: Scenario, entry: Entry, first: FaultSpec, seed: int) -> Choice:
    """The second fault's choice: a machine that the first does not hit."""
    if not entry.has_culprit or first.machine is None:
        return Choice()
    others = [m for job in scenario.jobs for m in job.machines if m != first.machine]
    return Choice(machine=int(stream(seed, "catalogue", entry.name, "second machine").choice(others)))


def _refuse_choices(entry: Entry, choice: Choice) -> None:
    if choice != Choice():
        raise SimulationError(
            f"scenario {entry.name} has no fault; leave machine, NIC, severity, onset and duration out"
        )
