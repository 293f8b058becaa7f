# SPDX-License-Identifier: Apache-2.0
"""The report for people: the verdict in one sentence first, then why, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from host_ctl.align.clock import Alignment, NicClock
from host_ctl.attribute.dimensions import Dimension
from host_ctl.diagnose.verdict import Health, Verdict
from host_ctl.ingest.series import NicSeries
from host_ctl.present.headline import headline
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

_STYLE = {"ok": "bold green", "degraded": "bold yellow", "failed": "bold red", "unsure": "bold magenta"}
_WORD = {"ok": "OK", "degraded": "DEGRADED", "failed": "FAILED", "unsure": "UNSURE"}
_MAX_WARNINGS = 12
_MANY = 16  # captures; of more than these the table shows the worst few
_FEW = 8


def print_report(
    console: Console,
    *,
    health: Health,
    series: Sequence[NicSeries],
    alignment: Alignment,
    traffic: Traffic,
    jobs: Sequence[Job],
    kinds: Sequence[Sequence[str]],
    dimensions: Sequence[Sequence[Dimension]],
    verdicts: Sequence[Verdict],
    missing: Sequence[str],
    warnings: Sequence[str],
) -> None:
    """Print the report; its first line is the verdict."""
    line = escape(headline(health, verdicts, missing, len(jobs)))
    console.print(f"[{_STYLE[health]}]{_WORD[health]}[/]  {line}", soft_wrap=True)
    for verdict in verdicts:
        console.print()
        _print_verdict(console, verdict, jobs)
    for job, of_job, found in zip(jobs, kinds, dimensions, strict=True):
        console.print()
        _print_job(console, job, traffic, of_job, found)
    if series:
        console.print()
        console.print(_clock_table(series, alignment))
        if len(series) > _MANY:
            console.print(f"... and {len(series) - _FEW} captures as good or better; --json lists all")
    remarks = [*(f"missing: {m}" for m in missing), *warnings]
    if remarks:
        console.print("\n[bold]Data quality[/]")
        for remark in remarks[:_MAX_WARNINGS]:
            console.print(f"  - {escape(remark)}", soft_wrap=True)
        if len(remarks) > _MAX_WARNINGS:
            console.print(f"  - and {len(remarks) - _MAX_WARNINGS} more (--json lists all)")


def _print_verdict(console: Console, verdict: Verdict, jobs: Sequence[Job]) -> None:
    ends = [c.machine for c in verdict.candidates] if verdict.scope == "link" else []
    where = "/".join(p for p in (verdict.machine, verdict.nic) if p)
    where = where or " or ".join(dict.fromkeys(ends)) or "no machine"
    console.print(f"[bold]{verdict.severity}[/] {verdict.cause} at {escape(where)} (scope {verdict.scope})")
    facts = [f"confidence {verdict.confidence:.0%}", f"since iteration {verdict.onset_iteration}"]
    if verdict.slowdown is not None:
        facts.append(f"iterations take {verdict.slowdown:.2f}x")
    facts.append(f"{verdict.lost_gpu_seconds:.1f} GPU-seconds lost (one GPU per NIC)")
    console.print("  " + ", ".join(facts), soft_wrap=True)
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for column in ("evidence", "value", "peers", "unit"):
        table.add_column(column, justify="left" if column in ("evidence", "unit") else "right")
    for item in verdict.evidence:
        peers = "-" if item.peers is None else f"{item.peers:,.2f}"
        table.add_row(item.metric, f"{item.value:,.2f}", peers, item.unit)
    console.print(table)
    if len(verdict.candidates) > 1 or (verdict.candidates and not verdict.machine):
        names = ", ".join(
            f"{c.machine}{'/' + c.nic if c.nic else ''} {c.probability:.0%}" for c in verdict.candidates
        )
        console.print(f"  candidates: {escape(names)}", soft_wrap=True)


def _print_job(
    console: Console, job: Job, traffic: Traffic, kinds: Sequence[str], dimensions: Sequence[Dimension]
) -> None:
    machines = sorted({traffic.endpoints[m].machine for m in job.members})
    console.print(
        f"[bold]{job.id}[/]: {len(job.members)} NICs of {len(machines)} machines, "
        f"{job.iterations} iterations of {job.iteration_ns / 1e6:.1f} ms",
        soft_wrap=True,
    )
    for timeline, kind, dimension in zip(job.timelines, kinds, dimensions, strict=True):
        ordered = dimension.stages or timeline.group.members
        members = ", ".join(traffic.endpoints[m].name for m in ordered[:8])
        known = "" if dimension.name == "unknown" else f"{dimension.name} "
        more = "" if len(timeline.group.members) <= 8 else f" and {len(timeline.group.members) - 8} more"
        console.print(
            f"  {timeline.group.id} {known}{timeline.group.algorithm}: {escape(members)}{more}; "
            f"{len(timeline.operators)} operators ({kind.replace('_', ' ')})",
            soft_wrap=True,
        )


def _clock_table(series: Sequence[NicSeries], alignment: Alignment) -> RichTable:
    table = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    # A name that is cut short names nothing; on a narrow screen the headings wrap instead.
    whole = max((len(one.name) for one in series), default=0)
    for column in ("capture", "packets", "lost", "mode", "clock", "offset ms", "drift ppm", "+/- us"):
        left = column in ("capture", "mode", "clock")
        width = whole if column == "capture" else None
        table.add_column(column, justify="left" if left else "right", min_width=width)
    pairs = list(zip(series, alignment.clocks, strict=True))
    worst = sorted(range(len(pairs)), key=lambda number: _trouble(*pairs[number]))
    for number in sorted(worst if len(pairs) <= _MANY else worst[:_FEW]):
        one, clock = pairs[number]
        uncertainty = "-" if clock.uncertainty_ns is None else f"{clock.uncertainty_ns / 1e3:.2f}"
        table.add_row(
            escape(one.name), f"{one.packets:,}", f"{one.lost:,}", one.mode, clock.basis,
            f"{clock.offset_ns / 1e6:.3f}", f"{clock.drift_ppm:.2f}", uncertainty,
        )  # fmt: skip
    return table


def _trouble(one: NicSeries, clock: NicClock) -> tuple[bool, int, float]:
    """Captures with unrelated clocks, losses or great uncertainty come first."""
    return clock.basis == "measured", -one.lost, -(clock.uncertainty_ns or 0)
