# SPDX-License-Identifier: Apache-2.0
"""The path from series to verdicts: every stage once, in the order of the design.

Captures go all the way at once; live analysis goes it with what a window of recent frames holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from host_ctl.align.clock import Alignment
from host_ctl.align.solve import align
from host_ctl.attribute.charges import charge_all, transfer_excess
from host_ctl.attribute.dimensions import Dimension, find_dimensions
from host_ctl.attribute.features import Features, extract_features
from host_ctl.attribute.gates import find_gates, find_grants, send_actions
from host_ctl.attribute.kinds import operator_kinds
from host_ctl.attribute.needs import learn_needs, share_needs
from host_ctl.attribute.path import critical_paths
from host_ctl.attribute.program import Program, lay_out
from host_ctl.attribute.replay import build_replay
from host_ctl.attribute.roles import find_sharing
from host_ctl.attribute.states import StateTimes, wait_states
from host_ctl.diagnose.judge import JobFindings, judge_job, overall_health
from host_ctl.diagnose.verdict import Health, Verdict
from host_ctl.ingest.local import learn_local
from host_ctl.ingest.naming import CaptureFiles, find_captures
from host_ctl.ingest.offline import read_capture
from host_ctl.ingest.series import NicSeries, Table
from host_ctl.reconstruct.coupling import couple_rails
from host_ctl.reconstruct.groups import Group
from host_ctl.reconstruct.jobs import Job, find_jobs
from host_ctl.reconstruct.repairs import mend
from host_ctl.reconstruct.strands import find_strands, share_credits
from host_ctl.reconstruct.transfers import Traffic, join_traffic


@dataclass(frozen=True, slots=True)
class JobAnalysis:
    """One job with everything that the stages found about it."""

    job: Job
    program: Program
    kinds: tuple[str, ...]
    dimensions: tuple[Dimension, ...]
    features: Features
    states: tuple[StateTimes, ...]
    paths: Table
    findings: JobFindings


@dataclass(frozen=True, slots=True)
class Analysis:
    """The whole result. ``seconds`` tells the time of each stage."""

    series: tuple[NicSeries, ...]
    alignment: Alignment
    traffic: Traffic
    jobs: tuple[JobAnalysis, ...]
    aside: tuple[Group, ...]
    verdicts: tuple[Verdict, ...]
    health: Health
    missing: tuple[str, ...]
    warnings: tuple[str, ...]
    seconds: dict[str, float] = field(default_factory=dict)


def analyze_paths(
    paths: Sequence[Path],
    named: dict[str, Path] | None = None,
    until_ns: int | None = None,
    watch: Stopwatch | None = None,
) -> Analysis:
    """Analyse captures. Raises InputError or UsageError when there is nothing that can be analysed."""
    captures, remarks = find_captures(paths, named or {})
    return analyze_captures(captures, remarks, until_ns, watch)


def analyze_captures(
    captures: Sequence[CaptureFiles],
    remarks: Sequence[str] = (),
    until_ns: int | None = None,
    watch: Stopwatch | None = None,
) -> Analysis:
    """Read, align, reconstruct, attribute, diagnose; ``watch`` has a lap for each capture and stage."""
    watch = watch or Stopwatch()
    read = []
    for files in captures:
        read.append(read_capture(files))
        watch.lap("ingest")
    warnings = [*remarks, *(r for one in read for r in one.remarks)]
    series, unclear = learn_local([one.series for one in read if one.series is not None])
    warnings.extend(unclear)
    watch.lap("ingest")
    alignment = align(series)
    watch.lap("align")
    return analyze_series(series, alignment, warnings, until_ns, watch)


def analyze_series(
    series: Sequence[NicSeries],
    alignment: Alignment,
    warnings: Sequence[str] = (),
    until_ns: int | None = None,
    watch: Stopwatch | None = None,
    *,
    coupled: bool = False,
) -> Analysis:
    """Reconstruct, attribute, diagnose what is aligned; ``watch`` has the time of the stages before.

    ``coupled``: the rails' clocks have been related already, and are taken as they are.
    """
    watch = watch or Stopwatch()
    warnings = [*warnings, *alignment.warnings]
    alignment, traffic, repairs, (jobs, aside) = _reconstruct(series, alignment, coupled=coupled)
    watch.lap("reconstruct")
    witness_ns = _witness(series, alignment, until_ns)
    analysed = []
    for job in jobs:
        program = lay_out(traffic, job)
        actions = send_actions(traffic, program)
        own_needs = learn_needs(actions, program.arrivals, traffic)
        sharing = find_sharing(program, own_needs.needs)
        needs = share_needs(own_needs, actions, program.arrivals, sharing)
        gates, grants = find_gates(traffic, program, needs, sharing), find_grants(traffic, program, sharing)
        slow_ns = transfer_excess(traffic, program, sharing)
        charges = charge_all(traffic, program, gates, grants, sharing, repairs, slow_ns)
        replayed = build_replay(traffic, program, gates, grants, sharing, charges, slow_ns)
        features = extract_features(charges, job)
        waits = wait_states(traffic, program, gates, sharing, repairs)
        kinds = operator_kinds(program, needs)
        dimensions = find_dimensions(traffic, program, needs, gates, sharing)
        paths = critical_paths(traffic, program, gates, grants)
        watch.lap("attribute")
        findings = judge_job(
            traffic, program, needs, features, charges, replayed, paths, repairs, dimensions, witness_ns
        )
        analysed.append(JobAnalysis(job, program, kinds, dimensions, features, waits, paths, findings))
        watch.lap("diagnose")
    verdicts = tuple(v for one in analysed for v in one.findings.verdicts)
    unsure = [text for one in analysed for text in one.findings.unsure]
    missing = [*unsure, *([] if jobs else ["no training job was recognised in the traffic"])]
    return Analysis(
        series=tuple(series),
        alignment=alignment,
        traffic=traffic,
        jobs=tuple(analysed),
        aside=aside,
        verdicts=verdicts,
        health=overall_health(verdicts, unsure, len(jobs)),
        missing=tuple(missing),
        warnings=tuple(warnings),
        seconds=watch.seconds,
    )


def _reconstruct(
    series: Sequence[NicSeries], alignment: Alignment, *, coupled: bool
) -> tuple[Alignment, Traffic, Table, tuple[tuple[Job, ...], tuple[Group, ...]]]:
    """Traffic, repairs and jobs; once more where the jobs told how rails that never meet relate in time."""
    traffic, repairs, jobs = _traffic_and_jobs(series, alignment)
    related = None if coupled else couple_rails(alignment, traffic, jobs[0])
    if related is None:
        return alignment, traffic, repairs, jobs
    return related, *_traffic_and_jobs(series, related)


def _traffic_and_jobs(
    series: Sequence[NicSeries], alignment: Alignment
) -> tuple[Traffic, Table, tuple[tuple[Job, ...], tuple[Group, ...]]]:
    traffic, repairs = mend(join_traffic(series, alignment))
    strands = find_strands(traffic)
    traffic = share_credits(traffic, strands)
    return traffic, repairs, find_jobs(traffic, strands)


def _witness(series: Sequence[NicSeries], alignment: Alignment, until_ns: int | None) -> int:
    """The latest common time at which some capture is known to have been running."""
    ends = [
        int(clock.to_common(np.array([one.witness_ns]))[0])
        for one, clock in zip(series, alignment.clocks, strict=True)
    ]
    if until_ns is not None and series:
        ends.append(int(alignment.clocks[0].to_common(np.array([until_ns]))[0]))
    return max(ends, default=0)


class Stopwatch:
    """Seconds spent per stage, from when it was made, on a clock such as ``time.process_time``."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._at = clock()

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to a stage."""
        now = self._clock()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._at
        self._at = now
