# SPDX-License-Identifier: Apache-2.0
"""A recorded session: captures or frames of a folder, analysed in a thread; or a report that was kept."""

from __future__ import annotations

import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from host_ctl.errors import PulseError, printable
from host_ctl.present.stored import read_report
from host_ctl.top.snapshot import Snapshot, clean, parts_of
from host_ctl.top.sources.source import Listener, Wanted
from host_ctl.top.sources.writing import new_folder, write_report

if TYPE_CHECKING:
    from host_ctl.pipeline import Analysis

_NO_INCIDENTS = "a recorded session has no incidents: pulse top without a path shows a controller's"


def session_of(analysis: Analysis, origin: str) -> Snapshot:
    """The snapshot of captures that have been analysed."""
    from host_ctl.present.details import details_of
    from host_ctl.present.report import report_of

    parts = parts_of(report_of(analysis), details_of(analysis))
    return Snapshot(kind="session", origin=origin, taken_s=time.monotonic(), **parts)


def kept(path: Path, origin: str) -> Snapshot:
    """The snapshot of a report in JSON. Raises InputError on anything else."""
    return Snapshot(kind="report", origin=origin, **parts_of(read_report(str(path)), None))


class _Base(ABC):
    """What sources without a controller have in common: work in one thread, in order."""

    def __init__(self, origin: str) -> None:
        self._origin = printable(origin)
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self, listener: Listener) -> None:
        self._listener = listener
        self._thread.start()

    def stop(self) -> None:
        self._orders.put(None)

    def look_into(self, incident: str) -> None:
        self._say(_NO_INCIDENTS)

    def acknowledge(self, incident: str, text: str) -> None:
        self._say(_NO_INCIDENTS)

    def note(self, incident: str, text: str) -> None:
        self._say(_NO_INCIDENTS)

    def evidence(self, folder: Path, snapshot: Snapshot) -> None:
        self._orders.put(lambda: self._write(folder, snapshot))

    @abstractmethod
    def _begin(self) -> None:
        """Read what there is and tell it."""

    def _extras(self, folder: Path) -> list[str]:
        """Write what else there is; return what was left out."""
        return []

    def _write(self, folder: Path, snapshot: Snapshot) -> None:
        self._say("the evidence is being written ...")
        try:
            made = new_folder(folder)
            write_report(made, dict(snapshot.report))
            left = self._extras(made)
            names = ", ".join(sorted(p.name for p in made.iterdir()))
            self._say(f"{printable(str(made))}: {names}{''.join(f'; {each}' for each in left)}")
        except OSError as error:
            self._say(f"the evidence cannot be written: {printable(error.strerror or str(error))}")

    def _work(self) -> None:
        try:
            self._begin()
        except PulseError as error:
            self._fail(str(error))
            return
        except Exception as error:  # noqa: BLE001  the screen stays, and says what went wrong
            self._fail(f"the analysis failed: {error!r}")
            return
        while (order := self._orders.get()) is not None:
            order()

    def _fail(self, text: str) -> None:
        self._tell(Snapshot("session", self._origin, "unsure", clean(text), missing=(clean(text),)))

    def _tell(self, snapshot: Snapshot) -> None:
        if self._listener is not None:
            self._listener.snapshot(snapshot)

    def _say(self, text: str) -> None:
        if self._listener is not None:
            self._listener.said(text)


class CapturesSource(_Base):
    """Captures or frames. The analysis is kept: curves are read from it when somebody looks at one."""

    def __init__(self, paths: list[Path]) -> None:
        super().__init__(" ".join(map(str, paths)))
        self._paths = paths
        self._analysis: Analysis | None = None

    def first(self) -> Snapshot:
        return Snapshot("session", self._origin, "loading", "", loading=f"reading {self._origin}")

    def want(self, wanted: Wanted) -> None:
        self._orders.put(lambda: self._curve(wanted))

    def _begin(self) -> None:
        self._analysis = self._analyse()
        self._tell(session_of(self._analysis, self._origin))

    def _analyse(self) -> Analysis:
        """As ``pulse analyze`` does, telling how far it is."""
        from host_ctl.pipeline import Stopwatch, analyze_paths

        source = self

        class Told(Stopwatch):
            def lap(self, stage: str) -> None:
                super().lap(stage)
                source._progress(f"analysing: {stage}, {sum(self.seconds.values()):.0f} s")

        return analyze_paths(self._paths, watch=Told())

    def _progress(self, text: str) -> None:
        self._tell(replace(self.first(), loading=text))

    def _curve(self, wanted: Wanted) -> None:
        from host_ctl.present.details import curves_of

        analysis, found = self._analysis, None
        if analysis is not None:
            one = next((each for each in analysis.jobs if clean(each.job.id) == wanted.job), None)
            ends = [n for n, e in enumerate(analysis.traffic.endpoints) if clean(e.name) == wanted.nic]
            if one is not None and ends and 0 <= wanted.iteration < one.job.iterations:
                curves = curves_of(one, analysis.traffic, wanted.job, ends[:1], wanted.iteration)
                found = replace(curves[0], nic=wanted.nic) if curves else None
        if self._listener is not None:
            self._listener.curve(wanted, found)

    def _extras(self, folder: Path) -> list[str]:
        from host_ctl.present.html.page import Origin, build_html
        from host_ctl.present.perfetto.trace import build_trace

        if self._analysis is None:
            return []
        line = shlex.join(["pulse", "top", *map(str, self._paths)])
        page = build_html(self._analysis, Origin(line, "top", time.time_ns()))
        (folder / "report.html").write_text(page, encoding="utf-8", errors="replace")
        (folder / "trace.pftrace").write_bytes(build_trace(self._analysis, None).data)
        return []


class ReportSource(_Base):
    """A report in JSON: verdicts, jobs, clocks; nothing by iteration."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def first(self) -> Snapshot:
        return Snapshot("report", self._origin, "loading", "", loading=f"reading {self._origin}")

    def want(self, wanted: Wanted) -> None:
        if self._listener is not None:
            self._listener.curve(wanted, None)

    def _begin(self) -> None:
        self._tell(kept(self._path, self._origin))

    def _extras(self, folder: Path) -> list[str]:
        return ["a report holds no captures: page and trace come from pulse analyze FOLDER"]
