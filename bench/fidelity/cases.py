# SPDX-License-Identifier: Apache-2.0
"""Scores one simulated run: its groups, operators, iterations, wait states, dimensions and cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bench.fidelity.recording import Gauge, Recorded, gauges, lane_of_links, nic_number, record
from bench.fidelity.score import CutScore, Times, length_errors, nearest_errors, score_cuts
from bench.fidelity.states import slots_of_rows, state_confusion
from bench.fidelity.truth import RunTruth, TrueGroup, run_truth, true_operators
from host_ctl.attribute.states import WaitState
from host_ctl.pipeline import JobAnalysis
from host_ctl.reconstruct.coupling import component_of
from sim.output.records import NEVER
from sim.output.run import cost_of_faults
from sim.spec import Scenario

COSTLY = 1.02  # a smaller counterfactual cost is none that anything must be said about


@dataclass(frozen=True, slots=True)
class GroupScore:
    """One true group against the found one that has the most of its lanes.

    Times are ns; ``iteration_ns`` is the true iteration. ``operators`` counts (true, found).
    """

    true: TrueGroup
    operators: tuple[int, int]
    iteration_ns: float
    exact: bool = False
    algorithm: bool = False
    kind: bool = False
    dimension: bool = False
    stages: bool = False
    cuts: CutScore | None = None


@dataclass(frozen=True, slots=True)
class CaseScore:
    """Everything that is scored of one run. ``extra`` groups of the analysis have no true one.

    ``iterations`` counts (true, found) per job; ``confusion`` is edge time (ns) per true and found state;
    ``boundary_errors`` are shares of an iteration, ``length_errors`` of each one's own length. ``costs`` are
    (stated, true) slowdowns, stated 0 where nothing was said.
    """

    workload: str
    fault: str
    mode: str
    groups: list[GroupScore] = field(default_factory=list)
    extra: int = 0
    iterations: list[tuple[int, int]] = field(default_factory=list)
    boundary_errors: list[float] = field(default_factory=list)
    length_errors: list[float] = field(default_factory=list)
    confusion: NDArray[np.float64] = field(default_factory=lambda: np.zeros((len(WaitState), len(WaitState))))
    costs: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """A group of the analysis: its job, its number there, and its lanes."""

    job: JobAnalysis
    number: int
    lanes: frozenset[int]


def score_case(scenario: Scenario, workload: str, fault: str, mode: str) -> CaseScore:
    """Simulate, analyse and score one scenario."""
    recorded = record(scenario)
    truth = run_truth(recorded.outcome, recorded.records)
    clocks = gauges(recorded.analysis, recorded.outcome.setting, recorded.outcome.end_ns)
    lane_of_link = lane_of_links(recorded.analysis.traffic, recorded.world)
    slot_of_row = slots_of_rows(recorded, truth, lane_of_link)
    score = CaseScore(workload, fault, mode)
    found = _found_groups(recorded, lane_of_link)
    taken = set()
    for group in truth.groups:
        best = max(found, key=lambda f: len(f.lanes & group.lanes), default=None)
        if best is not None and best.lanes & group.lanes:
            taken.add((best.job.job.id, best.number))
        else:
            best = None
        score.groups.append(_score_group(recorded, truth, group, best, clocks))
    analysed = recorded.analysis.jobs
    extra = sum(len(one.job.timelines) for one in analysed) - len(taken)
    for job in analysed:
        true_starts = _true_starts(truth, job, found)
        _score_iterations(score, recorded, job, true_starts, clocks)
        score.confusion[:] += state_confusion(recorded, job, slot_of_row, truth, clocks)
    missing = len(scenario.jobs) - len(analysed)
    score.iterations.extend([(scenario.jobs[0].steps, 0)] * max(0, missing))
    if scenario.faults:
        score.costs.extend(_costs(recorded, scenario))
    return replace(score, extra=extra)


def _found_groups(recorded: Recorded, lane_of_link: NDArray[np.int64]) -> list[_Found]:
    return [
        _Found(job, number, frozenset(lane_of_link[list(t.group.links)].tolist()))
        for job in recorded.analysis.jobs
        for number, t in enumerate(job.job.timelines)
    ]


def _score_group(
    recorded: Recorded, truth: RunTruth, true: TrueGroup, found: _Found | None, clocks: dict[int, Gauge]
) -> GroupScore:
    operators = true_operators(truth, true)
    steps = [operators["begin"][operators["step"] == s].min() for s in np.unique(operators["step"]) if s >= 0]
    iteration_ns = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0
    if found is None:
        return GroupScore(true, (len(operators), 0), iteration_ns)
    timeline = found.job.job.timelines[found.number]
    traffic = recorded.analysis.traffic
    members = {nic_number(traffic.endpoints[m], recorded.world) for m in timeline.group.members}
    gauge = clocks.get(component_of(traffic, timeline.group.members[0]))
    cuts = None
    if gauge is not None and found.lanes == true.lanes:
        begin = gauge.to_true(np.array([o.start_ns for o in timeline.operators]))
        end = gauge.to_true(np.array([o.end_ns for o in timeline.operators]))
        cuts = score_cuts(operators["begin"], operators["end"], begin, end)
    kind, dimension = found.job.kinds[found.number], found.job.dimensions[found.number]
    order = tuple(nic_number(traffic.endpoints[m], recorded.world) for m in dimension.stages)
    return GroupScore(
        true,
        (len(operators), len(timeline.operators)),
        iteration_ns,
        exact=found.lanes == true.lanes and members == true.nics,
        algorithm=timeline.group.algorithm == true.algorithm,
        kind=true.kinds == {kind},
        dimension=dimension.name == true.dimension,
        stages=order == true.stages,
        cuts=cuts,
    )


def _true_starts(truth: RunTruth, job: JobAnalysis, found: list[_Found]) -> Times:
    """When every true iteration began in the group whose units number the job's iterations."""
    boundaries = job.job.boundaries_ns[:-1]
    lead = next(n for n, t in enumerate(job.job.timelines) if np.array_equal(t.rhythm.starts_ns, boundaries))
    (lanes,) = (f.lanes for f in found if f.job is job and f.number == lead)
    slots = truth.slots[np.isin(truth.slots["lane"], sorted(lanes)) & (truth.slots["posted"] != NEVER)]
    steps = np.unique(slots["step"][slots["step"] >= 0])
    return np.array([slots["posted"][slots["step"] == s].min() for s in steps], dtype=np.int64)


