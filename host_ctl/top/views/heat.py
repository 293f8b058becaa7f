# SPDX-License-Identifier: Apache-2.0
"""Lost time by iteration: a row for each machine or NIC, a column for each iteration or some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.present.details import JobDetails
from host_ctl.present.evidence.lost_time import Known
from host_ctl.present.units import duration
from host_ctl.top.figures import Columns, by_machine, columns_of, joined, machine_of, marks_of, usual_ns
from host_ctl.top.glyphs import LEVEL_TEXT, Glyphs, level, spark
from host_ctl.top.lines import EMPTY, Line, Span, aimed, clip, cut, fit, line, selected, visible
from host_ctl.top.snapshot import JobView, Snapshot
from host_ctl.top.state import UiState, gravest, job_of

_TOTAL = 9
_MOST_LABEL, _LEAST_LABEL = 24, 10
_BESIDE = 6  # least rows of machines that stay when the NICs of one are shown below


@dataclass(frozen=True, slots=True)
class Row:
    """One row: values per column as shares of an iteration, how far known, and the sum over what is shown."""

    name: str
    target: str
    values: NDArray[np.float64]
    known: NDArray[np.int64]
    total_ns: float
    mark: int


def overview(snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Iteration times, machines by iteration, and the NICs of the machine under the cursor."""
    job = job_of(snapshot, state)
    if job is None:
        return nothing(snapshot, width)
    details = job.details
    if details is None or not details.duration_ns:
        return [clip(line(" There are no figures by iteration in this source: open the captures."), width)]
    label = _label(job)
    columns = columns_of(
        len(details.duration_ns), width - label - _TOTAL - 2, state.zoom,
        None if state.at is None else state.at - details.first,
    )  # fmt: skip
    names = targets(snapshot, state)
    at = cursor(names, state.selected, accused_targets(snapshot, job))
    head = _head(snapshot, job, details, columns, label, width, glyphs)
    foot = _foot(snapshot, state, details, columns, label, width, glyphs)
    room = max(1, height - len(head) - len(foot))
    by_nic = state.grid % 2 == 1
    below = [] if by_nic else _nics_below(snapshot, job, names[at], columns, label, width, glyphs)
    if below and room - len(below) < min(_BESIDE, len(names)):
        below = below[: max(0, room - min(_BESIDE, len(names)))]
        below = below if len(below) > 2 else []
    rows = [
        _row(snapshot, job, details, columns, names[k], label, width, glyphs, under_cursor=k == at)
        for k in visible(len(names), at, room - len(below))
    ]
    return [*head, *rows, *below, *foot]


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """What the cursor goes through."""
    job = job_of(snapshot, state)
    if job is None:
        return ()
    if state.grid % 2 == 1:
        return tuple(f"nic:{name}" for name in job.nics)
    return tuple(f"machine:{machine}" for machine, _ in by_machine(job))


def accused_targets(snapshot: Snapshot, job: JobView) -> frozenset[str]:
    """The NICs that verdicts blame, and their machines."""
    nics = [name for name, mark in marks_of(snapshot, job).items() if mark == 2]
    return frozenset([f"nic:{n}" for n in nics] + [f"machine:{machine_of(n)}" for n in nics])


def cursor(names: Sequence[str], chosen: str, accused: frozenset[str]) -> int:
    """Where the cursor is: on what was chosen, else on the accused, else on the first."""
    if chosen in names:
        return names.index(chosen)
    return next((k for k, name in enumerate(names) if name in accused), 0)


def nothing(snapshot: Snapshot, width: int) -> list[Line]:
    """What there is to say while no job is known."""
    if snapshot.loading:
        said = [f"{snapshot.loading} ...", "", "The dashboard stays usable meanwhile; q ends it."]
    else:
        said = list(snapshot.missing) or ["No training job was recognised in the traffic yet."]
    return [clip(line(f" {each}"), width) for each in said]


def _label(job: JobView) -> int:
    longest = max((len(name) for name in job.nics), default=0) + 2
    return max(_LEAST_LABEL, min(_MOST_LABEL, longest)) + 1


def _head(
    snapshot: Snapshot, job: JobView, details: JobDetails, columns: Columns, label: int, width: int,
    glyphs: Glyphs,
) -> list[Line]:  # fmt: skip
    """Two lines: how long iterations took, and the title of the rows."""
    took = np.array(details.duration_ns, dtype=np.float64)[columns.starts[0] : columns.end]
    starts = np.array(columns.starts) - columns.starts[0]
    longest = np.maximum.reduceat(took, starts)
    picture = "".join(c * columns.wide for c in spark(longest.tolist(), float(longest.max()), glyphs))
    title = fit("iteration", label)
    times = line(Span(title, "dim"), Span(picture, "spark"), Span(f" max {duration(longest.max())}", "dim"))
    usual = f"median {duration(usual_ns(details))}"
    mean = f"a column {columns_text(columns)}; {usual}"
    room = len(columns.starts) * columns.wide
    told = (f"{mean}; a machine: its worst NIC", mean, usual)
    which = next((text for text in told if len(text) <= room), "")
    titles = line(
        Span(fit("lost time", label), "head"),
        Span(fit(which, room), "dim"),
        Span(f" {'total':>{_TOTAL}}", "dim"),
    )
    verdict = gravest(snapshot, job)
    place = None if verdict is None else columns.place(verdict.onset_iteration - details.first)
    if place is None:
        return [clip(times, width), clip(titles, width)]
    at = label + place * columns.wide
    text = f"{glyphs.down} onset of {verdict.id if verdict else ''}"
    onset = (
        " " * at + text
        if at + len(text) < width
        else " " * max(0, at - len(text) + 1) + text[2:] + text[1] + text[0]
    )
    return [clip(times, width), clip(titles, width), clip(line(Span(onset, "accused")), width)]


