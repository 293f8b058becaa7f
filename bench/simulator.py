# SPDX-License-Identifier: Apache-2.0
"""Measures the simulator: speed and memory of its modes, and whether they lead to the same verdicts."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from dpu_app.wire.frame import Frame
from host_ctl.pipeline import analyze_paths
from pulse_native import PacketBatch
from sim.output.run import OutputForm, run_scenario
from sim.output.sinks import SoftwareDpu
from sim.scenarios.catalogue import CATALOGUE, Order, build
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import Setting, prepare, run
from sim.spec import CaptureKind, CaptureSpec, Scenario, SimulationError

MESSAGE_TRAIN = 128
SMALL_CLUSTER = replace(DEFAULT_CLUSTER, machines=4, nics_per_machine=2)


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One run of the default scenario through software DPUs, in process."""

    mode: str
    packet_views: int
    events: int
    seconds: float
    core_seconds: float
    peak_mib: int
    frames: int
    iteration_ms: float


class MeterSink:
    """Every captured NIC's software DPU; frames are counted and dropped."""

    headers_only: ClassVar[Literal[True]] = True

    def __init__(self, setting: Setting) -> None:
        nics = setting.world.nics
        self._dpus = {nic.number: SoftwareDpu(setting, nic) for nic in nics if not nic.external}
        self.packets = 0
        self.frames = 0

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of one NIC."""
        self.packets += len(batch)
        self._count(self._dpus[nic].take(batch))

    def close(self, end_ns: int) -> None:
        """Make the last frames."""
        for dpu in self._dpus.values():
            self._count(dpu.finish(end_ns))

    def _count(self, frames: list[Frame]) -> None:
        self.frames += len(frames)


def in_mode(scenario: Scenario, mode: str) -> Scenario:
    """The scenario packet by packet, as by default, or message by message as steered capture sees it."""
    if mode == "packets":
        return replace(scenario, train_packets=1)
    if mode == "messages":
        steered = replace(scenario.capture, kind=CaptureKind.STEERED)
        return replace(scenario, train_packets=MESSAGE_TRAIN, capture=steered)
    return scenario


def measure_speed(mode: str) -> SpeedRow:
    """Run the default scenario once."""
    scenario = in_mode(build(Order("healthy")), mode)
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    setting = prepare(scenario)
    sink = MeterSink(setting)
    outcome = run(setting, sink)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    steps = outcome.simulation.steps
    whole = steps[steps["end_ps"] >= 0]
    length_ms = float(np.median(whole["end_ps"] - whole["begin_ps"])) / 1e9
    return SpeedRow(
        mode, sink.packets, outcome.simulation.counters["events"], round(seconds, 2), round(cpu, 2),
        after.ru_maxrss // 1024, sink.frames, round(length_ms, 3),
    )  # fmt: skip


def report_speed(*, as_json: bool) -> int:
    """Print one row per mode, the leanest first, since memory is the process's peak; 0 = done."""
    rows = [asdict(measure_speed(mode)) for mode in ("messages", "default", "packets")]
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))
    return 0


Finding = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A run on which the two modes led to different verdicts."""

    scenario: str
    workload: str
    seed: int
    packets: list[Finding]
    messages: list[Finding]


def sampled_orders(runs: int, seed: int) -> Iterator[Order]:
    """Scenarios and workloads that go together, drawn evenly over the catalogue, on a small cluster."""
    rng = np.random.default_rng(seed)
    names = list(CATALOGUE)
    for _ in range(runs):
        entry = CATALOGUE[names[int(rng.integers(len(names)))]]
        workloads = list(entry.workloads) or list(PRESETS)
        workload = workloads[int(rng.integers(len(workloads)))]
        yield Order(entry.name, int(rng.integers(1 << 30)), SMALL_CLUSTER, workload)


def findings(scenario: Scenario) -> list[Finding]:
    """What is said about a run from its frames: verdicts but notices, and the health."""
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        truth = run_scenario(scenario, Path(scratch), form=OutputForm.FRAMES)
        frames = sorted(Path(scratch).glob("*.frames"))
        analysis = analyze_paths(frames, until_ns=truth.data["capture"]["end_ns"])
    loud: set[Finding] = {
        (v.severity, v.cause, v.machine) for v in analysis.verdicts if v.severity != "notice"
    }
    return sorted(loud or {("health", analysis.health, None)}, key=str)


def compare_modes(runs: int, seed: int) -> tuple[int, list[Difference]]:
    """How many of ``runs`` could be simulated, and those on which packet and message mode differ."""
    done, differences = 0, []
    for order in sampled_orders(runs, seed):
        try:
            scenario = replace(build(order), capture=CaptureSpec(CaptureKind.STEERED))
        except SimulationError:
            continue  # this fault needs more machines than the small cluster has
        packets = findings(replace(scenario, train_packets=1))
        messages = findings(in_mode(scenario, "messages"))
        done += 1
        if packets != messages:
            differences.append(
                Difference(order.scenario, order.workload or "", order.seed, packets, messages)
            )
    return done, differences


def report_modes(runs: int, seed: int, *, as_json: bool) -> int:
    """Print how often the modes agree and where they do not; 0 = done."""
    done, differences = compare_modes(runs, seed)
    if as_json:
        print(json.dumps({"runs": done, "different": [asdict(d) for d in differences]}, indent=1))
        return 0
    print(f"{done - len(differences)} of {done} runs: same verdict from packets and from messages")
    for one in differences:
        print(f"{one.scenario} {one.workload} {one.seed}: {one.packets} / {one.messages}")
    return 0
