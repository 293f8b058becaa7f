# SPDX-License-Identifier: Apache-2.0
"""Every scenario can be had by its name, hits whom it should, and costs what it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from sim.allowed import ALLOWED
from sim.output.records import iteration_times_ms, records_of
from sim.scenarios.catalogue import CATALOGUE, TWO_FAULTS, Choice, Order, build, entries_named
from sim.scenarios.cluster_file import ClusterSpec
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER, NOISES
from sim.simulate import Outcome, prepare, simulate, without_faults
from sim.spec import CONTROLS, FaultKind, JobSpec, Scenario, SimulationError, Workload

DRAWN = Choice()
ROWS_OF_THE_FAULT_TABLE = range(1, 26)
STOPS = ("link_down", "nic_dead", "hang", "op_mismatch", "crash")
SLOWS = (
    *("gpu_slow", "gpu_power_cap", "hbm_slow", "nvlink_slow", "pcie_slow", "port_slow", "rail_slow"),
    *("link_flap", "slow_receiver", "cpu_contention", "input_stall", "memory_pressure"),
    *("congestion", "path_collision", "switch_port"),
)
JOB = JobSpec((0, 1, 2, 3), steps=8, collective_bytes=4 << 20, compute_ns=2_000_000)
SMALL = replace(
    DEFAULT_CLUSTER,
    machines=4,
    nics_per_machine=2,
    noise=NOISES["quiet"],
    network=replace(DEFAULT_CLUSTER.network, rate_gbps=100.0),
    stack=replace(DEFAULT_CLUSTER.stack, slot_bytes=65_536, p2p_slot_bytes=0),
    jobs=(JOB,),
)
PIPELINE = replace(SMALL, jobs=(replace(JOB, workload=Workload.PP, stages=2),))


def suitable(name: str) -> ClusterSpec:
    return PIPELINE if any(entry.workloads for entry in entries_named(name)) else SMALL


def made(name: str, seed: int = 5, choice: Choice = DRAWN, cluster: ClusterSpec | None = None) -> Scenario:
    return build(Order(name, seed, cluster or suitable(name), choice=choice))


def times_ms(outcome: Outcome) -> list[float]:
    ranks = [rank.number for rank in outcome.world.training_ranks]
    return iteration_times_ms(records_of(outcome), ranks)


def test_every_row_of_the_fault_table_has_a_scenario() -> None:
    assert {entry.row for entry in CATALOGUE.values()} == {0, *ROWS_OF_THE_FAULT_TABLE}


def test_every_fault_has_an_allowed_verdict_and_blames_a_machine_or_nobody() -> None:
    assert set(ALLOWED) == set(FaultKind)
    for entry in CATALOGUE.values():
        if entry.kind is not None:
            assert entry.has_culprit == (entry.kind not in CONTROLS) == ALLOWED[entry.kind].separable


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_scenario_can_be_planned_and_names_an_existing_culprit(name: str) -> None:
    scenario = made(name)
    prepare(scenario)
    for entry, fault in zip(entries_named(name), scenario.faults, strict=False):
        assert (fault.machine in JOB.machines) == entry.has_culprit
        assert fault.onset_step < JOB.steps


@pytest.mark.parametrize("name", CATALOGUE)
def test_equal_seeds_give_equal_scenarios_and_others_do_not(name: str) -> None:
    assert made(name) == made(name)
    if made(name).faults and name != "stage_imbalance":
        assert len({str(made(name, seed).faults) for seed in range(12)}) > 1 or name == "imbalance"


@pytest.mark.parametrize("name", SLOWS)
def test_a_slowing_scenario_costs_time_from_its_onset_on(name: str) -> None:
    scenario = made(name)
    assert scenario.fault is not None
    onset = scenario.fault.onset_step
    faulty, healthy = times_ms(simulate(scenario)), times_ms(simulate(without_faults(scenario)))
    assert faulty[:onset] == pytest.approx(healthy[:onset], rel=0.01)
    ratios = [a / b for a, b in zip(faulty[onset:], healthy[onset:], strict=True)]
    assert max(ratios) > 1.02
    assert median(ratios) > 1.01 or name == "link_flap"


@pytest.mark.parametrize("name", STOPS)
def test_a_stopping_scenario_stops_the_job_in_its_onset_iteration(name: str) -> None:
    scenario = made(name)
    assert scenario.fault is not None
    outcome = simulate(scenario)
    assert not outcome.simulation.finished
    assert len(times_ms(outcome)) in (scenario.fault.onset_step, scenario.fault.onset_step + 1)


@pytest.mark.parametrize("name", ["link_loss", "fabric_loss"])
def test_loss_loses_packets_and_the_job_goes_on(name: str) -> None:
    outcome = simulate(made(name, choice=Choice(severity=0.01)))
    assert outcome.simulation.counters["packets_lost"] > 0
    assert len(times_ms(outcome)) == JOB.steps


def test_a_fault_ends_after_its_duration() -> None:
    scenario = made("gpu_slow", choice=Choice(onset_step=2, duration_steps=3, severity=2.0))
    faulty, healthy = times_ms(simulate(scenario)), times_ms(simulate(without_faults(scenario)))
    slow = [a > 1.3 * b for a, b in zip(faulty, healthy, strict=True)]
    assert slow == [False] * 2 + [True] * 3 + [False] * 3


def test_what_is_chosen_is_used_and_shifts_nothing_else() -> None:
    drawn = made("port_slow").fault
    chosen = made("port_slow", choice=Choice(machine=2, nic=1, severity=3.5, onset_step=4)).fault
    assert drawn is not None
    assert chosen is not None
    assert (chosen.machine, chosen.nic, chosen.factor, chosen.onset_step) == (2, 1, 3.5, 4)
    one = made("port_slow", choice=Choice(severity=3.5)).fault
    assert one == replace(drawn, factor=3.5)


def test_a_power_cap_hits_phases_unequally_and_only_on_the_culprit() -> None:
    scenario = made("gpu_power_cap", choice=Choice(machine=1, nic=0, severity=2.0, onset_step=2))
    faulty, healthy = prepare(scenario).world, prepare(without_faults(scenario)).world
    ratios = [a.compute_ns[3] / b.compute_ns[3] for a, b in zip(faulty.ranks, healthy.ranks, strict=True)]
    assert ratios[2] == pytest.approx(1.0 + (1.0 + 0.35) / 2, rel=0.02)
    assert [ratio for rank, ratio in enumerate(ratios) if rank != 2] == [1.0] * 7


def test_slow_memory_hits_the_first_and_the_last_phase_only() -> None:
    scenario = made("hbm_slow", choice=Choice(machine=1, nic=0, severity=2.0, onset_step=2))
    faulty, healthy = prepare(scenario).world, prepare(without_faults(scenario)).world
    ratio = faulty.ranks[2].compute_ns[3] / healthy.ranks[2].compute_ns[3]
    assert ratio == pytest.approx(1.0 + 2 / JOB.layers, rel=0.02)


def test_slow_links_inside_a_machine_hit_all_of_its_gpus_and_need_several() -> None:
    scenario = made("nvlink_slow", choice=Choice(machine=1, severity=1.5, onset_step=2))
    faulty, healthy = prepare(scenario).world, prepare(without_faults(scenario)).world
    slowed = [a.compute_ns[3] > b.compute_ns[3] for a, b in zip(faulty.ranks, healthy.ranks, strict=True)]
    assert slowed == [False, False, True, True, False, False, False, False]
    with pytest.raises(SimulationError, match="several GPUs"):
        prepare(made("nvlink_slow", cluster=replace(SMALL, nics_per_machine=1)))


def test_memory_pressure_grows() -> None:
    choice = Choice(machine=1, severity=3.0, onset_step=1)
    scenario = replace(made("memory_pressure", choice=choice), jobs=(replace(JOB, steps=40),))
    faulty, healthy = prepare(scenario).world, prepare(without_faults(scenario)).world
    ratios = [faulty.ranks[2].compute_ns[s] / healthy.ranks[2].compute_ns[s] for s in range(40)]
    assert ratios[0] == 1.0
    assert median(ratios[1:3]) < median(ratios[3:5]) < median(ratios[10:])


def test_any_two_faults_by_name_hit_different_machines() -> None:
    for seed in range(8):
        for name in (TWO_FAULTS, "gpu_slow+port_slow", "hang+link_loss"):
            first, second = made(name, seed).faults
            assert first.machine != second.machine
    assert made(TWO_FAULTS).faults == made("gpu_slow+port_slow").faults


def test_a_control_beside_a_fault_keeps_both() -> None:
    scenario = made("gpu_slow+imbalance")
    assert scenario.noise.imbalance > 0
    assert [fault.kind for fault in scenario.faults] == [FaultKind.SLOW_COMPUTE, FaultKind.IMBALANCE]


@pytest.mark.parametrize(
    ("name", "choice", "message"),
    [
        ("gpu_slwo", Choice(), "did you mean gpu_slow"),
        ("", Choice(), "pulse sim list"),
        ("gpu_slow+", Choice(), "no scenario ''"),
        ("gpu_slow+hang+crash", Choice(), "at most two"),
        ("healthy+gpu_slow", Choice(), "no fault"),
        ("congestion+switch_port", Choice(), "switches"),
        ("gpu_slow", Choice(machine=4), "give 0 to 3"),
        ("gpu_slow", Choice(machine=-1), "give 0 to 3"),
        ("gpu_slow", Choice(nic=2), "give 0 to 1"),
        ("nvlink_slow", Choice(nic=0), "whole machine"),
        ("imbalance", Choice(machine=0), "blames no machine"),
        ("gpu_slow", Choice(severity=0.5), "how many times as long compute takes; give 1 to"),
        ("gpu_slow", Choice(severity=float("nan")), "impossible"),
        ("hang", Choice(severity=1.0), "no severity"),
        ("gpu_slow", Choice(onset_step=8), "give 0 to 7"),
        ("imbalance", Choice(onset_step=1), "whole run"),
        ("hang", Choice(duration_steps=2), "does not end"),
        ("gpu_slow", Choice(duration_steps=0), "at least 1|1 or more"),
        ("healthy", Choice(machine=1), "no fault"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(name: str, choice: Choice, message: str) -> None:
    with pytest.raises(SimulationError, match=message) as told:
        made(name, choice=choice, cluster=SMALL)
    assert "\n" not in str(told.value)


def test_a_machine_without_a_job_cannot_be_the_culprit() -> None:
    cluster = replace(SMALL, jobs=(replace(JOB, machines=(0, 1)),))
    with pytest.raises(SimulationError, match="runs no job"):
        made("gpu_slow", choice=Choice(machine=3), cluster=cluster)


def test_a_scenario_that_needs_stages_says_so() -> None:
    with pytest.raises(SimulationError, match="stages"):
        made("stage_imbalance", cluster=SMALL)
    with pytest.raises(SimulationError, match="give pp"):
        build(Order("stage_imbalance", cluster=replace(SMALL, jobs=()), workload="dp"))


@pytest.mark.slow
@pytest.mark.parametrize("workload", PRESETS)
def test_every_scenario_can_be_planned_with_every_workload_that_it_goes_with(workload: str) -> None:
    cluster = replace(DEFAULT_CLUSTER, nics_per_machine=2)
    for name, entry in CATALOGUE.items():
        if workload in (entry.workloads or PRESETS):
            prepare(build(Order(name, 3, cluster, workload, 4)))


def test_the_document_tells_every_scenario_and_workload_as_it_is() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    for entry in CATALOGUE.values():
        drawn = entry.severity
        shown = (
            ""
            if drawn is None or entry.name == TWO_FAULTS
            else f"{drawn.low:g} to {drawn.high:g}: {drawn.unit}"
        )
        assert f"| `{entry.name}` | {entry.row or ''} | {entry.text} | {shown} |" in text
    for preset in PRESETS.values():
        assert f"| `{preset.name}` | {preset.text} | {preset.real} |" in text
