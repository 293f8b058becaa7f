# SPDX-License-Identifier: Apache-2.0
"""Lost time where NICs have two places: stage by replica in jobs with pipelines, machine by rail always."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from host_ctl.present.evidence.lost_time import Known
from host_ctl.present.units import share
from host_ctl.top.figures import NicRow, by_machine, nic_rows, span_of
from host_ctl.top.glyphs import Glyphs
from host_ctl.top.lines import Line, Span, clip, fit, line, selected, visible
from host_ctl.top.snapshot import JobView, Snapshot
from host_ctl.top.state import UiState, job_of
from host_ctl.top.views.heat import cell, cursor, legend, nothing

_LABEL = 14
_WIDE, _NARROW = 6, 2


@dataclass(frozen=True, slots=True)
class Grid:
    """Names of rows and columns, and the NICs in each cell (several where they share one)."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[int, int], tuple[str, ...]]


def grids_of(job: JobView) -> tuple[Grid, ...]:
    """The grids that there are, the most telling one first."""
    staged = _stages(job)
    return (*((staged,) if staged is not None else ()), _rails(job))


@lru_cache(maxsize=8)
def _stages(job: JobView) -> Grid | None:
    """Stages of pipelines down, replicas across; pipelines of a job have one number of stages."""
    pipelines = [g for g in job.groups if g.dimension == "pp" and g.stages]
    if not pipelines:
        return None
    depth = max(len(g.stages) for g in pipelines)
    cells: dict[tuple[int, int], tuple[str, ...]] = {}
    for column, group in enumerate(pipelines):
        for row, nic in enumerate(group.stages):
            cells[row, column] = (nic,)
    rows = tuple(f"stage {k}" for k in range(depth))
    return Grid("stage by replica", rows, tuple(f"{g.id}" for g in pipelines), cells)


@lru_cache(maxsize=8)
def _rails(job: JobView) -> Grid:
    """Machines down, their NICs across by name: a bad column is a rail, a bad row a machine."""
    machines = by_machine(job)
    names = sorted({job.nics[p][len(machine) + 1 :] for machine, places in machines for p in places})
    cells: dict[tuple[int, int], tuple[str, ...]] = {}
    for row, (machine, places) in enumerate(machines):
        for place in places:
            column = names.index(job.nics[place][len(machine) + 1 :])
            cells[row, column] = (*cells.get((row, column), ()), job.nics[place])
    titles = tuple(name or "only NIC" for name in names)
    return Grid("machine by rail", tuple(machine for machine, _ in machines), titles, cells)


def _grid(job: JobView, state: UiState) -> tuple[Grid, int]:
    found = grids_of(job)
    return found[state.grid % len(found)], len(found)


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """The first NIC of each row: the cursor goes through rows."""
    job = job_of(snapshot, state)
    if job is None:
        return ()
    grid, _ = _grid(job, state)
    found = []
    for row in range(len(grid.rows)):
        nics = [n for c in range(len(grid.columns)) for n in grid.cells.get((row, c), ())]
        found.append(f"nic:{nics[0]}" if nics else f"row:{row}")
    return tuple(found)


def grid_view(snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The grid; cells have a character and, where there is room, the share of an iteration that is lost."""
    job = job_of(snapshot, state)
    if job is None:
        return nothing(snapshot, width)
    grid, count = _grid(job, state)
    rows = {row.name: row for row in nic_rows(snapshot, job, state.at)}
    wide = _WIDE if _LABEL + _WIDE * len(grid.columns) <= width else _NARROW
    fitting = min(len(grid.columns), (width - _LABEL) // wide)
    other = "; m: the other grid" if count > 1 else ""
    told = f" lost time, {grid.title}, {span_of(snapshot, job, state.at).text}{other}"
    hidden = f"; {len(grid.columns) - fitting} columns hidden" if fitting < len(grid.columns) else ""
    heads = "".join(
        fit(title[-wide + 2 :], wide - 1, "", right=True) + " " for title in grid.columns[:fitting]
    )
    lines = [clip(line(Span(told + hidden, "head")), width)]
    if wide == _WIDE:
        lines.append(clip(line(Span(" " * _LABEL + heads, "dim")), width))
    names = targets(snapshot, state)
    at = cursor(names, state.selected, frozenset(names[k] for k in _accused_rows(grid, rows)))
    for k in visible(len(grid.rows), at, max(1, height - len(lines) - 1)):
        spans = [Span(" " + fit(grid.rows[k], _LABEL - 1, glyphs.ellipsis), "", names[k])]
        for column in range(fitting):
            nics = [rows[n] for n in grid.cells.get((k, column), ()) if n in rows]
            spans += _cell(nics, wide, glyphs)
        content = tuple(spans)
        lines.append(selected(content, width) if k == at else clip(content, width))
    lines += [()] * (height - 1 - len(lines))
    return [*lines, clip(legend(glyphs), width)]


def _accused_rows(grid: Grid, rows: dict[str, NicRow]) -> list[int]:
    blamed = {name for name, row in rows.items() if row.mark == 2}
    return sorted({row for (row, _), nics in grid.cells.items() if blamed & set(nics)})


def _cell(nics: list[NicRow], wide: int, glyphs: Glyphs) -> list[Span]:
    if not nics:
        return [Span(" " * wide)]
    worst = max(nics, key=lambda row: (row.share is not None, row.share or 0.0))
    known = Known.YES if worst.share is not None else max(row.known for row in nics)
    role, glyph = cell(worst.share or 0.0, known, glyphs)
    if worst.share is None and known == Known.YES:
        role, glyph = "dim", "?"
    target = f"nic:{worst.name}"
    if wide == _NARROW:
        return [Span(" "), Span(glyph, role, target)]
    text = share(worst.share) if worst.share is not None else ""
    mark = (" ", glyphs.possible, glyphs.accused)[worst.mark]
    return [
        Span(mark, "accused"),
        Span(f"{text:>{wide - 3}}", "", target),
        Span(glyph, role, target),
        Span(" "),
    ]
