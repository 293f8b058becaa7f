# SPDX-License-Identifier: Apache-2.0
"""Run a scenario and write its captures and its truth."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from sim.records import iteration_times_ms, records_of
from sim.simulate import Progress, Setting, prepare, run, simulate, without_faults
from sim.sinks import FrameSink, PcapSink
from sim.slot_truth import write_slots
from sim.spec import Scenario
from sim.truth import Truth, collect


class OutputForm(StrEnum):
    """What is written per NIC: its packets, or what a software DPU makes of them."""

    PCAP = "pcap"
    FRAMES = "frames"


def run_scenario(
    scenario: Scenario,
    out: Path,
    counterfactual: bool = False,
    progress: Progress | None = None,
    form: OutputForm = OutputForm.PCAP,
) -> Truth:
    """Simulate ``scenario`` and write one file per NIC, ``truth.json`` and ``slots.npz`` into ``out``.

    With ``counterfactual`` the same seed is run without its faults too, and its iteration times are
    added to the truth. Raises SimulationError for an impossible scenario, OSError when ``out`` cannot be
    written.
    """
    return write_run(prepare(scenario), out, counterfactual, progress, form)


def write_run(
    setting: Setting,
    out: Path,
    counterfactual: bool = False,
    progress: Progress | None = None,
    form: OutputForm = OutputForm.PCAP,
) -> Truth:
    """Run a planned scenario and write what ``run_scenario`` writes."""
    scenario = setting.world.scenario
    out.mkdir(parents=True, exist_ok=True)
    sink = PcapSink(setting, out) if form is OutputForm.PCAP else FrameSink(setting, out)
    outcome = run(setting, sink, progress)
    records = records_of(outcome)
    truth = collect(outcome, records, sink.names)
    if counterfactual:
        truth.data["counterfactual"] = healthy_iteration_ms(scenario)
    truth.write(out / "truth.json")
    write_slots(outcome.world, records, setting.epoch_ns, out / "slots.npz")
    return truth


def healthy_iteration_ms(scenario: Scenario) -> list[list[float]]:
    """Iteration times of every job of the same seed without its faults."""
    outcome = simulate(without_faults(scenario))
    records = records_of(outcome)
    jobs = range(len(scenario.jobs))
    return [
        iteration_times_ms(records, [rank.number for rank in outcome.world.ranks if rank.job == job])
        for job in jobs
    ]
