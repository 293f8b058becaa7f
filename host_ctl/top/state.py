# SPDX-License-Identifier: Apache-2.0
"""What the user has chosen to see: tabs, cursor, sorting, filter, place in time."""

from __future__ import annotations

from dataclasses import dataclass

from host_ctl.top.snapshot import JobView, Snapshot, VerdictView

TABS = ("overview", "nics", "grid", "blame", "operators", "incidents", "data")
TAB_TEXT = {
    "overview": "Overview", "nics": "NICs", "grid": "Grid", "blame": "Blame", "operators": "Operators",
    "incidents": "Incidents", "data": "Data",
}  # fmt: skip
COLUMNS = ("lost", "share", "host", "sent", "got", "repeat", "rate", "lost packets", "cnp", "clock")


@dataclass(frozen=True, slots=True)
class UiState:
    """``at`` is the iteration that is looked at, None the latest; ``selected`` the target of the cursor.

    ``opened`` are the details on top of the tab, each a target, the last one shown. ``offset`` scrolls
    texts. ``zoom`` halves the time that heatmaps show, so many times, ``closer`` that of a rate curve.
    ``note`` is said in the last line.
    """

    tab: str = "overview"
    job: int = 0
    selected: str = ""
    opened: tuple[str, ...] = ()
    offset: int = 0
    at: int | None = None
    zoom: int = 0
    closer: int = 0
    grid: int = 0
    sort: str = "lost"
    ascending: bool = False
    filter: str = ""
    columns: tuple[str, ...] = COLUMNS
    picking: bool = False
    help: bool = False
    paused: bool = False
    playing: bool = False
    note: str = ""
    ascii: bool = False
    read_only: bool = False


def job_of(snapshot: Snapshot, state: UiState) -> JobView | None:
    """The job that is looked at."""
    if not snapshot.jobs:
        return None
    return snapshot.jobs[min(state.job, len(snapshot.jobs) - 1)]


def gravest(snapshot: Snapshot, job: JobView) -> VerdictView | None:
    """The first verdict on a job that is no notice."""
    return next((v for v in snapshot.verdicts if v.job == job.id and v.severity != "notice"), None)


def iterations_of(job: JobView) -> tuple[int, int]:
    """The first iteration of which there are details, and the one after the last."""
    details = job.details
    if details is None:
        return 0, 0
    return details.first, details.first + len(details.duration_ns)
