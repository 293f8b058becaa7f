# SPDX-License-Identifier: Apache-2.0
"""From the results of looks to incidents, hooks and the API, through the process as a whole."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

from host_ctl.incidents.store import FILE
from tests.controller.running import Peer, Service, made_frame, wait_for
from tests.incidents.desks import Receiver

COMMAND = (sys.executable, "-m", "tests.controller.fed")


def incidents(service: Service) -> list[dict[str, Any]]:
    """What the API tells of incidents."""
    found: list[dict[str, Any]] = json.loads(service.ask("/api/v1/incidents")[1])["incidents"]
    return found


def is_told(folder: Path) -> bool:
    """Whether it is on disk that the first delivery was made."""
    with contextlib.closing(sqlite3.connect(folder / "history" / FILE)) as connection:
        rows = connection.execute("SELECT state FROM deliveries WHERE kind = 'opened'").fetchall()
    return rows == [("delivered",)]


def test_a_slow_machine_becomes_one_incident_that_is_told_once_through_kills(tmp_path: Path) -> None:
    with Receiver() as receiver:
        hook = f'[[hooks]]\nname = "pager"\nkind = "webhook"\nurl = "{receiver.url}/"\n'
        for number in range(3):
            with Service(tmp_path, None, command=COMMAND, more=hook) as service:
                wait_for(lambda service=service: incidents(service), "an incident")  # type: ignore[misc]
                wait_for(lambda service=service: service.metric("pulse_looks_total") > 10, "looks")  # type: ignore[misc]
                wait_for(lambda: is_told(tmp_path), "the delivery")
                (found,) = incidents(service)
                assert (found["id"], found["machine"], found["state"]) == ("i1", "node1", "open")
                if number == 2:
                    assert service.terminate() == 0
        assert [body["event"] for _, body, _ in receiver.posts if body["event"] != "updated"] == ["opened"]
    with contextlib.closing(sqlite3.connect(tmp_path / "history" / FILE)) as connection:
        assert connection.execute("SELECT number, state FROM incidents").fetchall() == [(1, "open")]
        kinds = connection.execute("SELECT kind FROM updates WHERE kind != 'updated'").fetchall()
        assert kinds == [("opened",)]


def test_a_full_disk_keeps_neither_the_api_nor_frames_from_coming_back(
    tmp_path: Path, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    with Service(tmp_path, None, history=small_disk / "history", command=COMMAND) as service:
        wait_for(lambda: bool(incidents(service)), "an incident")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 12)):
                pass
        wait_for(lambda: service.metric("pulse_incidents_written") == 0, "that it says so")
        status = json.loads(service.ask("/api/v1/status")[1])
        assert "cannot be written" in status["incidents_problem"]
        assert status["open_incidents"] == 1
        filler.unlink()
        wait_for(lambda: service.metric("pulse_incidents_written") == 1, "that it is written again")
        with Peer(service.port) as peer:
            peer.greet("node1")
            peer.send(made_frame("node1", "mlx5_0", "life", 0))
        assert service.terminate() == 0
    assert "incidents are written again" in service.log


def test_a_file_of_a_newer_version_ends_it_with_2_and_a_line(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.mkdir()
    with contextlib.closing(sqlite3.connect(history / FILE)) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_ns INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (99, 0)")
        connection.commit()
    service = Service(tmp_path, None, history=history)
    assert service.process.wait(30) == 2
    assert "is of version 99, and this program knows versions up to" in service.log
    assert "Traceback" not in service.log
