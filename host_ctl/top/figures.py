# SPDX-License-Identifier: Apache-2.0
"""Numbers of NICs and machines that several views show, worked out once for a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from host_ctl.present.details import COUNTS, JobDetails
from host_ctl.present.evidence.lost_time import Known
from host_ctl.top.snapshot import CaptureView, JobView, Snapshot
from host_ctl.top.state import gravest


@dataclass(frozen=True, slots=True)
class Span:
    """The iterations that figures are of: [begin, end) within the details, and what to call them."""

    begin: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class NicRow:
    """One NIC; None is what is not known, which is not 0. Times are means per iteration of a span.

    ``known``: whether its capture ran (``Known``), MISSING without one. ``mark``: 2 for whom a verdict
    blames, 1 for a candidate. ``alive``: what the controller says of its agent, empty for recorded sessions.
    """

    name: str
    machine: str
    nic: str
    index: int
    lost_ns: float | None
    share: float | None
    host_ns: float | None
    sent_ns: float | None
    got_ns: float | None
    repeat_ns: float | None
    gbps: float | None
    counts: tuple[int, ...]
    ack_ns: tuple[float, ...]
    packets_lost: int | None
    clock_ns: int | None
    basis: str
    mode: str
    known: Known
    mark: int
    alive: str


def machine_of(name: str) -> str:
    """The machine of ``machine/nic``."""
    return name.rpartition("/")[0] or name


def span_of(snapshot: Snapshot, job: JobView, at: int | None) -> Span:
    """One iteration where one is looked at; else those since the onset of the gravest verdict, or all."""
    details = job.details
    if details is None or not details.duration_ns:
        return Span(0, 0, "")
    count = len(details.duration_ns)
    if at is not None:
        k = min(max(at - details.first, 0), count - 1)
        return Span(k, k + 1, f"iteration {k + details.first}")
    verdict = gravest(snapshot, job)
    onset = (verdict.onset_iteration if verdict is not None else 0) - details.first
    if 0 < onset < count:
        return Span(onset, count, f"mean since iteration {onset + details.first}")
    return Span(0, count, f"mean of {count} iterations")


@lru_cache(maxsize=8)
def nic_rows(snapshot: Snapshot, job: JobView, at: int | None) -> tuple[NicRow, ...]:
    """A row for each NIC of a job, in the job's order."""
    captures = {c.name: c for c in snapshot.captures}
    agents = {a.name: a for a in snapshot.agents}
    marks = marks_of(snapshot, job)
    span = span_of(snapshot, job, at)
    rows = []
    for index, name in enumerate(job.nics):
        agent = agents.get(name)
        alive = "" if agent is None else "silent" if agent.silent else "up" if agent.connected else "away"
        figures = _figures(job.details, index, span) if job.details is not None else _NOTHING
        rows.append(_row(name, index, figures, captures.get(name), marks.get(name, 0), alive, job))
    return tuple(rows)


_Figures = tuple[float | None, float | None, tuple[float | None, ...], float | None, Known]
_NOTHING: _Figures = (None, None, (None,) * 4, None, Known.YES)


def _figures(details: JobDetails, index: int, span: Span) -> _Figures:
    """Lost time, share, by kind, rate; none where nothing was known."""
    known = details.known[index, span.begin : span.end]
    kind = Known.MISSING if (known == Known.MISSING).all() else Known(int(known.max(initial=0)))
    usable = known == Known.YES
    duration = np.array(details.duration_ns[span.begin : span.end], dtype=np.float64)
    seconds = sum(details.duration_ns) / 1e9
    rate = details.nics[index].sent_bytes * 8 / 1e9 / seconds if seconds else None
    if not usable.any():
        return None, None, (None,) * 4, rate if kind != Known.MISSING else None, kind
    lost = details.lost_ns[index, span.begin : span.end][usable]
    kinds = details.kind_ns[index, span.begin : span.end][usable]
    by_kind: tuple[float | None, ...] = tuple(kinds.mean(axis=0).tolist())
    share = float(lost.sum()) / max(1.0, float(duration[usable].sum()))
    return float(lost.mean()), share, by_kind, rate, kind


