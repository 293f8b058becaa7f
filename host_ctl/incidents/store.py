# SPDX-License-Identifier: Apache-2.0
"""Keeps incidents in `state.sqlite`, which any SQLite may read meanwhile. One thread writes.

What is to be written waits in `Unsaved`, where newer replaces older, until a transaction succeeds: a disk
that takes nothing for a while costs nothing but the steps between.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from host_ctl.incidents.plain import build, to_json
from host_ctl.incidents.records import Acknowledgement, Change, Delivery, Incident, Note, Silence, Told
from host_ctl.incidents.schema import forget, migrate
from host_ctl.incidents.tracker import Tracker, TrackerState

_LOG = logging.getLogger(__name__)
FILE = "state.sqlite"
_ASIDE = ".aside"
_BUSY_S = 5.0
_MOST_CHANGES = 10_000
_COLUMNS = (
    "number", "state", "cause", "machine", "nic", "peer", "summary", "started_ns", "opened_ns",
    "last_seen_ns", "ended_ns", "end_reason", "reopened", "confidence", "slowdown", "lost_gpu_seconds",
)  # fmt: skip
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_Row = TypeVar("_Row")


@dataclass(slots=True)
class Unsaved:
    """What is not on disk yet."""

    incidents: dict[int, Incident] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    reports: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict)
    tracker: str | None = None
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    told: dict[tuple[str, int], Told] = field(default_factory=dict)
    unacknowledged: set[int] = field(default_factory=set)
    lost_changes: int = 0

    def add_change(self, change: Change) -> None:
        """Keep a change; the oldest give way when too many wait."""
        self.changes.append(change)
        if len(self.changes) > _MOST_CHANGES:
            del self.changes[0]
            self.lost_changes += 1


class Store:
    """The file, open for writing. A damaged one is set aside, and a new one begun."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._open: sqlite3.Connection | None = None
        try:
            self._open = self._opened()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise OSError(f"{self.path} cannot be used: {error}") from error
            self.replace(str(error))

    def _opened(self) -> sqlite3.Connection:
        # Transactions are begun and ended here alone.
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                error = sqlite3.DatabaseError(found)
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            with _transaction(connection):
                before = migrate(connection, self.path, time.time_ns())
            if before:
                _LOG.debug("%s was of version %d", self.path, before)
        except BaseException:
            connection.close()
            raise
        return connection

    def replace(self, reason: str) -> None:
        """Set the file aside and begin a new one. Raises OSError."""
        self.close()
        aside = self.path.with_name(f"{self.path.name}.{time.time_ns()}{_ASIDE}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        _LOG.warning("%s is damaged (%s): set aside as %s, a new one is begun", self.path, reason, aside)
        self._open = self._opened()

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            with contextlib.suppress(sqlite3.Error):
                self._open.close()
        self._open = None

    @property
    def _connection(self) -> sqlite3.Connection:
        # What was set aside may have had no successor at once.
        if self._open is None:
            self._open = self._opened()
        return self._open

    def tracker_state(self) -> TrackerState | None:
        """What the tracker remembered when it was last written; None when there is nothing usable."""
        row = self._connection.execute("SELECT state FROM tracker").fetchone()
        if row is None:
            return None
        try:
            return Tracker.restored(json.loads(row[0]))
        except (TypeError, KeyError, ValueError) as error:
            _LOG.warning(
                "%s: what was remembered cannot be read (%s): incidents begin anew", self.path, error
            )
            return None

    def open_incidents(self) -> list[Incident]:
        """The incidents that are open on disk."""
        rows = self._connection.execute("SELECT record FROM incidents WHERE state = 'open' ORDER BY number")
        return [build(Incident, json.loads(text)) for (text,) in rows]

    def acknowledgements(self) -> list[Acknowledgement]:
        """All that hold."""
        return self._all(Acknowledgement, "acknowledgements")

    def silences(self) -> list[Silence]:
        """All that are kept, also those that have ended."""
        return self._all(Silence, "silences")

    def told(self) -> list[Told]:
        """What hooks have been told of incidents."""
        return [
            build(Told, vars_of | {"firing": bool(vars_of["firing"])}) for vars_of in self._rows(Told, "told")
        ]

    def waiting(self) -> list[Delivery]:
        """What hooks have not told yet, in order."""
        return self._all(Delivery, "deliveries", "WHERE state = 'waiting'")

    def last_numbers(self) -> tuple[int, int]:
        """The highest numbers of an incident and of a delivery that were ever written."""
        (incident,), (delivery,) = (
            self._connection.execute(f"SELECT coalesce(max(number), 0) FROM {table}").fetchone()  # noqa: S608
            for table in ("incidents", "deliveries")
        )
        return int(incident), int(delivery)

    def save(self, unsaved: Unsaved) -> None:
        """Write all of it, or nothing. Raises sqlite3.Error."""
        with _transaction(self._connection) as to:
            for incident in unsaved.incidents.values():
                _put_incident(to, incident)
            to.executemany(
                "INSERT INTO updates (incident, at_ns, kind, text) VALUES (?, ?, ?, ?)",
                [(c.incident.number, c.at_ns, c.kind, c.text) for c in unsaved.changes],
            )
            to.executemany(
                "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?)",
                [(*key, *value) for key, value in unsaved.reports.items()],
            )
            if unsaved.tracker is not None:
                to.execute("INSERT OR REPLACE INTO tracker VALUES (1, ?)", (unsaved.tracker,))
            for each in (*unsaved.deliveries.values(), *unsaved.told.values()):
                _put(to, "deliveries" if isinstance(each, Delivery) else "told", each)
            to.executemany(
                "DELETE FROM acknowledgements WHERE incident = ?", [(n,) for n in unsaved.unacknowledged]
            )

    def acknowledge(self, acknowledgement: Acknowledgement, kind: str = "acknowledged") -> None:
        """Keep that somebody took an incident on. Raises sqlite3.Error."""
        with _transaction(self._connection) as to:
            _put(to, "acknowledgements", acknowledgement)
            said = f"{acknowledgement.author}: {acknowledgement.text}".rstrip(": ")
            to.execute(
                "INSERT INTO updates (incident, at_ns, kind, text) VALUES (?, ?, ?, ?)",
                (acknowledgement.incident, acknowledgement.at_ns, kind, said),
            )

    def add_note(self, incident: int, at_ns: int, author: str, text: str) -> Note:
        """Keep a note. Raises sqlite3.Error."""
        with _transaction(self._connection) as to:
            done = to.execute(
                "INSERT INTO notes (incident, at_ns, author, text) VALUES (?, ?, ?, ?)",
                (incident, at_ns, author, text),
            )
        return Note(int(done.lastrowid or 0), incident, at_ns, author, text)

    def put_silence(self, silence: Silence) -> None:
        """Keep a silence, or its new end. Raises sqlite3.Error."""
        with _transaction(self._connection) as to:
            _put(to, "silences", silence)

    def has_incident(self, number: int) -> bool:
        """Whether there is, or was, such an incident on disk."""
        found = self._connection.execute("SELECT 1 FROM incidents WHERE number = ?", (number,))
        return found.fetchone() is not None

    def forget(self, before_ns: int) -> int:
        """Delete what ended before a time; return how many incidents. Raises sqlite3.Error."""
        with _transaction(self._connection) as to:
            return forget(to, before_ns)

    def _all(self, kind: type[_Row], table: str, where: str = "") -> list[_Row]:
        return [build(kind, row) for row in self._rows(kind, table, where)]

    def _rows(self, kind: type, table: str, where: str = "") -> list[dict[str, Any]]:
        names = [each.name for each in fields(kind)]
        query = f"SELECT {', '.join(names)} FROM {table} {where} ORDER BY rowid"  # noqa: S608  names of ours
        return [dict(zip(names, row, strict=True)) for row in self._connection.execute(query)]


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, rather than the disk full or somebody else writing."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGED


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # A full disk has rolled it back already.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _put_incident(to: sqlite3.Connection, incident: Incident) -> None:
    values = {name: getattr(incident, name) for name in _COLUMNS}
    values |= {
        "severity": incident.identity.severity,
        "job": incident.identity.job,
        "record": to_json(incident),
    }
    marks = ", ".join(f":{name}" for name in values)
    to.execute(f"INSERT OR REPLACE INTO incidents ({', '.join(values)}) VALUES ({marks})", values)  # noqa: S608


def _put(to: sqlite3.Connection, table: str, record: Any) -> None:
    names = [each.name for each in fields(record)]
    marks = ", ".join("?" * len(names))
    to.execute(
        f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608  names of ours
        astuple(record),
    )
