# SPDX-License-Identifier: Apache-2.0
"""The table of NICs: any column sorts, a filter chooses rows, columns are chosen too."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from host_ctl.present.evidence.lost_time import Known
from host_ctl.present.units import digits, duration
from host_ctl.top.figures import NicRow, count_of, nic_rows, span_of
from host_ctl.top.glyphs import Glyphs, bar, level
from host_ctl.top.lines import Line, Span, aimed, clip, fit, line, selected, visible
from host_ctl.top.snapshot import JobView, Snapshot
from host_ctl.top.state import UiState, job_of
from host_ctl.top.views.heat import accused_targets, cursor, nothing

_BAR = 8


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the number that it sorts by, None where not known, and how that is written."""

    title: str
    width: int
    number: Callable[[NicRow], float | None]
    text: Callable[[float], str]
    role: Callable[[float], str] = lambda _: ""


def _quantile(place: int) -> Callable[[NicRow], float | None]:
    return lambda row: row.ack_ns[place] if row.ack_ns else None


def _count(name: str) -> Callable[[NicRow], float | None]:
    return lambda row: count_of(row, name)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _trouble(value: float) -> str:
    return "warn" if value else ""


def _heat(value: float) -> str:
    return f"heat{level(value)}"


COLUMNS: dict[str, Column] = {
    "lost": Column("lost/it", 9, lambda r: r.lost_ns, duration),
    "share": Column("share", 7, lambda r: r.share, _share, _heat),
    "host": Column("host", 9, lambda r: r.host_ns, duration),
    "sent": Column("sending", 9, lambda r: r.sent_ns, duration),
    "got": Column("getting", 9, lambda r: r.got_ns, duration),
    "repeat": Column("repeats", 9, lambda r: r.repeat_ns, duration),
    "rate": Column("Gbit/s", 8, lambda r: r.gbps, digits),
    "lost packets": Column("not seen", 9, lambda r: r.packets_lost, _whole, _trouble),
    "cnp": Column("CNP", 8, _count("cnp"), _whole, _trouble),
    "marks": Column("ECN", 9, _count("ecn_ce"), _whole),
    "rnr": Column("RNR", 6, _count("rnr"), _whole, _trouble),
    "nak": Column("NAK", 6, _count("nak_sequence"), _whole, _trouble),
    "sent again": Column("again", 7, _count("repeat_packets"), _whole, _trouble),
    "p50": Column("ack p50", 9, _quantile(0), duration),
    "p99": Column("ack p99", 9, _quantile(1), duration),
    "p99.9": Column("ack p99.9", 9, _quantile(2), duration),
    "clock": Column("clock +/-", 10, lambda r: r.clock_ns, duration),
}
NAME = "name"
ORDERS = (NAME, *COLUMNS)


def matching(text: str) -> Callable[[str], bool]:
    """A filter: a regular expression or plain text, whatever its case; ``!`` before it turns it round."""
    wanted, inverse = text.removeprefix("!"), text.startswith("!")
    try:
        pattern = re.compile(wanted, re.IGNORECASE)
    except re.error:
        pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    return lambda name: bool(pattern.search(name)) != inverse


@lru_cache(maxsize=8)
def chosen_rows(
    snapshot: Snapshot, job: JobView, at: int | None, wanted: str, sort: str, ascending: bool
) -> tuple[NicRow, ...]:
    """The rows that the filter leaves, in order; what is not known comes last either way."""
    fits = matching(wanted)
    rows = [row for row in nic_rows(snapshot, job, at) if not wanted or fits(row.name)]
    if sort == NAME or sort not in COLUMNS:
        return tuple(rows if ascending else reversed(rows))
    number = COLUMNS[sort].number
    known = [row for row in rows if number(row) is not None]
    known.sort(key=lambda row: (number(row) or 0.0, -row.index), reverse=not ascending)
    return (*known, *(row for row in rows if number(row) is None))


def rows_of(snapshot: Snapshot, state: UiState) -> tuple[NicRow, ...]:
    """The rows of the table as they are."""
    job = job_of(snapshot, state)
    if job is None:
        return ()
    return chosen_rows(snapshot, job, state.at, state.filter, state.sort, state.ascending)


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """What the cursor goes through."""
    return tuple(f"nic:{row.name}" for row in rows_of(snapshot, state))


