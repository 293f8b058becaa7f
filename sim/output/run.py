# SPDX-License-Identifier: Apache-2.0
"""Run a scenario and write its captures and its truth."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from statistics import mean

from sim.output.records import iteration_times_ms, records_of
from sim.output.sinks import DpuOptions, FrameSink, PcapSink
from sim.output.slot_truth import write_slots
from sim.output.truth import Truth, collect
from sim.simulate import Pacing, Progress, Setting, prepare, run, simulate, without_faults
from sim.spec import Scenario

_MESSAGE_TRAIN = 128


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

    With ``counterfactual`` the same seed is run without its faults too: its iteration times and what the
    faults cost are added to the truth. Raises SimulationError for an impossible scenario, OSError when
    ``out`` cannot be written.
    """
    return write_run(prepare(scenario), out, counterfactual, progress, form)


def write_run(
    setting: Setting,
    out: Path,
    counterfactual: bool = False,
    progress: Progress | None = None,
    form: OutputForm = OutputForm.PCAP,
    options: DpuOptions | None = None,
    pacing: Pacing | None = None,
) -> Truth:
    """Run a planned scenario and write what ``run_scenario`` writes; ``options`` are for frames."""
    scenario = setting.world.scenario
    out.mkdir(parents=True, exist_ok=True)
    sink = PcapSink(setting, out) if form is OutputForm.PCAP else FrameSink(setting, out, options)
    slots, told = out / "slots.npz", out / "truth.json"
    try:
        outcome = run(setting, sink, progress, pacing)
        records = records_of(outcome)
        truth = collect(outcome, records, sink.names)
        if counterfactual:
            truth.data["counterfactual"] = healthy_iteration_ms(scenario)
            truth.data["cost"] = cost_of_faults(scenario)
        write_slots(outcome.world, records, setting.epoch_ns, slots)
        truth.write(told)
    except BaseException as error:
        # What is left of half a run would be taken for a whole one.
        sink.discard()
        slots.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = os.fspath(out)
        raise
    return truth


def healthy_iteration_ms(scenario: Scenario) -> list[list[float]]:
    """Iteration times of every job of the same seed without its faults."""
    return _iterations(without_faults(scenario))


def cost_of_faults(scenario: Scenario) -> list[dict[str, float | int | None]]:
    """Per job, the mean iteration from the first onset on, with the faults and without, and their ratio.

    Both sides come from message mode, which is quick; what it simplifies is the same on both.
    """
    quick = replace(scenario, train_packets=_MESSAGE_TRAIN)
    onset = min((fault.onset_step for fault in scenario.faults), default=0)
    costs: list[dict[str, float | int | None]] = []
    sides = zip(_iterations(quick), _iterations(without_faults(quick)), strict=True)
    for job, (with_faults, healthy) in enumerate(sides):
        last = min(len(with_faults), len(healthy))
        now, usual = with_faults[onset:last], healthy[onset:last]
        if not now:  # the job stopped at once
            costs.append({"job": job, "iteration_ms": None, "healthy_ms": None, "slowdown": None})
            continue
        costs.append(
            {
                "job": job,
                "iteration_ms": round(mean(now), 4),
                "healthy_ms": round(mean(usual), 4),
                "slowdown": round(mean(now) / mean(usual), 4),
            }
        )
    return costs


def _iterations(scenario: Scenario) -> list[list[float]]:
    outcome = simulate(scenario)
    records = records_of(outcome)
    return [
        iteration_times_ms(records, [rank.number for rank in outcome.world.ranks if rank.job == job])
        for job in range(len(scenario.jobs))
    ]
