# SPDX-License-Identifier: Apache-2.0
"""Reads incidents from `state.sqlite`, from any thread or process, while the controller writes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from host_ctl.incidents.plain import build
from host_ctl.incidents.records import Acknowledgement, DeliveryKind, DeliveryState, Incident, Note, State
from host_ctl.incidents.store import FILE

_BUSY_S = 5.0


@dataclass(frozen=True, slots=True)
class Update:
    """A step in the life of an incident."""

    at_ns: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """How it went with telling a hook."""

    hook: str
    kind: DeliveryKind
    created_ns: int
    attempts: int
    state: DeliveryState
    error: str | None
    done_ns: int | None


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident with what was done about it."""

    incident: Incident
    acknowledgement: Acknowledgement | None
    updates: tuple[Update, ...]
    notes: tuple[Note, ...]
    deliveries: tuple[DeliveryLine, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which incidents are asked for; None asks for all."""

    state: State | None = None
    severity: str | None = None
    job: str | None = None
    machine: str | None = None
    cause: str | None = None
    since_ns: int | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """Incidents, the newest first; ``next_before`` asks for those that follow, if there are any."""

    incidents: tuple[Incident, ...]
    next_before: int | None


class IncidentReader:
    """Answers questions about the incidents of a folder. Methods raise sqlite3.Error."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def page(self, asked: Filter) -> Page:
        """Return the newest incidents that fit."""
        wanted: dict[str, Any] = {
            "state = :state": asked.state,
            "severity = :severity": asked.severity,
            "job = :job": asked.job,
            "machine = :machine": asked.machine,
            "cause = :cause": asked.cause,
            "coalesce(ended_ns, last_seen_ns) >= :since_ns": asked.since_ns,
            "number < :before": asked.before,
        }
        conditions = " AND ".join([text for text, value in wanted.items() if value is not None] or ["1"])
        values = {each.name: getattr(asked, each.name) for each in fields(asked)} | {"most": asked.limit + 1}
        query = f"SELECT record FROM incidents WHERE {conditions} ORDER BY number DESC LIMIT :most"  # noqa: S608
        with self._connected() as connection:
            rows = connection.execute(query, values).fetchall()
        found = tuple(build(Incident, json.loads(text)) for (text,) in rows[: asked.limit])
        return Page(found, found[-1].number if len(rows) > asked.limit else None)

    def view(self, number: int) -> IncidentView | None:
        """Return an incident with all that belongs to it."""
        with self._connected() as connection:
            row = connection.execute("SELECT record FROM incidents WHERE number = ?", (number,)).fetchone()
            if row is None:
                return None
            acknowledged = _rows(connection, Acknowledgement, "acknowledgements", number)
            return IncidentView(
                build(Incident, json.loads(row[0])),
                acknowledged[0] if acknowledged else None,
                tuple(_rows(connection, Update, "updates", number)),
                tuple(_rows(connection, Note, "notes", number)),
                tuple(_rows(connection, DeliveryLine, "deliveries", number)),
            )

    def report(self, number: int, kind: Literal["opening", "latest"]) -> str | None:
        """Return the report that opened an incident, or the latest one, as JSON."""
        query = "SELECT report FROM reports WHERE incident = ? AND kind = ?"
        with self._connected() as connection:
            row = connection.execute(query, (number, kind)).fetchone()
        return None if row is None else str(row[0])

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # A file that was set aside must not be read on: a connection lives as long as a question.
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None
        )
        try:
            yield connection
        finally:
            connection.close()


def _rows(connection: sqlite3.Connection, kind: type, table: str, incident: int) -> list[Any]:
    names = [each.name for each in fields(kind)]
    query = f"SELECT {', '.join(names)} FROM {table} WHERE incident = ? ORDER BY rowid"  # noqa: S608
    return [build(kind, dict(zip(names, row, strict=True))) for row in connection.execute(query, (incident,))]
