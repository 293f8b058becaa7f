# SPDX-License-Identifier: Apache-2.0
"""Live analysis without a clock or a process of its own: takes frames, looks when there is something new."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from host_ctl.diagnose.judge import overall_health
from host_ctl.diagnose.verdict import Health, Verdict
from host_ctl.live.clocks import CarriedClocks
from host_ctl.live.decoded import DecodedFrames
from host_ctl.live.findings import Findings, JobState
from host_ctl.live.intake import Arrived, Intake
from host_ctl.live.intervals import Closed, Intervals
from host_ctl.live.limits import LiveLimits
from host_ctl.live.look import Looked, look_at, renamed
from host_ctl.live.memory import JobMemory, Memory, nic_names
from host_ctl.live.messages import LookCounts
from host_ctl.live.window import Window, Wish, choose_window
from host_ctl.pipeline import Analysis
from host_ctl.present.details import details_of, plain
from host_ctl.present.report import build_report

_FIRST_BUDGET_BYTES = 8 << 20
_MOST_GROWTH = 2.0
_MANY = 8
_WIDE_EVERY = 8


class Analyst:
    """Everything that is known of recent traffic; use it from one thread."""

    def __init__(self, limits: LiveLimits | None = None, memory: Memory | None = None) -> None:
        self.limits = limits or LiveLimits()
        self.memory = memory or Memory()
        self.intake = Intake(self.limits.held_bytes)
        self.counts = LookCounts()
        self._intervals = Intervals(self.limits.deadline_ns)
        self._decoded = DecodedFrames()
        self._clocks = CarriedClocks()
        self._looked_ns = -(2**63)
        self._last_span_ns = 0
        self._first_ns: int | None = None
        self._budget_bytes = _FIRST_BUDGET_BYTES

    def take(self, arrived: Arrived) -> None:
        """Take a frame, in any order."""
        self.intake.take(arrived)

    def due(self, now_ns: int) -> Closed | None:
        """What is closed by now, when it is enough for another look."""
        closed = self._intervals.close(self.intake, now_ns)
        if closed is None or closed.end_ns <= self._looked_ns:
            return None
        heard_ns = max(nic.received_ns for nic in self.intake)
        if self._first_ns is None:
            self._first_ns = heard_ns
        if now_ns < self._first_ns + self.limits.every_ns:
            return None  # whom to expect is not known yet
        # When nothing more comes, what there is counts, however little.
        enough = closed.end_ns >= self._looked_ns + self.limits.every_ns
        return closed if enough or now_ns >= heard_ns + self.limits.deadline_ns else None

    def look(self, now_ns: int) -> Findings | None:
        """Look if it is time to; None when it is not."""
        closed = self.due(now_ns)
        if closed is None:
            return None
        skipped_ns = 0 if self._looked_ns < 0 else closed.end_ns - self._looked_ns
        self._looked_ns = closed.end_ns
        begun_s = time.process_time()
        window = self._choose(closed.end_ns)
        looked = self._look_at(window)
        if self._restarted(looked):
            window = self._choose(closed.end_ns)
            looked = self._look_at(window)
        findings = self._findings(window, looked, closed, skipped_ns)
        self._account(window, looked, time.process_time() - begun_s)
        self._tidy(now_ns, window)
        return findings

    def _choose(self, end_ns: int) -> Window:
        wide = self.counts.looks % _WIDE_EVERY == 0
        wish = Wish(self.memory.iteration_ns, self.memory.onset_ns, self._last_span_ns, wide)
        return choose_window(
            self.intake, end_ns, self.limits.window, wish, self._budget_bytes, self.memory.floor_ns
        )

    def _look_at(self, window: Window) -> Looked:
        return look_at(window, self._decoded, self._clocks)

    def _restarted(self, looked: Looked) -> bool:
        """Whether a job was started again; what was before that is not looked at any more."""
        begun = [
            at
            for seen, at in zip(looked.sightings, looked.begun_ns, strict=True)
            if self.memory.is_restart(seen)
        ]
        if begun and max(begun) > self.memory.floor_ns:
            self.memory.floor_ns = max(begun)
            return True
        return False

    def _findings(self, window: Window, looked: Looked, closed: Closed, skipped_ns: int) -> Findings:
        states: list[JobState] = []
        verdicts: list[Verdict] = []
        memories: list[JobMemory] = []
        analysis = looked.analysis
        taken = self.memory.see(looked.sightings)
        for one, seen, (known, found) in zip(analysis.jobs, looked.sightings, taken, strict=True):
            holding = tuple(renamed(v, known.key) for v in found)
            if known not in memories:
                states.append(_state(known, one.job.iterations, holding, seen.unsure))
            verdicts += holding
            memories.append(known)
        for known in self.memory.stopped(memories):
            holding = tuple(renamed(k.verdict, known.key) for k in known.kept)
            states.append(_state(known, 0, holding, ()))
            verdicts += holding
        unsure = [text for seen in looked.sightings for text in seen.unsure]
        health = overall_health(verdicts, unsure, len(states))
        silent = nic_names(closed.silent)
        problems = _problems(window, looked, silent, skipped_ns, self.limits)
        missing = unsure if states else list(analysis.missing)
        report = _report(analysis, health, memories, verdicts, missing, problems)
        report["window"] = {"begin_ns": window.begin_ns, "end_ns": window.end_ns}
        names = [known.key for known in memories]
        details = json.dumps(plain(details_of(analysis, names, all_curves=True)), separators=(",", ":"))
        return Findings(
            window.begin_ns, window.end_ns, health, tuple(states), report, silent, problems, details
        )

    def _account(self, window: Window, looked: Looked, seconds: float) -> None:
        counts = self.counts
        counts.looks += 1
        counts.empty += not looked.analysis.series
        counts.cut += window.cut
        counts.seconds += seconds
        counts.last_seconds = seconds
        counts.last_span_ns = self._last_span_ns = window.end_ns - window.begin_ns
        counts.last_bytes = window.bytes
        counts.decoded_frames, counts.decoded_bytes = self._decoded.decoded, self._decoded.bytes
        for stage, spent in looked.analysis.seconds.items():
            counts.stages[stage] = counts.stages.get(stage, 0.0) + spent
        if window.bytes:
            # What a look costs is not just proportional to its bytes, so the budget goes there by steps.
            afforded = window.bytes * min(self.limits.look_s / max(seconds, 1e-3), _MOST_GROWTH)
            grows = afforded > self._budget_bytes or seconds > self.limits.look_s
            self._budget_bytes = round(afforded) if grows else self._budget_bytes

    def _tidy(self, now_ns: int, window: Window) -> None:
        """Let go what no window will ask for."""
        self.intake.let_go_before(window.end_ns - self.limits.window.most_ns)
        self.intake.forget_before(now_ns - self.limits.forget_ns)
        self.memory.forget_before(window.end_ns - self.limits.forget_ns)


def _state(
    known: JobMemory, iterations: int, verdicts: tuple[Verdict, ...], unsure: tuple[str, ...]
) -> JobState:
    machines = tuple(sorted({nic.rpartition("/")[0] or nic for nic in known.nics}))
    health = overall_health(verdicts, unsure, 1)
    return JobState(known.key, machines, known.nics, iterations, known.iteration_ns, health, verdicts)


def _problems(
    window: Window, looked: Looked, silent: tuple[str, ...], skipped_ns: int, limits: LiveLimits
) -> tuple[str, ...]:
    found = []
    if silent:
        more = f" and {len(silent) - _MANY} more" if len(silent) > _MANY else ""
        found.append(f"nothing comes from {', '.join(silent[:_MANY])}{more}")
    if window.missing:
        found.append(f"{window.missing} frames of the window have not come")
    if looked.unreadable:
        found.append(f"{looked.unreadable} frames of the window cannot be read")
    if window.cut:
        span_s, wanted_s = (window.end_ns - window.begin_ns) / 1e9, window.wanted_ns / 1e9
        found.append(
            f"too much traffic to look at all of it: the last {span_s:.1f} s are analysed "
            f"instead of {wanted_s:.1f} s"
        )
    if skipped_ns > 2 * max(limits.every_ns, round(limits.look_s * 1e9)):
        found.append(
            f"looks are {skipped_ns / 1e9:.1f} s apart: this machine analyses more slowly than frames come"
        )
    return tuple(found)


def _report(
    analysis: Analysis,
    health: Health,
    memories: list[JobMemory],
    verdicts: list[Verdict],
    missing: list[str],
    problems: tuple[str, ...],
) -> dict[str, Any]:
    jobs = [replace(one.job, id=known.key) for one, known in zip(analysis.jobs, memories, strict=True)]
    return build_report(
        health=health,
        series=analysis.series,
        alignment=analysis.alignment,
        traffic=analysis.traffic,
        jobs=jobs,
        kinds=[one.kinds for one in analysis.jobs],
        dimensions=[one.dimensions for one in analysis.jobs],
        verdicts=verdicts,
        missing=missing,
        warnings=(*problems, *analysis.warnings),
    )