def _score_iterations(
    score: CaseScore, recorded: Recorded, job: JobAnalysis, true: Times, clocks: dict[int, Gauge]
) -> None:
    """Iterations found from the first true one on: a warm-up is one to an analysis, and none to the truth."""
    gauge = clocks.get(component_of(recorded.analysis.traffic, job.job.members[0]))
    if gauge is None or len(true) < 2:
        score.iterations.append((len(true), 0))
        return
    length = float(np.median(np.diff(true)))
    found = gauge.to_true(job.job.boundaries_ns[:-1])
    found = found[found > true[0] - length / 4]
    score.iterations.append((len(true), len(found)))
    score.boundary_errors.extend((nearest_errors(true, found) / length).tolist())
    score.length_errors.extend(length_errors(true, found).tolist())


def _costs(recorded: Recorded, scenario: Scenario) -> list[tuple[float, float]]:
    """Stated and true slowdown of every job that a fault made slower."""
    found = []
    for number, cost in enumerate(cost_of_faults(scenario)):
        slowdown = cost["slowdown"]
        if slowdown is None or slowdown < COSTLY:
            continue
        machines = {f"node{m}" for m in scenario.jobs[number].machines}
        of_job = {
            one.job.id
            for one in recorded.analysis.jobs
            if {recorded.analysis.traffic.endpoints[m].machine for m in one.job.members} & machines
        }
        verdicts = [v for v in recorded.analysis.verdicts if v.job in of_job and v.severity == "fail_slow"]
        stated = [v.slowdown for v in verdicts if v.slowdown is not None]
        found.append((max(stated, default=0.0), float(slowdown)))
    return found
