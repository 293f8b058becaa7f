# SPDX-License-Identifier: Apache-2.0
"""Run a scenario and write its captures and its truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from sim.clocks import NicClock, draw_clock, stamp
from sim.faults import STOPS_JOB, install
from sim.headers import WireStyle, build_frames
from sim.network import Nic
from sim.slot_truth import write_slots
from sim.spec import Scenario, TxStamp, Workload, stream
from sim.traffic import add_bandwidth_test, add_storage
from sim.truth import Truth, collect, iteration_times_ms
from sim.world import World
from sim.writer import write_pcap


def simulate(scenario: Scenario) -> tuple[World, int]:
    """Run ``scenario``; gives the world as it stands at the end, and the end's time in ns."""
    world = World(scenario)
    for job in scenario.jobs:
        if job.workload is Workload.NONE:
            add_bandwidth_test(world, job.machines)
    if scenario.storage:
        add_storage(world)
    for fault in scenario.faults:
        install(world, fault)
    end_ns = world.run(any(fault.kind in STOPS_JOB for fault in scenario.faults))
    return world, end_ns


def run_scenario(scenario: Scenario, out: Path, counterfactual: bool = False) -> Truth:
    """Simulate ``scenario`` and write one pcap per NIC, ``truth.json`` and ``slots.npz`` into ``out``.

    With ``counterfactual`` the same seed is run without its fault too, and its iteration times are
    added to the truth.
    """
    world, end_ns = simulate(scenario)
    out.mkdir(parents=True, exist_ok=True)
    epoch_ns = int(stream(scenario.seed, "epoch").integers(1_735_000_000, 1_790_000_000)) * 1_000_000_000
    epoch_ns += int(stream(scenario.seed, "epoch", 1).integers(0, 1_000_000_000))
    style = WireStyle(scenario.network, bool(stream(scenario.seed, "style").random() < 0.5))
    captures: dict[int, str] = {}
    clocks: dict[int, NicClock] = {}
    for number, nic in enumerate(world.nics):
        name = f"node{nic.address.machine}"
        if scenario.nics_per_machine > 1:
            name += f".mlx5_{nic.address.rail}"
        captures[number] = f"{name}.pcap"
        clocks[number] = draw_clock(
            scenario.clock, scenario.seed, nic.address.machine, nic.address.rail, epoch_ns
        )
        _write_capture(out / captures[number], nic, scenario, style, clocks[number], epoch_ns)
    truth = collect(world, epoch_ns, end_ns, captures, clocks)
    if counterfactual:
        truth.data["counterfactual"] = healthy_iteration_ms(scenario)
    truth.write(out / "truth.json")
    write_slots(world, epoch_ns, out / "slots.npz")
    return truth


def healthy_iteration_ms(scenario: Scenario) -> list[list[float]]:
    """Iteration times of every job of the same seed without its faults."""
    world, _ = simulate(replace(scenario, fault=None, second_fault=None))
    jobs = range(len(scenario.jobs))
    return [iteration_times_ms([rank for rank in world.ranks if rank.job == job]) for job in jobs]


def _write_capture(
    path: Path, nic: Nic, scenario: Scenario, style: WireStyle, clock: NicClock, epoch_ns: int
) -> None:
    tap = nic.tap
    true_ns = np.array(tap.times_ns, dtype=np.int64) + epoch_ns
    sent = np.array(tap.sent, dtype=bool)
    rng = stream(scenario.seed, "tap", nic.address.machine, nic.address.rail)
    stamps = stamp(true_ns, sent, clock, scenario.clock, rng)
    order = np.argsort(stamps, kind="stable")
    if scenario.clock.tx_stamp is TxStamp.NONE:
        order = order[~sent[order]]
    frames = build_frames([tap.packets[i] for i in order.tolist()], ~sent[order], style, rng)
    write_pcap(path, stamps[order], frames)
