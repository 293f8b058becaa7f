# SPDX-License-Identifier: Apache-2.0
"""One case from its description to its outcome: simulate, measure by software DPUs, analyse, sum up.

The truth never reaches the analysis: it gets the frame files of a folder in which there is nothing else.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import CONTENDERS, Contender
from bench.scenarios.cases import Case, scenario_of
from bench.scenarios.facts import facts_of
from bench.scenarios.outcome import Outcome, SaidVerdict
from dpu_app.meter.metering import MeteringConfig
from dpu_app.wire.frame_file import SUFFIX
from host_ctl.diagnose.verdict import Verdict
from host_ctl.pipeline import Analysis, analyze_paths
from sim.output.records import records_of
from sim.output.sinks import DpuOptions, FrameSink
from sim.output.truth import Truth, collect
from sim.simulate import Setting, prepare, run
from sim.spec import stream

_MISSING_SHARE = 0.05
_WINDOWS = {"window_32": 32_000, "window_64": 64_000}


def run_case(case: Case, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Simulate and judge one case. Raises SimulationError when it is impossible."""
    begin = time.process_time()
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        setting, truth = capture(case, Path(scratch))
        simulated = time.process_time()
        frames = sorted(Path(scratch).glob(f"*{SUFFIX}"))
        analysis = analyze_paths(_left(frames, case))
        analysed = time.process_time()
        contending = {one.name: tuple(one.judge(truth.data, frames)) for one in contenders}
        contended = time.process_time()
    facts = facts_of(case, setting, truth, analysis)
    return Outcome(
        case=case.id,
        facts=facts,
        verdicts=said(analysis),
        health=analysis.health,
        contenders=contending,
        simulate_s=round(simulated - begin + time.process_time() - contended, 3),
        analyse_s=round(analysed - simulated, 3),
    )


def capture(case: Case, folder: Path) -> tuple[Setting, Truth]:
    """Simulate a case and write its frames, and nothing else, into a folder."""
    setting = prepare(scenario_of(case))
    window_ns = _WINDOWS.get(case.variant or "")
    sink = FrameSink(
        setting, folder, None if window_ns is None else DpuOptions(MeteringConfig(window_ns=window_ns))
    )
    outcome = run(setting, sink)
    return setting, collect(outcome, records_of(outcome), sink.names)


def said(analysis: Analysis) -> tuple[SaidVerdict, ...]:
    """The verdicts of an analysis."""
    return tuple(_said(verdict) for verdict in analysis.verdicts)


def _said(verdict: Verdict) -> SaidVerdict:
    return SaidVerdict(
        verdict.severity,
        verdict.cause,
        verdict.scope,
        verdict.machine,
        verdict.nic,
        tuple(candidate.machine for candidate in verdict.candidates),
        verdict.onset_iteration,
        verdict.detected_iteration,
        None if verdict.slowdown is None else round(float(verdict.slowdown), 5),
        round(float(verdict.confidence), 5),
    )


def _left(frames: Sequence[Path], case: Case) -> list[Path]:
    """The files that are analysed: all, or without one NIC of twenty, at least one."""
    if case.variant != "nics_missing":
        return list(frames)
    missing = max(1, round(_MISSING_SHARE * len(frames)))
    drawn = stream(case.seed, "missing").choice(len(frames), missing, replace=False).tolist()
    return [path for place, path in enumerate(frames) if place not in drawn]
