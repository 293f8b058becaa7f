# SPDX-License-Identifier: Apache-2.0
"""The truth of a simulated run in short: faults, what may be said of them, what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np

from bench.scenarios.cases import Case
from bench.scenarios.costs import Cost, cost_of_fault, counts
from bench.scenarios.outcome import Facts, FaultFacts
from host_ctl.pipeline import Analysis, JobAnalysis
from sim.output.truth import Truth
from sim.scenarios.catalogue import entries_named
from sim.simulate import Setting


def facts_of(case: Case, setting: Setting, truth: Truth, analysis: Analysis) -> Facts:
    """What is kept of the truth; the analysis, which is over, only tells how it numbered iterations."""
    data = truth.data
    told = [fault for fault in (data["fault"], data["second_fault"]) if fault and fault["params"]]
    now = tuple(tuple(job["iteration_ms"]) for job in data["jobs"])
    entries = [entry for entry in entries_named(case.scenario) if entry.kind is not None]
    faults = []
    for number, (entry, fault) in enumerate(zip(entries, told, strict=True)):
        scenario = setting.world.scenario
        quiet = "none" in fault["allowed"]["severities"]
        stops = fault["allowed"]["severities"] == ["fail_stop"]
        cost: Cost | None = None
        if not quiet and not stops:
            cost = cost_of_fault(scenario, number, now, fault["culprit_job"])
        must = stops or (cost is not None and counts(cost, fault["onset_step"], scenario.noise.static_spread))
        at = None if quiet else counted_iteration(analysis, setting, data, fault)
        faults.append(_fault_facts(entry.name, entry.row, fault, cost, must, at))
    first = now[0] if now else ()
    return Facts(case.control, tuple(faults), len(first), median(first) if first else 0.0)


def _fault_facts(
    name: str, row: int, fault: Mapping[str, Any], cost: Cost | None, must: bool, at: int | None
) -> FaultFacts:
    allowed = fault["allowed"]
    return FaultFacts(
        name=name,
        row=row,
        severities=tuple(allowed["severities"]),
        causes=tuple(allowed["causes"]),
        scopes=tuple(allowed["scopes"]),
        separable=allowed["separable"],
        machine=allowed["machine"],
        candidates=tuple(allowed["candidates"]),
        onset_step=fault["onset_step"],
        onset_iteration=at,
        slowdown=None if cost is None else round(cost.slowdown, 5),
        spread=None if cost is None else round(cost.spread, 6),
        iterations=0 if cost is None else cost.iterations,
        counts=must,
    )


def counted_iteration(
    analysis: Analysis, setting: Setting, data: Mapping[str, Any], fault: Mapping[str, Any]
) -> int | None:
    """The number that the analysis gave to the iteration in which a fault set in; None = it cannot be told.

    The middle of that iteration's communication is looked up between the boundaries that were found, by way
    of one NIC's true clock and what the analysis made of it.
    """
    middle_ns = _middle_ns(data, fault)
    job = _job_of(analysis, fault)
    if middle_ns is None or job is None:
        return None
    boundaries = job.job.boundaries_ns
    timelines = job.job.timelines
    lead = next((t for t in timelines if _begins(t.rhythm.starts_ns, job)), timelines[0])
    for member in lead.group.members:
        endpoint = analysis.traffic.endpoints[member]
        if endpoint.series is None:
            continue
        number = _nic_number(setting, endpoint.machine, endpoint.nic)
        shown = setting.clocks[number].show(middle_ns - setting.epoch_ns)
        common = analysis.alignment.clocks[endpoint.series].to_common(np.array([shown], np.int64))[0]
        return int(np.searchsorted(boundaries, common, side="right")) - 1
    return None


def _begins(starts_ns: Any, job: JobAnalysis) -> bool:
    """Whether these starts are what the job's iterations were taken from."""
    boundaries = job.job.boundaries_ns
    return len(starts_ns) == len(boundaries) - 1 and int(starts_ns[0]) == int(boundaries[0])


def _middle_ns(data: Mapping[str, Any], fault: Mapping[str, Any]) -> int | None:
    step, job = fault["onset_step"], fault["culprit_job"] or 0
    steps = [s for rank in data["ranks"] if rank["job"] == job for s in rank["steps"] if s["step"] == step]
    begins: list[int] = [s["collective_start_ns"] for s in steps if s["collective_start_ns"] is not None]
    ends: list[int] = [s["collective_end_ns"] for s in steps if s["collective_end_ns"] is not None]
    if not begins:
        return None
    return (min(begins) + max(ends, default=max(begins))) // 2


def _job_of(analysis: Analysis, fault: Mapping[str, Any]) -> JobAnalysis | None:
    machine = fault["allowed"]["machine"]
    for job in analysis.jobs:
        names = {analysis.traffic.endpoints[m].machine for m in job.job.members}
        if machine is None or machine in names:
            return job
    return None


def _nic_number(setting: Setting, machine: str, nic: str | None) -> int:
    rail = int(nic.removeprefix("mlx5_")) if nic else 0
    number = int(machine.removeprefix("node"))
    return next(one.number for one in setting.world.nics if (one.machine, one.rail) == (number, rail))