def table(snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The table; columns that do not fit are left out from the right, and it says so."""
    job = job_of(snapshot, state)
    if job is None:
        return nothing(snapshot, width)
    rows = rows_of(snapshot, state)
    name = max(10, min(30, max((len(n) for n in job.nics), default=0) + 1))
    shown, hidden = _fitting(state.columns, width - name - 4)
    bars = width - name - 4 - sum(COLUMNS[c].width + 1 for c in shown) >= _BAR + 1
    names = [f"nic:{row.name}" for row in rows]
    at = cursor(names, state.selected, accused_targets(snapshot, job))
    lines = [
        _title(snapshot, job, state, rows, hidden, width),
        _heads(state, shown, name, bars, glyphs, width),
    ]
    most = max((r.gbps or 0.0 for r in nic_rows(snapshot, job, state.at)), default=0.0)
    for k in visible(len(rows), at, height - len(lines)):
        content = aimed(_row(rows[k], shown, name, most if bars else None, glyphs), names[k])
        lines.append(selected(content, width) if k == at else clip(content, width))
    if not rows:
        lines.append(
            clip(line(Span(f" No NIC fits the filter {state.filter}: / changes it.", "warn")), width)
        )
    return lines


def _fitting(columns: tuple[str, ...], room: int) -> tuple[list[str], int]:
    shown: list[str] = []
    for name in columns:
        room -= COLUMNS[name].width + 1
        if room < 0:
            break
        shown.append(name)
    return shown, len(columns) - len(shown)


def _title(
    snapshot: Snapshot, job: JobView, state: UiState, rows: tuple[NicRow, ...], hidden: int, width: int
) -> Line:
    span = span_of(snapshot, job, state.at).text
    told = f" {len(rows)} of {len(job.nics)} NICs of {job.id}, {span}" if span else f" {len(rows)} NICs"
    spans = [Span(told, "head")]
    if state.filter:
        spans.append(Span(f"  filter: {state.filter}", "warn"))
    if hidden:
        spans.append(Span(f"  {hidden} columns hidden: too narrow", "dim"))
    return clip(tuple(spans), width)


def _heads(state: UiState, shown: list[str], name: int, bars: bool, glyphs: Glyphs, width: int) -> Line:
    spans = [Span("    "), _headed(NAME, "NIC", name, state, glyphs, right=False)]
    for key in shown:
        spans += [Span(" "), _headed(key, COLUMNS[key].title, COLUMNS[key].width, state, glyphs)]
    if bars:
        spans.append(Span(" sent", "dim"))
    return clip(tuple(spans), width)


def _headed(key: str, title: str, width: int, state: UiState, glyphs: Glyphs, *, right: bool = True) -> Span:
    mark = (glyphs.up if state.ascending else glyphs.down) if state.sort == key else ""
    return Span(fit(title + mark, width, right=right), "head" if mark else "dim", f"sort:{key}")


def _row(row: NicRow, shown: list[str], name: int, most: float | None, glyphs: Glyphs) -> Line:
    mark = (" ", glyphs.possible, glyphs.accused)[row.mark]
    spans = [Span(f"{mark} ", "accused"), health_of(row, glyphs), Span(" "),
             Span(fit(row.name, name, glyphs.ellipsis), "accused" if row.mark == 2 else "")]  # fmt: skip
    for key in shown:
        column = COLUMNS[key]
        value = column.number(row)
        spans.append(Span(" "))
        if value is None:
            text, role = unknown(row)
            text = text if len(text) <= column.width else glyphs.missing
            spans.append(Span(fit(text, column.width, right=True), role))
        else:
            role = "stale" if row.known == Known.STALE else column.role(value)
            spans.append(Span(fit(column.text(value), column.width, right=True), role))
    if most is not None and row.gbps is not None:
        spans += [Span(" "), Span(bar(row.gbps / most if most else 0.0, _BAR, glyphs), "spark")]
    return tuple(spans)


def unknown(row: NicRow) -> tuple[str, str]:
    """What stands where there is no number."""
    if row.known == Known.MISSING:
        return "no capt.", "missing"
    if row.known == Known.STALE:
        return "stale", "stale"
    return "n/a", "dim"


def health_of(row: NicRow, glyphs: Glyphs) -> Span:
    """A character for whether its figures are current."""
    if row.alive == "silent":
        return Span("!", "bad")
    if row.alive == "away":
        return Span(glyphs.stale, "stale")
    if row.known == Known.MISSING:
        return Span(glyphs.missing, "missing")
    if row.known == Known.STALE:
        return Span(glyphs.stale, "stale")
    return Span(" ")


def picker(state: UiState, width: int, glyphs: Glyphs) -> list[Line]:
    """The list of columns, with those that are shown marked."""
    lines = [clip(line(Span(" Columns of the table (space shows or hides, esc is done)", "head")), width)]
    names = list(COLUMNS)
    at = picked(state)
    for k, name in enumerate(names):
        box = "[x]" if name in state.columns else "[ ]"
        content = line(Span(f"  {box} {name:<14} {COLUMNS[name].title}", "", f"column:{name}"))
        lines.append(selected(content, width) if k == at else clip(content, width))
    return lines


def picked(state: UiState) -> int:
    """Which column the cursor is on."""
    names = list(COLUMNS)
    name = state.selected.removeprefix("column:")
    return names.index(name) if name in names else 0
