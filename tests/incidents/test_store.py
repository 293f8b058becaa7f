# SPDX-License-Identifier: Apache-2.0
"""`state.sqlite`: what survives kills, damage and full disks, and who may read it."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from host_ctl.errors import InputError
from host_ctl.incidents.queries import Filter, IncidentReader
from host_ctl.incidents.records import Acknowledgement, Silence
from host_ctl.incidents.schema import STEPS, VERSION
from host_ctl.incidents.store import FILE, Store
from tests.controller.running import ROOT, wait_for
from tests.incidents.desks import Running
from tests.incidents.made import SECOND, job, verdict
from tests.incidents.writer import show

SLOW = job(verdict())
HEALTHY = job()
ENDED = [HEALTHY] * 3


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    """Ask the file as anybody may."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute(query).fetchall()


def incidents(folder: Path) -> list[tuple[object, ...]]:
    """The incidents with all that looks made of them."""
    return rows(folder, "SELECT number, record FROM incidents ORDER BY number")


def kill_again_and_again(folder: Path, kills: int, seed: int) -> None:
    """Kill the process at random moments; the file must end as if that had not been."""
    chance = random.Random(seed)
    looks = 60 * kills
    killed, undisturbed = folder / "killed", folder / "undisturbed"
    killed.mkdir()
    undisturbed.mkdir()
    command = [sys.executable, "-m", "tests.incidents.writer", killed, str(looks)]
    at_work = 0
    for _ in range(kills):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline()]
            time.sleep(chance.uniform(0.0, 0.05))
            at_work += process.poll() is None
            process.kill()
            said += process.stdout.readlines()
        told = [line.split() for line in said if line.endswith("\n")]
        last = max((int(number) for what, number in told if what == "look"), default=0)
        state = json.loads(str(rows(killed, "SELECT state FROM tracker")[0][0]))
        assert state["last_ns"] >= last * SECOND
        kept = {
            number for (number,) in rows(killed, "SELECT incident FROM updates WHERE kind = 'acknowledged'")
        }
        assert {int(number) for what, number in told if what == "acknowledged"} <= kept
    assert at_work > kills // 2
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    show(undisturbed, looks, aloud=False)
    assert incidents(killed) == incidents(undisturbed) != []
    steps = "SELECT incident, at_ns, kind, text FROM updates WHERE kind != 'acknowledged' ORDER BY number"
    assert rows(killed, steps) == rows(undisturbed, steps)
    assert rows(killed, "PRAGMA integrity_check") == [("ok",)]


def test_killed_5_times_it_ends_as_if_that_had_not_been(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 5, seed=1)


@pytest.mark.slow
def test_killed_100_times_it_ends_as_if_that_had_not_been(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 100, seed=2)


def test_it_can_be_read_meanwhile_with_reports_that_opened_and_came_last(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW, job(verdict(cause="nic_slow")))
        running.desk.note(1, "ann", "a note").result()
        view = IncidentReader(tmp_path).view(1)
        assert view is not None
        assert [update.kind for update in view.updates] == ["opened", "updated"]
        assert [note.text for note in view.notes] == ["a note"]
        opening, latest = (IncidentReader(tmp_path).report(1, kind) for kind in ("opening", "latest"))  # type: ignore[arg-type]
        assert opening is not None
        assert latest is not None
        assert json.loads(opening)["verdicts"][0]["summary"] == "node1: compute_slow"
        assert json.loads(latest)["verdicts"][0]["summary"] == "node1: nic_slow"
        shell = shutil.which("sqlite3")
        if shell:
            query = "SELECT machine, cause, state FROM incidents"
            done = subprocess.run(
                [shell, "-readonly", tmp_path / FILE, query], capture_output=True, text=True
            )
            assert done.stdout == "node1|nic_slow|open\n"
        assert rows(tmp_path, "PRAGMA journal_mode") == [("wal",)]


def test_pages_and_filters_find_what_is_asked_for(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        for number in range(7):
            many = job(verdict(f"node{number % 4}"), key=f"job-{number}")
            running.see(many, many, many)
    reader = IncidentReader(tmp_path)
    first = reader.page(Filter(limit=3))
    assert ([i.number for i in first.incidents], first.next_before) == ([7, 6, 5], 5)
    rest = reader.page(Filter(limit=4, before=first.next_before))
    assert ([i.number for i in rest.incidents], rest.next_before) == ([4, 3, 2, 1], None)
    assert [i.number for i in reader.page(Filter(machine="node1")).incidents] == [6, 2]
    assert [i.number for i in reader.page(Filter(machine="node1", job="job-1")).incidents] == [2]
    assert reader.page(Filter(state="ended")).incidents == ()
    assert reader.view(8) is None


def test_what_people_said_is_there_after_a_restart_and_an_acknowledgement_ends_with_the_incident(
    tmp_path: Path,
) -> None:
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW)
        running.desk.acknowledge(1, "ann", "mine").result()
        later_ns = time.time_ns() + 3600 * SECOND
        running.desk.silence(Silence(0, 0, later_ns, "ann", "", "node9", None, None)).result()
    with Running(tmp_path) as running:
        running.tick()
        assert running.desk.status.acknowledged == {1}
        assert [each.machine for each in running.desk.status.silences] == ["node9"]
        running.looks = 3
        running.see(*ENDED)
        assert running.desk.status.acknowledged == frozenset()
        with pytest.raises(LookupError, match="no open incident i1"):
            running.desk.acknowledge(1, "ann", "").result()
        with pytest.raises(LookupError, match="no incident i9"):
            running.desk.note(9, "ann", "").result()
    assert Store(tmp_path).acknowledgements() == []


