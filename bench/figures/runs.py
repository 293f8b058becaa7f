# SPDX-License-Identifier: Apache-2.0
"""The run behind a figure: simulated, analysed by the real engine, with what the diagnosis looked at."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.scenarios.cases import Case, scenario_of
from dpu_app.wire.frame_file import SUFFIX
from host_ctl.attribute.program import Program
from host_ctl.attribute.replay import Replay, build_replay
from host_ctl.diagnose.cases import machine_columns
from host_ctl.diagnose.verdict import Verdict
from host_ctl.ingest.series import Table
from host_ctl.pipeline import Analysis, JobAnalysis, analyze_paths
from host_ctl.present.attribution import attribute
from host_ctl.reconstruct.transfers import Traffic, send_start
from sim.output.sinks import FrameSink
from sim.simulate import prepare, run

_NO_MARKS_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class Shown:
    """One run with its only job. ``machines`` are endpoints by machine; times are common ns."""

    analysis: Analysis
    analysed: JobAnalysis
    traffic: Traffic
    repairs: Table
    replayed: Replay
    charges: Table
    machines: dict[str, list[int]]

    @property
    def program(self) -> Program:
        """What every NIC does in an iteration."""
        return self.analysed.program

    @property
    def verdict(self) -> Verdict | None:
        """The gravest verdict, if any."""
        return next(iter(self.analysis.verdicts), None)

    @property
    def onset(self) -> int:
        """The iteration since when something is wrong."""
        return self.verdict.onset_iteration if self.verdict else 0

    @property
    def begin_ns(self) -> int:
        """When the first iteration began."""
        return int(self.analysed.job.boundaries_ns[0])

    def accused(self) -> str | None:
        """The machine that the verdict names."""
        return self.verdict.machine if self.verdict else None

    def iteration_of_transfers(self) -> NDArray[np.int64]:
        """The iteration in whose time every transfer was sent, -1 before the first."""
        sent = send_start(self.traffic.transfers)
        return np.searchsorted(self.analysed.job.boundaries_ns, sent, side="right") - 1

    def stop_ns(self) -> int:
        """When the job came to a stop (common ns)."""
        if self.verdict is None or self.verdict.severity != "fail_stop":
            raise ValueError("this run was not found to have stopped")
        return self.verdict.onset_ns

    def edge_name(self, edge: int) -> str:
        """Sender and receiver in short: ``0.1 to 2.1`` is node0's NIC 1 to node2's."""
        return " to ".join(self.short(end) for end in self.traffic.edges[edge])

    def short(self, endpoint: int) -> str:
        """A NIC in short: the number of its machine, and its own where the machine has several."""
        one = self.traffic.endpoints[endpoint]
        machine = one.machine.removeprefix("node")
        return f"{machine}.{one.nic.removeprefix('mlx5_')}" if one.nic else machine


@cache
def show(case: Case, *, marks: bool = True) -> Shown:
    """Simulate and analyse a case; without ``marks`` its switches tell of no congestion."""
    scenario = scenario_of(case)
    if not marks:
        network = replace(scenario.network, mark_from_bytes=_NO_MARKS_BYTES, mark_all_bytes=_NO_MARKS_BYTES)
        scenario = replace(scenario, network=network)
    setting = prepare(scenario)
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        outcome = run(setting, FrameSink(setting, Path(scratch)))
        until_ns = setting.clocks[0].show(outcome.end_ns)
        analysis = analyze_paths(sorted(Path(scratch).glob(f"*{SUFFIX}")), until_ns=until_ns)
    if not analysis.jobs:
        raise ValueError(f"{case.id}: no job was recognised")
    return _attributed(analysis)


def _attributed(analysis: Analysis) -> Shown:
    """The same stages as in the engine, whose results are wanted in between."""
    analysed = analysis.jobs[0]
    program = analysed.program
    found = attribute(analysis.traffic, program)
    traffic, charges = found.traffic, found.charges
    replayed = build_replay(
        traffic, program, found.gates, found.grants, found.sharing, charges, found.slow_ns
    )
    columns = machine_columns(traffic, analysed.job)
    machines = {name: [analysed.job.members[c] for c in own] for name, own in sorted(columns.items())}
    return Shown(analysis, analysed, traffic, found.repairs, replayed, charges, machines)
