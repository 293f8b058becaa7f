# SPDX-License-Identifier: Apache-2.0
"""The job's communication operators: what, how many, how large, how long, and the latest durations."""

from __future__ import annotations

import numpy as np

from host_ctl.present.details import OperatorTimes
from host_ctl.present.units import duration, size
from host_ctl.top.glyphs import Glyphs, spark
from host_ctl.top.lines import Line, Span, aimed, clip, fit, line, selected, visible
from host_ctl.top.snapshot import JobView, OperatorView, Snapshot
from host_ctl.top.state import UiState, job_of
from host_ctl.top.views.heat import nothing

_FIXED = 66


def operators(snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A line for each group and size of operator."""
    job = job_of(snapshot, state)
    if job is None:
        return nothing(snapshot, width)
    names = targets(snapshot, state)
    at = names.index(state.selected) if state.selected in names else 0
    head = (
        f" {'operator':<16} {'group':<7} {'of':<9} {'count':>6} {'bytes':>10} {'median':>9}  latest durations"
    )
    lines = [clip(line(Span(head, "head")), width)]
    for k in visible(len(job.operators), at, max(1, height - 1)):
        content = aimed(_row(job, job.operators[k], max(0, width - _FIXED), glyphs), names[k])
        lines.append(selected(content, width) if k == at else clip(content, width))
    if not job.operators:
        lines.append(clip(line(" No operator was recognised."), width))
    return lines


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """What the cursor goes through."""
    job = job_of(snapshot, state)
    return () if job is None else tuple(f"operator:{k}" for k in range(len(job.operators)))


def times_of(job: JobView, operator: OperatorView) -> tuple[list[int], list[int]]:
    """When the operators of a group and size began and how long they took, as far as there are details."""
    found: list[OperatorTimes] = [] if job.details is None else list(job.details.operators)
    for times in found:
        if times.group == operator.group:
            mine = [k for k, amount in enumerate(times.bytes) if amount == operator.bytes]
            return [times.begin_ns[k] for k in mine], [times.duration_ns[k] for k in mine]
    return [], []


def _row(job: JobView, operator: OperatorView, room: int, glyphs: Glyphs) -> Line:
    group = next((g for g in job.groups if g.id == operator.group), None)
    of = "" if group is None else f"{len(group.members)} {group.algorithm}"
    _, took = times_of(job, operator)
    picture = spark(took[-room:], max(took, default=0), glyphs) if room else ""
    kind = operator.kind.replace("_", " ")
    return line(
        f" {fit(kind, 16)} {fit(operator.group, 7)} {fit(of, 9)} {operator.count:>6} "
        f"{size(operator.bytes):>10} {duration(operator.duration_s * 1e9):>9}  ",
        Span(picture, "spark"),
    )


def histogram(values: list[float], columns: int, glyphs: Glyphs) -> tuple[str, float, float]:
    """How often values fall into which part of their range, as a line; with the range's ends."""
    if not values or columns < 1:
        return "", 0.0, 0.0
    low, high = min(values), max(values)
    counts, _ = np.histogram(values, bins=columns, range=(low, high if high > low else low + 1.0))
    return spark(counts.tolist(), float(counts.max()), glyphs), low, high
