# SPDX-License-Identifier: Apache-2.0
"""Small simulated jobs as the frames of software DPUs, and made frames without any traffic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from dpu_app.meter.metering import MeteringConfig
from dpu_app.wire.frame import Frame, NicIdentity, encode_frame
from dpu_app.wire.tables import Tables
from host_ctl.history.records import FrameKey
from host_ctl.ingest.naming import find_captures
from host_ctl.live.analyst import Analyst
from host_ctl.live.findings import Findings
from host_ctl.live.intake import Arrived
from host_ctl.live.limits import LiveLimits
from host_ctl.live.recorded import recorded
from sim.output.records import records_of
from sim.output.sinks import DpuOptions, FrameSink
from sim.output.truth import collect
from sim.planning.world import START_NS
from sim.scenarios.catalogue import HEALTHY, Choice, Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import prepare, run
from sim.spec import FaultKind, FaultSpec, JobSpec, Scenario

MS = 1_000_000
NEVER = 2**63 - 1
FAULTS = {
    "healthy": None,
    "slow_compute": FaultSpec(FaultKind.SLOW_COMPUTE, 1, onset_step=20, factor=1.6),
    "hang": FaultSpec(FaultKind.HANG, 1, onset_step=25),
    "crash": FaultSpec(FaultKind.CRASH, 2, onset_step=25),
}


def small_session(folder: Path, fault: str, *, machines: int = 4, steps: int = 40, seed: int = 7) -> Path:
    """Frames of 50 ms: machines with one NIC each compute 8 ms and AllReduce 256 KiB per step."""
    job = JobSpec(tuple(range(machines)), steps=steps, collective_bytes=1 << 18, compute_ns=8 * MS)
    scenario = Scenario(
        fault, seed, machines, jobs=(job,), fault=FAULTS[fault], watch_ns=400 * MS
    )  # fmt: skip
    return _write(scenario, folder, 50 * MS)


def catalogue_session(folder: Path, scenario: str, workload: str, *, seed: int, steps: int = 60) -> Path:
    """Frames of 250 ms of four machines with two NICs each; the fault begins in the midst."""
    cluster = replace(DEFAULT_CLUSTER, machines=4, nics_per_machine=2)
    choice = Choice() if scenario in (HEALTHY, "checkpoint") else Choice(onset_step=steps // 2)
    made = build(Order(scenario, seed, cluster, workload, steps, None, choice))
    return _write(made, folder, 250 * MS)


def _write(scenario: Scenario, folder: Path, interval_ns: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    setting = prepare(scenario)
    outcome = run(setting, FrameSink(setting, folder, DpuOptions(MeteringConfig(interval_ns=interval_ns))))
    truth = collect(outcome, records_of(outcome), {}).data
    fault, times = truth["fault"], truth["jobs"][0]["iteration_ms"]
    onset_ns = NEVER
    if scenario.fault is not None and fault["culprit_node"] is not None:
        onset_ns = setting.epoch_ns + START_NS + round(sum(times[: fault["onset_step"]]) * MS)
    culprit = None if onset_ns == NEVER else f"node{fault['culprit_node']}"
    (folder / "told.json").write_text(json.dumps([culprit, onset_ns]))
    return folder


def wrongly_accused(folder: Path, found: Sequence[Findings]) -> list[tuple[int, str | None]]:
    """Whom any look accused before the fault began, or who is innocent; a machine of None is nobody."""
    culprit, onset_ns = json.loads((folder / "told.json").read_text())
    return [
        (each.end_ns, machine)
        for each in found
        for _, _, machine in accused(each)
        if each.end_ns <= onset_ns or machine not in (culprit, None)
    ]


def arrivals(folder: Path) -> list[Arrived]:
    """The frames of a session in the order in which they would have come."""
    captures, _ = find_captures([folder], {})
    return recorded(captures)


def play(session: list[Arrived], analyst: Analyst) -> list[Findings]:
    """Feed frame after frame; return what every look found, the last when nothing more comes."""
    found = []
    for arrived in session:
        analyst.take(arrived)
        findings = analyst.look(arrived.key.end_ns)
        if findings is not None:
            found.append(findings)
    last = analyst.look(session[-1].key.end_ns + analyst.limits.deadline_ns)
    return found if last is None else [*found, last]


def limits(every_ns: int = 50 * MS) -> LiveLimits:
    """Looks as often as the frames of a session allow."""
    return LiveLimits(every_ns=every_ns)


def accused(findings: Findings) -> set[tuple[str, str, str | None]]:
    """Severity, cause and machine of every verdict that is no notice."""
    verdicts = [v for job in findings.jobs for v in job.verdicts]
    return {(v.severity, v.cause, v.machine) for v in verdicts if v.severity != "notice"}


def bare(
    machine: str, sequence: int, *, boot_id: str = "life", interval_ns: int = 1000 * MS, late_ns: int = 0
) -> Arrived:
    """A frame without tables, received when it ended or later."""
    begin_ns = sequence * interval_ns
    frame = Frame(
        NicIdentity(machine, "mlx5_0"), boot_id, sequence, begin_ns, begin_ns + interval_ns, Tables({})
    )  # fmt: skip
    data = encode_frame(frame)
    end_ns = begin_ns + interval_ns
    key = FrameKey(machine, "mlx5_0", boot_id, sequence, end_ns + late_ns, begin_ns, end_ns)
    return Arrived(key, len(data), partial(bytes, data))
