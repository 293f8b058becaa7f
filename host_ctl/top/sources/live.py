# SPDX-License-Identifier: Apache-2.0
"""A live controller: its event stream tells when to ask, a thread asks, and tries again when it is gone."""

from __future__ import annotations

import getpass
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from host_ctl.client import ApiClient, RefusedError
from host_ctl.errors import InputError, PulseError, printable
from host_ctl.present.details import Details, read_details
from host_ctl.top.snapshot import (
    AgentView,
    Connection,
    IncidentView,
    Snapshot,
    clean,
    parts_of,
    place,
)
from host_ctl.top.sources.source import Listener, Wanted
from host_ctl.top.sources.writing import new_folder, write_report
from host_ctl.top.views.incidents import moment

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_AGAIN_S = 2.0  # the state of NICs changes without an event
_LEAST_S = 0.25
_INCIDENTS = 200


class LiveSource:
    """Asks one controller. One thread listens to events, one asks; both end with the process."""

    def __init__(self, api: ApiClient, url: str) -> None:
        self._api = api
        self._url = printable(url)
        self._listener: Listener | None = None
        self._orders: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._latest = self.first()
        self._looked_ns: int | None = None
        self._into: str | None = None
        self._stopped = threading.Event()

    def first(self) -> Snapshot:
        return Snapshot("live", self._url, "loading", "", loading=f"asking {self._url}")

    def start(self, listener: Listener) -> None:
        self._listener = listener
        threading.Thread(target=self._ask, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._orders.put(("stop", None))

    def want(self, wanted: Wanted) -> None:
        self._orders.put(("curve", wanted))

    def look_into(self, incident: str) -> None:
        self._into = incident
        self._orders.put(("ask", None))

    def acknowledge(self, incident: str, text: str) -> None:
        self._orders.put(("ack", (incident, text)))

    def note(self, incident: str, text: str) -> None:
        self._orders.put(("note", (incident, text)))

    def evidence(self, folder: Path, snapshot: Snapshot) -> None:
        self._orders.put(("evidence", (folder, snapshot)))

    def _listen(self) -> None:
        """Every event is a reason to ask; a stream that ends is read again, less and less often."""
        pause_s, last = _FIRST_PAUSE_S, None
        while not self._stopped.is_set():
            try:
                for event in self._api.events(last):
                    last, pause_s = event.id or last, _FIRST_PAUSE_S
                    self._orders.put(("ask", None))
            except PulseError:
                pass  # who asks finds it out as well, and says so
            self._stopped.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _ask(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            begun_s = time.monotonic()
            try:
                self._latest = self.fetch()
                pause_s = _FIRST_PAUSE_S
            except PulseError as error:
                now_s = time.monotonic()
                since_s = self._latest.connection.since_s or now_s
                lost = Connection(clean(error), since_s, now_s + pause_s)
                self._latest = replace(self._latest, connection=lost)
            self._tell()
            lost_now = bool(self._latest.connection.lost)
            self._serve(begun_s + (pause_s if lost_now else _AGAIN_S), eager=not lost_now)
            if lost_now:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _serve(self, until_s: float, *, eager: bool) -> None:
        """Do what is ordered until it is time to ask; events shorten the wait while all is well."""
        earliest_s = time.monotonic() + _LEAST_S
        while not self._stopped.is_set():
            try:
                what, about = self._orders.get(timeout=max(0.0, until_s - time.monotonic()))
            except Empty:
                return
            if what == "ask":
                until_s = min(until_s, earliest_s) if eager else until_s
            elif what == "curve":
                self._curve(about)
            elif what in ("ack", "note"):
                self._post(what, *about)
                until_s = time.monotonic()
            elif what == "evidence":
                self._write(*about)

    def fetch(self) -> Snapshot:
        """Ask once. Raises InputError or RefusedError."""
        status = self._api.get("/status")
        try:
            return self._made(status)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{self._url} answers what no controller does: {clean(repr(error))}") from None

    def _made(self, status: Mapping[str, Any]) -> Snapshot:
        agents = tuple(_agent(nic) for nic in self._api.get("/nics")["nics"])
        page = self._api.get("/incidents", {"limit": _INCIDENTS})
        incidents = tuple(_incident(i) for i in page["incidents"])
        if self._into is not None:
            incidents = self._with_steps(incidents, self._into)
        common: dict[str, Any] = {
            "agents": agents,
            "incidents": incidents,
            "silent": tuple(map(clean, status["nics_silent"])),
            "problems": tuple(clean(p) for p in (*status["analysis_problems"], status["problem"]) if p),
            "connection": Connection(),
            "taken_s": time.monotonic() - (status["analysis_age_s"] or 0.0),
        }
        looked_ns = status["analysed_until_ns"]
        if looked_ns is None:
            summary = clean(status["summary"])
            count = sum(i.open for i in incidents)
            summary += f"; {count} incidents are open (6)" if count else ""
            return replace(self.first(), health="unsure", headline=summary, loading="", **common)
        if looked_ns == self._looked_ns:
            return replace(self._latest, loading="", **common)
        report = self._api.get("/findings")
        try:
            details: Details | None = read_details(self._api.get("/details"))
        except RefusedError:
            details = None
        try:
            parts = parts_of(report, details)
        except InputError as error:
            # What the controller says in a sentence is right all the same.
            told = {"health": status["health"], "headline": clean(status["summary"]), "loading": ""}
            common["problems"] += (clean(error),)
            return replace(self.first(), **told, **common)
        self._looked_ns = looked_ns
        if parts["health"] != status["health"]:  # of another look: the controller's own sentence fits it
            parts |= {"headline": clean(status["summary"]), "health": status["health"]}
        return Snapshot(kind="live", origin=self._url, at_ns=looked_ns, **(parts | common))

    def _with_steps(self, incidents: tuple[IncidentView, ...], name: str) -> tuple[IncidentView, ...]:
        if not any(i.id == name for i in incidents):
            return incidents
        detail = self._api.get(f"/incidents/{name}")
        steps = [(u["at_ns"], f"{clean(u['kind'])}: {clean(u['text'])}") for u in detail["updates"]]
        steps += [(n["at_ns"], f"note of {clean(n['author'])}: {clean(n['text'])}") for n in detail["notes"]]
        told = tuple(f"{moment(at)} {text}" for at, text in sorted(steps))
        return tuple(replace(i, steps=told or ("nothing",)) if i.id == name else i for i in incidents)

    def _curve(self, wanted: Wanted) -> None:
        """Of the accused curves come along with the details; of others none."""
        key = wanted.job, wanted.nic, wanted.iteration
        found = next((c for c in self._latest.curves if (c.job, c.nic, c.iteration) == key), None)
        if self._listener is not None:
            self._listener.curve(wanted, found)

    def _post(self, what: str, incident: str, text: str) -> None:
        try:
            self._api.post(f"/incidents/{incident}/{what}", {"author": _author(), "text": text})
        except PulseError as error:
            self._say(str(error))
        else:
            self._say(f"{incident} is acknowledged" if what == "ack" else f"a note is kept with {incident}")

    def _write(self, folder: Path, snapshot: Snapshot) -> None:
        try:
            made = new_folder(folder)
            write_report(made, dict(snapshot.report))
            incidents = json.dumps(self._api.get("/incidents", {"limit": _INCIDENTS}), indent=1)
            (made / "incidents.json").write_text(incidents + "\n", encoding="utf-8")
            self._say(
                f"{printable(str(made))} has report, verdicts, incidents; pulse export writes the frames"
            )
        except PulseError as error:
            self._say(str(error))
        except OSError as error:
            self._say(f"the evidence cannot be written: {printable(error.strerror or str(error))}")

    def _tell(self) -> None:
        if self._listener is not None and not self._stopped.is_set():
            self._listener.snapshot(self._latest)

    def _say(self, text: str) -> None:
        if self._listener is not None:
            self._listener.said(printable(text))


def _author() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody"


def _agent(nic: Mapping[str, Any]) -> AgentView:
    counts = nic["counts"]
    return AgentView(
        name=clean(f"{nic['machine']}/{nic['nic']}" if nic["nic"] else nic["machine"]),
        connected=bool(nic["connected"]),
        silent=bool(nic["silent"]),
        last_received_ns=int(nic["last_received_ns"]),
        missing=int(counts.get("missing", 0)),
        late=int(counts.get("late", 0)),
    )


def _incident(i: Mapping[str, Any]) -> IncidentView:
    return IncidentView(
        id=clean(i["id"]),
        open=i["state"] == "open",
        acknowledged=bool(i["acknowledged"]),
        severity=clean(i["severity"]),
        cause=clean(i["cause"]),
        where=place(i),
        job=clean(i["job"]),
        started_ns=int(i["started_ns"]),
        ended_ns=None if i["ended_ns"] is None else int(i["ended_ns"]),
        lost_gpu_s=float(i["lost_gpu_seconds"]),
        confidence=float(i["confidence"]),
        summary=clean(i["summary"]),
    )
