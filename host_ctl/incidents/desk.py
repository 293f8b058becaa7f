# SPDX-License-Identifier: Apache-2.0
"""Where findings become incidents, and people have their say about them: one thread does it all in order.

Callers of any thread hand in work and wait, if they like, for what comes of it. A disk that takes nothing
keeps neither incidents nor hooks from going on; only what people say is refused then, because they are told
that it is kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from host_ctl.incidents.hooks.config import HookConfig
from host_ctl.incidents.hooks.policy import Standing
from host_ctl.incidents.hooks.switchboard import HookStatus, Switchboard
from host_ctl.incidents.plain import to_json
from host_ctl.incidents.records import Acknowledgement, Change, Delivery, Incident, Note, Silence
from host_ctl.incidents.silences import silenced_by
from host_ctl.incidents.store import Store, Unsaved, is_damage
from host_ctl.incidents.tracker import Persistence, Tracker
from host_ctl.live.findings import Findings

_LOG = logging.getLogger(__name__)
_MOST_LOOKS = 64
_FORGET_S = 3600.0
_STUCK_S = 5.0
_DAY_NS = 86_400 * 10**9
_Result = TypeVar("_Result")
Event = Findings | Change | Acknowledgement | Note | Silence
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class DeskConfig:
    """Where incidents are kept, for how long, when they open, and who is told."""

    folder: Path
    persistence: Persistence
    keep_days: float
    hooks: tuple[HookConfig, ...]
    url: str


@dataclass(frozen=True, slots=True)
class DeskStatus:
    """What is so now, as any thread may read it; ``latest`` came at ``latest_s`` of the monotonic clock."""

    latest: Findings | None = None
    latest_s: float = 0.0
    looks: int = 0
    lost_looks: int = 0
    open: tuple[Incident, ...] = ()
    acknowledged: frozenset[int] = frozenset()
    silences: tuple[Silence, ...] = ()
    hooks: tuple[HookStatus, ...] = ()
    problem: str | None = None


class Desk:
    """Begins with what the folder holds. Raises InputError or OSError when that cannot be used."""

    def __init__(self, config: DeskConfig) -> None:
        self._config = config
        self._store = Store(config.folder)
        self._tracker = Tracker(config.persistence, self._store.tracker_state())
        self._acknowledged = {each.incident: each for each in self._store.acknowledgements()}
        self._silences = {each.number: each for each in self._store.silences()}
        self._unsaved = Unsaved()
        self._switchboard = Switchboard(config.hooks, config.url, self._on_delivery)
        self._listeners: list[Listener] = []
        self._looks: deque[Findings] = deque()
        self._lock = threading.Lock()
        self._lost_looks = self._seen_looks = 0
        self._problem: str | None = None
        self._saved_tracker = ""
        self._begin_anew = False
        self._forget_at_s = time.monotonic()
        self._ticking: Future[Any] | None = None
        self._restore()
        self._begun_s: float | None = None
        self._status = DeskStatus()
        self._tell_status()
        self._executor = ThreadPoolExecutor(1, "incidents")
        self._switchboard.start()

    def _restore(self) -> None:
        last_incident, last_delivery = self._store.last_numbers()
        self._tracker.state.number = max(self._tracker.state.number, last_incident)
        told, waiting = self._store.told(), self._store.waiting()
        now_ns = time.time_ns()
        self._unsaved.deliveries.update(
            self._switchboard.restore(told, waiting, last_delivery, now_ns).deliveries
        )
        known = {incident.number for incident in self._tracker.open}
        for incident in self._store.open_incidents():
            if incident.number not in known:
                lost = replace(
                    incident, state="ended", ended_ns=incident.last_seen_ns, end_reason="lost track"
                )
                self._unsaved.incidents[incident.number] = lost

    @property
    def status(self) -> DeskStatus:
        """What is so now; may be asked from any thread."""
        status, begun_s = self._status, self._begun_s
        waits_s = 0.0 if begun_s is None else time.monotonic() - begun_s
        if waits_s < _STUCK_S:
            return status
        return replace(status, problem=f"the disk of incidents has not answered for {waits_s:.0f} s")

    def listen(self, listener: Listener) -> None:
        """Have everything told that happens, in the desk's thread; to be called before there is any."""
        self._listeners.append(listener)

    def take(self, findings: Findings) -> None:
        """Take the result of a look; never waits, and may be called from any thread."""
        with self._lock:
            self._looks.append(findings)
            if len(self._looks) > _MOST_LOOKS:
                self._looks.popleft()
                self._lost_looks += 1
                return
        with contextlib.suppress(RuntimeError):  # it ends
            self._submit(self._look)

    def tick(self) -> None:
        """Have done what is due by time alone; to be called every second."""
        if self._ticking is None or self._ticking.done():
            with contextlib.suppress(RuntimeError):
                self._ticking = self._submit(self._tick)

    def acknowledge(self, number: int, author: str, text: str) -> Future[Acknowledgement]:
        """Take an incident on. The future raises LookupError when none such is open, or sqlite3.Error."""
        return self._submit(self._acknowledge, number, author, text)

    def note(self, number: int, author: str, text: str) -> Future[Note]:
        """Write something about an incident. The future raises LookupError or sqlite3.Error."""
        return self._submit(self._note, number, author, text)

    def silence(self, silence: Silence) -> Future[Silence]:
        """Begin a silence, which gets a number. The future raises sqlite3.Error."""
        return self._submit(self._silence, silence)

    def unsilence(self, number: int) -> Future[Silence]:
        """End a silence now. The future raises LookupError or sqlite3.Error."""
        return self._submit(self._unsilence, number)

    def end(self, number: int, author: str, text: str) -> Future[Incident]:
        """End an incident because somebody says so. The future raises LookupError."""
        return self._submit(self._end, number, author, text)

    def stop(self) -> None:
        """Finish what was handed in, and stop telling."""
        self._switchboard.stop()
        self._submit(self._save)
        self._executor.shutdown()
        self._store.close()

    def _submit(self, work: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        return self._executor.submit(self._guarded, work, arguments)

    def _guarded(self, work: Callable[..., _Result], arguments: tuple[Any, ...]) -> _Result:
        """Do it; a defect must show, though nobody may wait for what comes of the work."""
        self._begun_s = time.monotonic()
        try:
            return work(*arguments)
        except (LookupError, sqlite3.Error):
            raise
        except Exception:
            _LOG.exception("incidents: a defect")
            raise
        finally:
            self._tell_status()
            self._begun_s = None

    def _look(self) -> None:
        with self._lock:
            findings = self._looks.popleft()
        self._seen_looks += 1
        self._status = replace(self._status, latest=findings, latest_s=time.monotonic())
        self._tell(findings)
        changes = {change.incident.number: change for change in self._tracker.look(findings)}
        self._keep(list(changes.values()), findings.report)
        self._consider(changes)
        self._save()

    def _keep(self, changes: Sequence[Change], report: Any) -> None:
        """Have written what changed, and told."""
        text = json.dumps(report) if changes and report is not None else None
        for change in changes:
            incident = change.incident
            _LOG.log(*_level(change), "incident %s %s: %s", incident.name, change.kind, change.text)
            self._unsaved.add_change(change)
            self._unsaved.incidents[incident.number] = incident
            if change.kind == "ended" and self._acknowledged.pop(incident.number, None) is not None:
                self._unsaved.unacknowledged.add(incident.number)
            if text is not None:
                for kind in ("opening", "latest") if change.kind == "opened" else ("latest",):
                    self._unsaved.reports[incident.number, kind] = change.at_ns, text
            self._tell(change)
        self._unsaved.incidents.update((incident.number, incident) for incident in self._tracker.open)

    def _consider(self, changes: dict[int, Change]) -> None:
        """Have hooks told what is due about incidents that are open or just ended."""
        now_ns = time.time_ns()
        incidents = {incident.number: incident for incident in self._tracker.open}
        incidents |= {number: change.incident for number, change in changes.items()}
        for number, incident in sorted(incidents.items()):
            acknowledgement = self._acknowledged.get(number)
            silence = silenced_by(incident, self._silences.values(), now_ns)
            standing = Standing(
                incident, changes.get(number), acknowledgement is not None, silence is not None
            )
            self._switchboard.consider(standing, acknowledgement, now_ns, self._unsaved)

    def _tick(self) -> None:
        self._consider({})
        now_s, now_ns = time.monotonic(), time.time_ns()
        tracked = {t.incident.number for t in self._tracker.state.tracks if t.incident is not None}
        self._switchboard.keep(tracked)
        if now_s >= self._forget_at_s and self._problem is None:
            self._forget_at_s = now_s + _FORGET_S
            before_ns = now_ns - round(self._config.keep_days * _DAY_NS)
            self._silences = {n: each for n, each in self._silences.items() if each.ends_ns >= before_ns}
            forgotten = self._store.forget(before_ns)
            if forgotten:
                _LOG.info("%d incidents that ended long ago are forgotten", forgotten)
        self._save()

    def _acknowledge(self, number: int, author: str, text: str) -> Acknowledgement:
        self._open(number)
        self._must_save()
        said = Acknowledgement(number, time.time_ns(), author, text)
        self._store.acknowledge(said)
        self._acknowledged[number] = said
        self._tell(said)
        self._consider({})
        return said

    def _note(self, number: int, author: str, text: str) -> Note:
        self._must_save()
        if not self._store.has_incident(number):
            raise LookupError(f"there is no incident i{number}")
        note = self._store.add_note(number, time.time_ns(), author, text)
        self._tell(note)
        return note

    def _silence(self, silence: Silence) -> Silence:
        silence = replace(silence, number=max(self._silences, default=0) + 1)
        self._store.put_silence(silence)
        self._silences[silence.number] = silence
        self._tell(silence)
        self._consider({})
        return silence

    def _unsilence(self, number: int) -> Silence:
        now_ns = time.time_ns()
        found = self._silences.get(number)
        if found is None or found.ends_ns <= now_ns:
            raise LookupError(f"there is no silence {number}, or it has ended")
        ended = replace(found, ends_ns=now_ns)
        self._store.put_silence(ended)
        self._silences[number] = ended
        self._tell(ended)
        self._consider({})
        return ended

    def _end(self, number: int, author: str, text: str) -> Incident:
        self._open(number)
        change = self._tracker.end(number, time.time_ns(), f"ended by {author}: {text}".rstrip(": "))
        assert change is not None
        self._keep([change], None)
        self._consider({number: change})
        self._save()
        return change.incident

    def _open(self, number: int) -> Incident:
        for incident in self._tracker.open:
            if incident.number == number:
                return incident
        raise LookupError(f"there is no open incident i{number}")

    def _on_delivery(self, delivery: Delivery) -> None:
        """Called by a hook's thread. What is told while the desk ends is told again at the next start."""
        with contextlib.suppress(RuntimeError):
            self._submit(self._note_delivery, delivery)

    def _note_delivery(self, delivery: Delivery) -> None:
        if delivery.kind != "repeated":
            self._unsaved.deliveries[delivery.number] = delivery
            self._save()

    def _must_save(self) -> None:
        """Write what is new. Raises sqlite3.Error when that fails."""
        self._save()
        if self._problem is not None:
            raise sqlite3.OperationalError(self._problem)

    def _save(self) -> None:
        """Write what is new; when that fails it is tried again with what comes next."""
        unsaved, tracker = self._unsaved, to_json(self._tracker.state)
        if tracker == self._saved_tracker and unsaved == Unsaved():
            return
        unsaved.tracker = tracker
        try:
            if self._begin_anew:
                self._write_anew()
            self._store.save(unsaved)
        except (sqlite3.Error, OSError) as error:
            self._on_failure(error)
            return
        self._unsaved, self._saved_tracker = Unsaved(), tracker
        if self._problem is not None:
            _LOG.warning("incidents are written again; %d steps were lost", unsaved.lost_changes)
        self._problem = None

    def _on_failure(self, error: sqlite3.Error | OSError) -> None:
        problem = f"incidents cannot be written: {error}"
        if problem != self._problem:
            _LOG.error("%s; it is tried again", problem)
        self._problem = problem
        if isinstance(error, sqlite3.Error) and is_damage(error):
            self._begin_anew = True
            try:
                self._store.replace(str(error))
            except (sqlite3.Error, OSError) as again:
                self._problem = f"incidents cannot be written: {again}"

    def _write_anew(self) -> None:
        """Put what is known by heart into a new file. Raises sqlite3.Error or OSError."""
        for acknowledgement in self._acknowledged.values():
            self._store.acknowledge(acknowledgement)
        for silence in self._silences.values():
            self._store.put_silence(silence)
        self._unsaved.told.update(((each.hook, each.incident), each) for each in self._switchboard.told())
        self._unsaved.incidents.update((incident.number, incident) for incident in self._tracker.open)
        self._begin_anew = False

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _tell_status(self) -> None:
        now_ns = time.time_ns()
        self._status = replace(
            self._status,
            looks=self._seen_looks,
            lost_looks=self._lost_looks,
            open=tuple(self._tracker.open),
            acknowledged=frozenset(self._acknowledged),
            silences=tuple(each for each in self._silences.values() if each.ends_ns > now_ns),
            hooks=self._switchboard.status,
            problem=self._problem,
        )


def _level(change: Change) -> tuple[Literal[20, 30]]:
    grave = change.kind in ("opened", "reopened") and change.incident.identity.severity != "notice"
    return (30,) if grave else (20,)
