# SPDX-License-Identifier: Apache-2.0
"""The tables of `state.sqlite`, as steps from version to version; a released step never changes."""

from __future__ import annotations

import sqlite3

from host_ctl.errors import InputError

STEPS = (
    """
    CREATE TABLE incidents (
        number INTEGER PRIMARY KEY,
        state TEXT NOT NULL, severity TEXT NOT NULL, job TEXT NOT NULL, cause TEXT NOT NULL,
        machine TEXT, nic TEXT, peer TEXT, summary TEXT NOT NULL,
        started_ns INTEGER NOT NULL, opened_ns INTEGER NOT NULL, last_seen_ns INTEGER NOT NULL,
        ended_ns INTEGER, end_reason TEXT, reopened INTEGER NOT NULL,
        confidence REAL NOT NULL, slowdown REAL, lost_gpu_seconds REAL NOT NULL,
        record TEXT NOT NULL  -- all of it, JSON
    ) STRICT;
    CREATE INDEX incidents_by_state ON incidents (state, number);
    CREATE TABLE updates (
        number INTEGER PRIMARY KEY,
        incident INTEGER NOT NULL, at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX updates_by_incident ON updates (incident);
    CREATE TABLE reports (
        incident INTEGER NOT NULL,
        kind TEXT NOT NULL,  -- 'opening' or 'latest'
        at_ns INTEGER NOT NULL, report TEXT NOT NULL,
        PRIMARY KEY (incident, kind)
    ) STRICT;
    CREATE TABLE tracker (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        state TEXT NOT NULL  -- what makes a restart go on where it was, JSON
    ) STRICT;
    """,
    """
    CREATE TABLE acknowledgements (
        incident INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, author TEXT NOT NULL, text TEXT NOT NULL
    ) STRICT;
    CREATE TABLE notes (
        number INTEGER PRIMARY KEY,
        incident INTEGER NOT NULL, at_ns INTEGER NOT NULL, author TEXT NOT NULL, text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX notes_by_incident ON notes (incident);
    CREATE TABLE silences (
        number INTEGER PRIMARY KEY,
        created_ns INTEGER NOT NULL, ends_ns INTEGER NOT NULL, author TEXT NOT NULL, text TEXT NOT NULL,
        machine TEXT, job TEXT, cause TEXT
    ) STRICT;
    """,
    """
    CREATE TABLE deliveries (
        number INTEGER PRIMARY KEY,
        hook TEXT NOT NULL, incident INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
        created_ns INTEGER NOT NULL, attempts INTEGER NOT NULL,
        state TEXT NOT NULL, error TEXT, done_ns INTEGER
    ) STRICT;
    CREATE INDEX deliveries_by_state ON deliveries (state, number);
    CREATE INDEX deliveries_by_incident ON deliveries (incident);
    CREATE TABLE told (
        hook TEXT NOT NULL, incident INTEGER NOT NULL,
        firing INTEGER NOT NULL, labels TEXT NOT NULL, at_ns INTEGER NOT NULL,
        PRIMARY KEY (hook, incident)
    ) STRICT;
    """,
)
VERSION = len(STEPS)
_OF_INCIDENTS = ("updates", "reports", "acknowledgements", "notes", "told", "deliveries")


def migrate(connection: sqlite3.Connection, where: object, now_ns: int) -> int:
    """Bring the tables to this version, all or nothing; return the one before. Raises InputError."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_ns INTEGER) STRICT"
    )
    before = int(connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0])
    if before > VERSION:
        raise InputError(
            f"{where} is of version {before}, and this program knows versions up to {VERSION}: "
            "use the program that wrote it, or move the file away"
        )
    for version, step in enumerate(STEPS[before:], before + 1):
        for statement in step.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO schema_version VALUES (?, ?)", (version, now_ns))
    return before


def forget(connection: sqlite3.Connection, before_ns: int) -> int:
    """Delete what ended before a time, with all that belongs to it; return how many incidents."""
    old = "SELECT number FROM incidents WHERE state = 'ended' AND ended_ns < :before"
    for table in _OF_INCIDENTS:
        connection.execute(
            f"DELETE FROM {table} WHERE incident IN ({old})",  # noqa: S608  names of this file
            {"before": before_ns},
        )
    connection.execute("DELETE FROM silences WHERE ends_ns < ?", (before_ns,))
    done = connection.execute(f"DELETE FROM incidents WHERE number IN ({old})", {"before": before_ns})  # noqa: S608
    return done.rowcount
