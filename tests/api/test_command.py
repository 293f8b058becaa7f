# SPDX-License-Identifier: Apache-2.0
"""`pulse status`, `verdicts` and `incidents` against a running API."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_ctl.cli.times import ago, duration_s
from host_ctl.client import ApiClient, Server
from host_ctl.errors import InputError, UsageError
from tests.api.running import Served
from tests.cli.conftest import Pulse
from tests.controller.running import COMMAND, ROOT, Pki, wait_for
from tests.incidents.made import job, verdict

SLOW = job(verdict())


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """An API that has seen a slow machine, and that commands ask."""
    with Served(tmp_path) as running:
        monkeypatch.setenv("PULSE_SERVER", f"http://127.0.0.1:{running.api.port}")
        running.see(SLOW, SLOW, SLOW)
        yield running


def test_status_and_verdicts_say_it_first_and_by_their_exit_status(served: Served, pulse: Pulse) -> None:
    done = pulse("status")
    assert done.status == 3
    assert done.out.startswith("DEGRADED  node1: compute_slow\n")
    assert "job training: degraded, 4 machines, 4 NICs, 100.0 ms per iteration" in done.out
    done = pulse("verdicts", "--json")
    assert done.status == 3
    assert json.loads(done.out)["jobs"][0]["verdicts"][0]["machine"] == "node1"


def test_an_incident_is_listed_acknowledged_and_shown_with_what_was_done(
    served: Served, pulse: Pulse
) -> None:
    assert "i1    open         fail_slow" in pulse("incidents", "list").out
    assert pulse("incidents", "ack", "i1", "--author", "ann").out == "i1 is acknowledged\n"
    assert pulse("incidents", "note", "i1", "fan is dead").status == 0
    shown = pulse("incidents", "show", "i1").out
    for part in (
        "i1    acknowledged",
        "opened: seen in 3 of 3 looks",
        "start_lag_us 812.5 us",
        "fan is dead",
    ):
        assert part in shown
    made = pulse("incidents", "silence", "--for", "2h", "--machine", "node*", "--author", "ann")
    assert made.out.startswith("silence 1 holds until ")
    assert "1: machine node* until " in pulse("incidents", "silences").out


def test_what_the_controller_refuses_is_one_line(served: Served, pulse: Pulse) -> None:
    done = pulse("incidents", "ack", "i9")
    assert (done.status, done.out) == (2, "")
    assert done.err == "pulse: the controller says: there is no open incident i9\n"


def test_followed_verdicts_are_told_as_they_come(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        environment = os.environ | {"PULSE_SERVER": f"http://127.0.0.1:{served.api.port}"}
        command = [*COMMAND, "verdicts", "--follow", "--json"]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            wait_for(lambda: "pulse_api_streams 1.0" in served.ask("/metrics")[1], "the stream")
            served.see(SLOW, SLOW, SLOW)
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            process.kill()
    assert (told["kind"], told["incident"]["machine"]) == ("opened", "node1")


def test_a_client_uses_tokens_and_certificates(tmp_path: Path, pki: Pki) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    files = {"cert_file": pki.server, "key_file": pki.server.with_suffix(".key"), "client_ca_file": pki.ca}
    own = pki.machine("ops")
    with Served(tmp_path, token_file=token, **files) as served:
        url = f"https://localhost:{served.api.port}"
        server = Server(url, token, pki.ca, own, own.with_suffix(".key"))
        assert ApiClient(server).get("/status")["jobs"] == 0
        with pytest.raises(InputError, match="cannot be asked"):
            ApiClient(Server(url, token, pki.ca)).get("/status")


def test_who_cannot_be_asked_is_named(free_port: int) -> None:
    with pytest.raises(InputError, match=rf"127.0.0.1:{free_port} cannot be asked: Connection refused"):
        ApiClient(Server(f"http://127.0.0.1:{free_port}")).get("/status")
    for wrong in ("localhost:1", "ftp://h", "http://h:x", "http://h/path"):
        with pytest.raises(UsageError, match="expected http://HOST:PORT"):
            ApiClient(Server(wrong))


def test_durations_are_read_and_told() -> None:
    assert [duration_s(text, "x") for text in ("90s", "1.5m", "2h", "1d")] == [90, 90, 7200, 86400]
    for wrong in ("", "2", "h", "-1h", "2 h", "1e3s"):
        with pytest.raises(UsageError, match="expected a duration"):
            duration_s(wrong, "--for")
    assert [ago(seconds * 10**9) for seconds in (0, 119, 120, 7200, 200_000)] == [
        "0 s", "119 s", "2 min", "2 h", "2 d"
    ]  # fmt: skip
