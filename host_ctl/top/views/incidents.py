# SPDX-License-Identifier: Apache-2.0
"""Incidents of a live controller; the verdicts of a recorded session, which has none."""

from __future__ import annotations

from datetime import UTC, datetime

from host_ctl.present.units import digits, share
from host_ctl.top.glyphs import Glyphs
from host_ctl.top.lines import Line, Span, aimed, clip, fit, line, selected, visible
from host_ctl.top.snapshot import IncidentView, Snapshot, VerdictView
from host_ctl.top.state import UiState

_SEVERITY_ROLE = {"fail_stop": "bad", "fail_slow": "warn", "notice": "dim"}


def incidents(snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A line for each, and the whole sentence of the one under the cursor."""
    names = targets(snapshot, state)
    at = names.index(state.selected) if state.selected in names else 0
    if snapshot.kind == "live":
        head = f" {'':2}{'id':<6} {'severity':<10} {'since':<17} {'where':<20} {'GPU-s':>8}  what"
        rows = [_incident(i, glyphs) for i in snapshot.incidents]
        none = " No incident is known: verdicts that last become incidents."
    else:
        head = (
            f" {'':2}{'id':<6} {'severity':<10} {'from it.':<8} {'sure':>5} {'where':<20} {'GPU-s':>8}  what"
        )
        rows = [_verdict(v, glyphs) for v in snapshot.verdicts]
        none = " There is no verdict."
    lines = [clip(line(Span(head, "head")), width)]
    if not rows:
        return [*lines, clip(line(none), width)]
    for k in visible(len(rows), at, max(1, height - 1)):
        content = aimed(rows[k], names[k])
        lines.append(selected(content, width) if k == at else clip(content, width))
    return lines


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """What the cursor goes through."""
    if snapshot.kind == "live":
        return tuple(f"incident:{i.id}" for i in snapshot.incidents)
    return tuple(f"verdict:{v.id}" for v in snapshot.verdicts)


def _incident(incident: IncidentView, glyphs: Glyphs) -> Line:
    mark, role = " ", "dim"
    if incident.open:
        mark, role = ("a", "good") if incident.acknowledged else (glyphs.health["failed"], "bad")
    return line(
        " ",
        Span(f"{mark} ", role),
        Span(f"{fit(incident.id, 6)} "),
        Span(f"{fit(incident.severity, 10)} ", _SEVERITY_ROLE.get(incident.severity, "")),
        Span(
            f"{moment(incident.started_ns):<17} {fit(incident.where, 20)} {digits(incident.lost_gpu_s):>8}  "
        ),
        Span(incident.summary, "" if incident.open else "dim"),
    )


def _verdict(verdict: VerdictView, glyphs: Glyphs) -> Line:
    mark = glyphs.accused if verdict.machine else " "
    return line(
        " ",
        Span(f"{mark} ", "accused"),
        Span(f"{fit(verdict.id, 6)} "),
        Span(f"{fit(verdict.severity, 10)} ", _SEVERITY_ROLE.get(verdict.severity, "")),
        Span(f"{verdict.onset_iteration:<8} {share(verdict.confidence):>5} {fit(verdict.where, 20)} "),
        Span(f"{digits(verdict.lost_gpu_s):>8}  {verdict.summary}"),
    )


def moment(ns: int) -> str:
    """A time of the controller's clock, to the second; UTC."""
    try:
        return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "?"
