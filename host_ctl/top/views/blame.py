# SPDX-License-Identifier: Apache-2.0
"""Who costs whom how much: verdicts, what is charged beneath each, and the machines that wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from host_ctl.attribute.states import WaitState
from host_ctl.present.units import digits, duration, share
from host_ctl.top.figures import NicRow, by_machine, machine_of, nic_rows, span_of
from host_ctl.top.glyphs import Glyphs, bar
from host_ctl.top.lines import Line, Span, aimed, clip, fit, length, line, selected, visible, wrap
from host_ctl.top.snapshot import JobView, Snapshot, VerdictView
from host_ctl.top.state import UiState, job_of
from host_ctl.top.views.heat import accused_targets, cursor, nothing

_BAR = 12
_NUMBERS = 22
_WAITS = (WaitState.WAIT_UPSTREAM, WaitState.WAIT_CREDIT, WaitState.COMPLETE)


@dataclass(frozen=True, slots=True)
class Branch:
    """One line of the tree: what, its cost in GPU-seconds (None where it has none of its own), its target."""

    depth: int
    last: bool
    text: str
    cost: float | None
    target: str
    role: str = ""


def blame(snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The tree in lost GPU-seconds, one GPU per NIC."""
    job = job_of(snapshot, state)
    if job is None:
        return nothing(snapshot, width)
    branches = _branches(snapshot, job)
    spent = _spent(job)
    told = (
        f" {job.id}: {job.iterations} iterations of {len(job.nics)} NICs took {digits(spent)} GPU-seconds "
        "(one GPU per NIC)"
    )
    lines = [clip(line(Span(told, "head")), width)]
    if not branches:
        lines.append(clip(line(" None of them is blamed on anybody."), width))
        branches = _charges(snapshot, job, None, 0)
        if branches:
            lines.append(clip(line(Span(" Most time is charged to:", "dim")), width))
    names = [b.target for b in branches]
    at = cursor(names, state.selected, accused_targets(snapshot, job))
    for k in visible(len(branches), at, max(1, height - len(lines))):
        content = aimed(_line(branches[k], spent, width, glyphs), branches[k].target)
        lines.append(selected(content, width) if k == at else clip(content, width))
    return lines


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """What the cursor goes through."""
    job = job_of(snapshot, state)
    if job is None:
        return ()
    branches = _branches(snapshot, job) or _charges(snapshot, job, None, 0)
    return tuple(b.target for b in branches)


def _spent(job: JobView) -> float:
    details = job.details
    if details is not None and details.duration_ns:
        return sum(details.duration_ns) / 1e9 * len(job.nics)
    return job.iterations * job.iteration_s * len(job.nics)


def _branches(snapshot: Snapshot, job: JobView) -> list[Branch]:
    found: list[Branch] = []
    mine = [v for v in snapshot.verdicts if v.job == job.id]
    for number, verdict in enumerate(mine):
        last = number == len(mine) - 1
        text = f"{verdict.id} {verdict.where}: {verdict.cause.replace('_', ' ')}"
        found.append(Branch(0, last, text, verdict.lost_gpu_s, f"verdict:{verdict.id}", "accused"))
        found += _charges(snapshot, job, verdict, 1)
        found += _victims(job, verdict, snapshot)
    return found


def _charges(snapshot: Snapshot, job: JobView, verdict: VerdictView | None, depth: int) -> list[Branch]:
    """What is charged to those whom the verdict points at; to the first few of all without one."""
    rows = [row for row in nic_rows(snapshot, job, None) if row.lost_ns]
    if verdict is not None:
        named = {verdict.where, *(name for name, _ in verdict.candidates)}
        rows = [row for row in rows if row.name in named or row.machine in named]
    rows = sorted(rows, key=lambda row: -(row.lost_ns or 0.0))[:5]
    span = span_of(snapshot, job, None).text
    return [
        Branch(depth, k == len(rows) - 1 and verdict is None, _charged(row, span), None, f"nic:{row.name}")
        for k, row in enumerate(rows)
    ]


def _charged(row: NicRow, span: str) -> str:
    kinds = (
        ("its host", row.host_ns),
        ("slow sending", row.sent_ns),
        ("slow getting", row.got_ns),
        ("repeats", row.repeat_ns),
    )
    main = max(kinds, key=lambda kind: kind[1] or 0.0)[0]
    return f"{row.name}: {duration(row.lost_ns or 0.0)}/iteration, mostly {main} ({span})"


def _victims(job: JobView, verdict: VerdictView, snapshot: Snapshot) -> list[Branch]:
    """Everybody waits for a fault together: each NIC of the job loses the same time."""
    each = verdict.lost_gpu_s / max(1, len(job.nics))
    if not each:
        return []
    own = {machine_of(name) for name, _ in verdict.candidates} | {verdict.machine}
    others = [(machine, places) for machine, places in by_machine(job) if machine not in own]
    waits = _waiting(job, snapshot)
    found = []
    for k, (machine, places) in enumerate(others):
        waited = f", {share(waits[machine])} of operator time" if machine in waits else ""
        text = f"{machine} waits, {len(places)} NICs{waited}"
        found.append(Branch(1, k == len(others) - 1, text, each * len(places), f"machine:{machine}"))
    return found


def _waiting(job: JobView, snapshot: Snapshot) -> dict[str, float]:
    """Of the time in operators, the share in which a machine's sends wait for others."""
    details = job.details
    if details is None:
        return {}
    span = span_of(snapshot, job, None)
    sums = details.state_ns[:, span.begin : span.end].sum(axis=1)
    found = {}
    for machine, places in by_machine(job):
        part = sums[list(places)].sum(axis=0)
        total = int(part.sum())
        if total:
            found[machine] = float(part[np.array(_WAITS)].sum()) / total
    return found


def _line(branch: Branch, spent: float, width: int, glyphs: Glyphs) -> Line:
    branching, last = glyphs.tree
    head = " " + "   " * branch.depth + (last if branch.last else branching)
    room = max(10, width - len(head) - (0 if branch.cost is None else _NUMBERS + _BAR))
    spans = [Span(head, "dim"), Span(fit(wrap(branch.text, room, 1)[0], room), branch.role)]
    if branch.cost is not None:
        part = branch.cost / spent if spent else 0.0
        spans.append(Span(f"{digits(branch.cost):>9} GPU-s {share(part):>5} ", ""))
        spans.append(Span(bar(min(1.0, part), _BAR, glyphs), "spark"))
    return tuple(spans) if length(tuple(spans)) <= width else clip(tuple(spans), width)