def columns_text(columns: Columns) -> str:
    """What one column stands for."""
    each = columns.starts[1] - columns.starts[0] if len(columns.starts) > 1 else 1
    return "is an iteration" if each == 1 else f"is the mean of {each} iterations"


def _row(
    snapshot: Snapshot, job: JobView, details: JobDetails, columns: Columns, target: str, label: int,
    width: int, glyphs: Glyphs, *, under_cursor: bool,
) -> Line:  # fmt: skip
    row = row_of(snapshot, job, details, columns, target)
    content = aimed(_drawn(row, columns, label, glyphs), target)
    return selected(content, width) if under_cursor else clip(content, width)


def row_of(snapshot: Snapshot, job: JobView, details: JobDetails, columns: Columns, target: str) -> Row:
    """The figures of a machine (the most of its NICs) or of a NIC."""
    kind, _, name = target.partition(":")
    if kind == "machine":
        places = next((p for machine, p in by_machine(job) if machine == name), ())
    else:
        places = (job.nics.index(name),) if name in job.nics else ()
    marks = marks_of(snapshot, job)
    mark = max((marks.get(job.nics[p], 0) for p in places), default=0)
    if not places:
        return Row(name, target, np.empty(0), np.empty(0, np.int64), 0.0, 0)
    chosen = list(places)
    values, known = joined(details.lost_ns[chosen], details.known[chosen], columns)
    values = np.where(known == Known.YES, values, -1.0).max(axis=0)
    shown = details.lost_ns[chosen, columns.starts[0] : columns.end].max(axis=0)
    return Row(name, target, values / usual_ns(details), known.min(axis=0), float(shown.sum()), mark)


def _drawn(row: Row, columns: Columns, label: int, glyphs: Glyphs) -> Line:
    mark = (" ", glyphs.possible, glyphs.accused)[row.mark]
    spans = [Span(f"{mark} ", "accused"), Span(fit(row.name, label - 3, glyphs.ellipsis) + " ",
                                              "accused" if row.mark == 2 else "")]  # fmt: skip
    last, text = "", ""
    for value, known in zip(row.values.tolist(), row.known.tolist(), strict=True):
        role, glyph = cell(value, known, glyphs)
        if role != last and text:
            spans.append(Span(text, last))
            text = ""
        last, text = role, text + glyph * columns.wide
    spans.append(Span(text, last))
    unseen = bool(len(row.known)) and bool((row.known == Known.MISSING).all())
    total = "no capture" if unseen else duration(row.total_ns)
    spans.append(Span(f" {total:>{_TOTAL}}"[: _TOTAL + 2], "missing" if unseen else "dim"))
    return tuple(spans)


def cell(value: float, known: int, glyphs: Glyphs) -> tuple[str, str]:
    """Role and character of a share of an iteration; stale, missing and nothing are three different ones."""
    if known == Known.MISSING:
        return "missing", glyphs.missing
    if known == Known.STALE:
        return "stale", glyphs.stale
    step = level(value)
    return f"heat{step}", glyphs.heat[step]


def _nics_below(
    snapshot: Snapshot, job: JobView, target: str, columns: Columns, label: int, width: int, glyphs: Glyphs
) -> list[Line]:
    machine = target.partition(":")[2]
    places = next((p for name, p in by_machine(job) if name == machine), ())
    details = job.details
    if len(places) < 2 or details is None:
        return []
    title = f"NICs of {machine} (enter: all about them)"
    rows: list[Line] = [EMPTY, clip(line(Span(cut(title, width - 1), "head")), width)]
    targeted = [f"nic:{job.nics[place]}" for place in places]
    rows += [
        _row(snapshot, job, details, columns, t, label, width, glyphs, under_cursor=False) for t in targeted
    ]
    return rows


def _foot(
    snapshot: Snapshot,
    state: UiState,
    details: JobDetails,
    columns: Columns,
    label: int,
    width: int,
    glyphs: Glyphs,
) -> list[Line]:
    """Where in time the cursor is, and what characters and colours mean."""
    at = len(details.duration_ns) - 1 if state.at is None else state.at - details.first
    place = columns.place(at)
    axis = [" "] * (len(columns.starts) * columns.wide)
    first, last = columns.starts[0] + details.first, columns.end - 1 + details.first
    ends = f"{first}", f"{last}"
    if snapshot.kind == "live":
        # Iterations of a window that slides have no numbers that last: how long ago is what tells.
        ago_ns = details.begin_ns[-1] + details.duration_ns[-1] - details.begin_ns[columns.starts[0]]
        ends = f"{duration(ago_ns)} before", "latest"
    if len(axis) > len(ends[0]) + len(ends[1]) + 2:
        axis[: len(ends[0])] = ends[0]
        axis[-len(ends[1]) :] = ends[1]
    if place is not None and state.at is not None:
        text = f"{glyphs.here}{state.at}"
        begin = min(place * columns.wide, max(0, len(axis) - len(text)))
        axis[begin : begin + len(text)] = text
    where = line(Span(fit("", label)), Span("".join(axis), "dim" if state.at is None else "cursor"))
    return [clip(where, width), clip(legend(glyphs), width)]


def legend(glyphs: Glyphs) -> Line:
    """The scale, and the three ways of not being a number."""
    spans = [Span(" of an iteration: ", "dim")]
    for step, text in enumerate(LEVEL_TEXT):
        spans += [Span(glyphs.heat[step], f"heat{step}"), Span(f" {text}  ", "dim")]
    spans += [Span(glyphs.stale, "stale"), Span(" stale  ", "dim"), Span(glyphs.missing, "missing"),
              Span(" no capture", "dim")]  # fmt: skip
    return tuple(spans)