def test_a_file_of_an_older_version_is_brought_up_with_what_it_holds(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW)
    kept = incidents(tmp_path)
    # What only later steps know goes away, and with it the mark that they were taken.
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        for table in ("acknowledgements", "notes", "silences", "deliveries", "told"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM schema_version WHERE version > 1")
        connection.commit()
    with Running(tmp_path) as running:
        assert isinstance(running.desk.acknowledge(1, "ann", "").result(), Acknowledgement)
    assert incidents(tmp_path) == kept
    assert rows(tmp_path, "SELECT max(version) FROM schema_version") == [(VERSION,)]


def test_each_step_leads_from_the_version_before(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x")) as connection:
        for step in STEPS:
            connection.executescript(step)
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        }
    assert {"incidents", "silences", "deliveries"} <= tables


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("INSERT INTO schema_version VALUES (99, 0)")
        connection.commit()
    with pytest.raises(
        InputError, match=rf"is of version 99, and this program knows versions up to {VERSION}"
    ):
        Store(tmp_path)
    assert len(incidents(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["foreign", "torn", "cut"])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(tmp_path) as running:
        running.see(*[SLOW] * 3, *ENDED)
    file = tmp_path / FILE
    if damage == "foreign":
        file.write_bytes(b"this is no database, but it is long enough to look at" * 100)
    elif damage == "torn":
        data = bytearray(file.read_bytes())
        data[5000:20_000] = random.Random(1).randbytes(15_000)
        file.write_bytes(data)
    else:
        file.write_bytes(file.read_bytes()[:20_000])
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW)
        assert [each.machine for each in running.desk.status.open] == ["node1"]
    assert len(list(tmp_path.glob("*.aside"))) == 1
    assert "set aside as" in caplog.text
    assert len(incidents(tmp_path)) == 1


def test_damage_while_it_runs_costs_the_past_alone(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW)
        running.desk.acknowledge(1, "ann", "mine").result()
        with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with (tmp_path / FILE).open("r+b") as file:
            file.write(b"garbage" * 4000)
        running.see(*[job(verdict(cost=1.0 + number)) for number in range(5)])
        wait_for(lambda: running.desk.status.problem is None, "a new file")
        running.tick()
        assert len(list(tmp_path.glob("*.aside"))) == 1
        assert rows(tmp_path, "SELECT number, state FROM incidents") == [(1, "open")]
        assert rows(tmp_path, "SELECT incident, author FROM acknowledgements") == [(1, "ann")]


def test_a_full_disk_stops_neither_incidents_nor_hooks_and_is_caught_up_with(
    tmp_path: Path, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    with Running(small_disk) as running:
        running.see(HEALTHY)
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 12)):
                pass
        for _ in range(10):
            running.see(*[SLOW, HEALTHY] * 4)
        assert running.desk.status.problem is not None
        assert "disk is full" in running.desk.status.problem or "I/O error" in running.desk.status.problem
        assert [each.number for each in running.desk.status.open] == [1]
        with pytest.raises(sqlite3.Error):
            running.desk.silence(Silence(0, 0, 1 << 62, "ann", "x" * 100_000, None, None, None)).result()
        filler.unlink()
        running.tick()
        assert running.desk.status.problem is None
        assert rows(small_disk, "SELECT number, state FROM incidents") == [(1, "open")]
        assert rows(small_disk, "SELECT kind FROM updates")[0] == ("opened",)
        assert rows(small_disk, "PRAGMA integrity_check") == [("ok",)]


def test_what_ended_long_ago_is_forgotten_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.see(*[SLOW] * 3)
        running.desk.note(1, "ann", "a note").result()
        running.see(*ENDED)
        other = job(verdict("node2"))
        running.see(other, other, other)
    days = (time.time_ns() - 1_700_000_000 * SECOND) / (86400 * SECOND)
    with Running(tmp_path, keep_days=days + 1) as running:
        running.tick()
    assert len(incidents(tmp_path)) == 2
    with Running(tmp_path, keep_days=days - 1) as running:
        running.tick()
    assert rows(tmp_path, "SELECT number, state FROM incidents") == [(2, "open")]
    for table in ("updates", "reports", "notes"):
        assert rows(tmp_path, f"SELECT count(*) FROM {table} WHERE incident = 1") == [(0,)]


def test_incidents_that_nothing_is_remembered_of_are_ended(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.see(SLOW, SLOW, SLOW)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE tracker SET state = '{}'")
        connection.commit()
    with Running(tmp_path, keep_days=1e5) as running:
        running.see(SLOW, SLOW, SLOW)
    assert rows(tmp_path, "SELECT number, state, end_reason FROM incidents") == [
        (1, "ended", "lost track"), (2, "open", None)
    ]  # fmt: skip