def _row(
    name: str,
    index: int,
    figures: _Figures,
    capture: CaptureView | None,
    mark: int,
    alive: str,
    job: JobView,
) -> NicRow:
    machine = machine_of(name)
    lost, share, kinds, gbps, known = figures
    nic = job.details.nics[index] if job.details is not None else None
    host, sent, got, repeat = kinds
    clock = None if capture is None else capture.clock
    return NicRow(
        name=name,
        machine=machine,
        nic=name[len(machine) + 1 :],
        index=index,
        lost_ns=lost,
        share=share,
        host_ns=host,
        sent_ns=sent,
        got_ns=got,
        repeat_ns=repeat,
        gbps=gbps,
        counts=nic.counts if nic is not None else (),
        ack_ns=nic.ack_ns if nic is not None else (),
        packets_lost=None if capture is None else capture.lost,
        clock_ns=None if clock is None else clock.uncertainty_ns,
        basis="" if clock is None else clock.basis,
        mode="" if capture is None else capture.mode,
        known=Known.MISSING if capture is None and job.details is None else known,
        mark=mark,
        alive=alive,
    )


@lru_cache(maxsize=8)
def marks_of(snapshot: Snapshot, job: JobView) -> dict[str, int]:
    """NICs that verdicts blame (2) or hold for possible (1)."""
    marks: dict[str, int] = {}
    for verdict in snapshot.verdicts:
        if verdict.job != job.id:
            continue
        named = [(verdict.where, 2)] if verdict.machine else []
        named += [(name, 1) for name, _ in verdict.candidates]
        for name, mark in named:
            for nic in job.nics:
                if name in (nic, machine_of(nic)):
                    marks[nic] = max(mark, marks.get(nic, 0))
    return marks


@lru_cache(maxsize=8)
def by_machine(job: JobView) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Machines with the places of their NICs, in the job's order."""
    found: dict[str, list[int]] = {}
    for index, name in enumerate(job.nics):
        found.setdefault(machine_of(name), []).append(index)
    return tuple((machine, tuple(places)) for machine, places in found.items())


@dataclass(frozen=True, slots=True)
class Columns:
    """Iterations joined into as many columns as fit: [``starts[k]``, ``starts[k + 1]``), each ``wide``."""

    starts: tuple[int, ...]
    end: int
    wide: int

    def place(self, iteration: int) -> int | None:
        """The column of an iteration; None where it is not shown."""
        if not self.starts or not self.starts[0] <= iteration < self.end:
            return None
        return int(np.searchsorted(np.array(self.starts), iteration, side="right")) - 1


def columns_of(count: int, width: int, zoom: int, at: int | None) -> Columns:
    """Which iterations the columns of a heatmap show; zooming keeps the one that is looked at in it."""
    shown = max(min(count, 4), -(-count // (1 << min(zoom, 20)))) if count else 0
    centre = count - 1 if at is None else at
    first = max(0, min(centre - shown // 2 if at is not None else count, count - shown))
    end = min(count, first + shown)
    if end <= first or width < 1:
        return Columns((), 0, 1)
    each = -(-(end - first) // width)
    starts = tuple(range(first, end, each))
    return Columns(starts, end, max(1, min(4, width // len(starts))))


def joined(
    values: NDArray[np.int64], known: NDArray[np.int64], columns: Columns
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Means over the iterations of each column by row, and how far they are known (best of each)."""
    starts = np.array(columns.starts) - columns.starts[0]
    part = values[:, columns.starts[0] : columns.end].astype(np.float64)
    sizes = np.diff(np.r_[starts, part.shape[1]])
    best = np.minimum.reduceat(known[:, columns.starts[0] : columns.end], starts, axis=1)
    return np.add.reduceat(part, starts, axis=1) / sizes, best


def usual_ns(details: JobDetails) -> float:
    """The median time of an iteration: what shares are of."""
    return max(1.0, float(np.median(details.duration_ns))) if details.duration_ns else 1.0


Getter = Callable[[NicRow], float | None]


def count_of(row: NicRow, name: str) -> int | None:
    """A count of packets of trouble at the NIC's own tap; None without a capture."""
    return row.counts[COUNTS.index(name)] if row.counts else None


def fleet(job: JobView, span: Span) -> NDArray[np.float64]:
    """Lost time per iteration of every NIC with a known one in the span (ns)."""
    details = job.details
    if details is None or span.end <= span.begin:
        return np.empty(0)
    usable = details.known[:, span.begin : span.end] == Known.YES
    rows = usable.any(axis=1)
    total = (details.lost_ns[:, span.begin : span.end] * usable).sum(axis=1)[rows]
    return np.asarray(total / usable.sum(axis=1)[rows])
