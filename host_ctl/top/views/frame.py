# SPDX-License-Identifier: Apache-2.0
"""The whole screen as lines: a pure function of what is known and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from host_ctl.top.glyphs import Glyphs, glyphs
from host_ctl.top.lines import SELECTED, Line, ascii_only, clip, scrolled, visible
from host_ctl.top.snapshot import JobView, Snapshot
from host_ctl.top.state import UiState, job_of
from host_ctl.top.views import (
    argument,
    blame,
    data,
    detail,
    grid,
    heat,
    help_page,
    incidents,
    nics,
    operators,
)
from host_ctl.top.views.heat import nothing
from host_ctl.top.views.strip import footer, strip, tab_bar

LEAST_WIDTH, LEAST_HEIGHT = 40, 10


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of a frame: monotonic seconds for ages, and the system clock."""

    s: float = 0.0
    unix_ns: int = 0


def frame(
    snapshot: Snapshot, state: UiState, width: int, height: int, now: Clock, curves: detail.Curves
) -> list[Line]:
    """Exactly ``height`` lines of exactly ``width`` columns."""
    chosen = glyphs(ascii_only=state.ascii)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        said = strip(snapshot, state, max(width, 20), now.s, chosen)
        lines = said[:height]
    else:
        top = [*strip(snapshot, state, width, now.s, chosen), tab_bar(snapshot, state, width, now.s)]
        room = max(1, height - len(top) - 1)
        body = _body(snapshot, state, width, room, now, curves, chosen)[:room]
        body += [()] * (room - len(body))
        lines = [*top, *body, footer(snapshot, state, width)]
    lines = [clip(each, width) for each in lines[:height]]
    lines += [clip((), width)] * (height - len(lines))
    return [ascii_only(each) for each in lines] if state.ascii else lines


def _body(
    snapshot: Snapshot, state: UiState, width: int, height: int, now: Clock, curves: detail.Curves, g: Glyphs
) -> list[Line]:
    if state.help:
        return scrolled(help_page.help_page(width, g), state.offset, height)
    if state.picking:
        lines = nics.picker(state, width, g)
        return [lines[k] for k in visible(len(lines), nics.picked(state) + 1, height)]
    if state.opened:
        return _following(opened(snapshot, state, width, curves, g), state, height)
    if state.tab == "overview":
        return heat.overview(snapshot, state, width, height, g)
    if state.tab == "nics":
        return nics.table(snapshot, state, width, height, g)
    if state.tab == "grid":
        return grid.grid_view(snapshot, state, width, height, g)
    if state.tab == "blame":
        return blame.blame(snapshot, state, width, height, g)
    if state.tab == "operators":
        return operators.operators(snapshot, state, width, height, g)
    if state.tab == "incidents":
        return incidents.incidents(snapshot, state, width, height, g)
    return data.data(snapshot, state, width, height, g, now.unix_ns)


def _following(lines: list[Line], state: UiState, height: int) -> list[Line]:
    """A long detail, scrolled so that the cursor is on the screen once it was moved."""
    offset = state.offset
    if state.selected:
        at = next((y for y, one in enumerate(lines) if one and one[0].role.endswith(SELECTED)), None)
        if at is not None:
            offset = max(at - height + 1, min(offset, at))
    return scrolled(lines, offset, height)


def opened(snapshot: Snapshot, state: UiState, width: int, curves: detail.Curves, g: Glyphs) -> list[Line]:
    """The detail that is on top, whole."""
    kind, _, name = state.opened[-1].partition(":")
    if kind == "verdict":
        return argument.verdict(snapshot, name, width)
    if kind == "incident":
        return argument.incident(snapshot, name, width)
    job = job_for(snapshot, state, kind, name)
    if job is None:
        return nothing(snapshot, width)
    state = replace(state, selected=under_cursor(snapshot, state))
    if kind == "nic":
        return detail.nic(snapshot, job, state, name, curves, width, g)
    if kind == "machine":
        return detail.machine(snapshot, job, state, name, width, g)
    if kind == "edge":
        return detail.edge(job, name, width, g)
    return detail.operator(job, int(name) if name.isdecimal() else -1, width, g)


def job_for(snapshot: Snapshot, state: UiState, kind: str, name: str) -> JobView | None:
    """The job that a NIC is shown of: the chosen one, or another that it belongs to."""
    chosen = job_of(snapshot, state)
    if kind != "nic" or chosen is None or name in chosen.nics:
        return chosen
    return next((job for job in snapshot.jobs if name in job.nics), chosen)


def under_cursor(snapshot: Snapshot, state: UiState) -> str:
    """The target that the cursor is on; empty where there is none."""
    names = targets(snapshot, state)
    if not names:
        return ""
    job = job_of(snapshot, state)
    accused = heat.accused_targets(snapshot, job) if job is not None and not state.opened else frozenset()
    return names[heat.cursor(names, state.selected, accused)]


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """What the cursor goes through on this screen; nothing where keys scroll."""
    if state.help:
        return ()
    if state.picking:
        return tuple(f"column:{name}" for name in nics.COLUMNS)
    if state.opened:
        kind, _, name = state.opened[-1].partition(":")
        job = job_for(snapshot, state, kind, name)
        return () if job is None else detail.targets(job, state.opened[-1])
    views = {
        "overview": heat.targets, "nics": nics.targets, "grid": grid.targets, "blame": blame.targets,
        "operators": operators.targets, "incidents": incidents.targets, "data": data.targets,
    }  # fmt: skip
    return views[state.tab](snapshot, state)
