# SPDX-License-Identifier: Apache-2.0
"""`pulse controller` as a command: what it says, and the statuses with which it ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.controller.running import COMMAND, ROOT, Peer, Service, wait_for


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, "controller", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def running(tmp_path: Path) -> Service:
    """A controller without TLS, not begun yet."""
    return Service(tmp_path, None)


def test_log_lines_are_json_when_that_is_asked_for(tmp_path: Path) -> None:
    service = Service(tmp_path, None, log__json=True)
    wait_for(lambda: "status on port" in service.log, "the start")
    with Peer(int(service.log.partition("127.0.0.1 port ")[2].partition(",")[0])) as peer:
        peer.send(b"nonsense that is no message")
        assert peer.is_closed()
    wait_for(lambda: "127.0.0.1: a message of kind" in service.log, "the complaint")
    assert service.terminate() == 0
    lines = [json.loads(line) for line in service.log.splitlines()]
    assert all(line.keys() == {"time", "level", "logger", "message"} for line in lines)
    assert [line["level"] for line in lines if "a message of kind" in line["message"]] == ["warning"]


def test_settings_can_be_looked_at_without_a_start(tmp_path: Path, running: Service) -> None:
    with running:
        done = run("--config", running.file, "--check")
        assert (done.returncode, done.stdout) == (0, "the settings are right\n")
    done = run("--config", running.file, "--set", "log.levl=debug")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean log.level?" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_address_or_a_history_in_use_ends_it_with_1_and_a_line(tmp_path: Path, running: Service) -> None:
    with running:
        history = run("--config", running.file)
        address = run(
            "--config", running.file, "--set", f"history.directory={tmp_path / 'other'}",
            "--set", f"listen.address=127.0.0.1:{running.port}",
        )  # fmt: skip
    assert history.returncode == address.returncode == 1
    assert "in use by another process" in history.stderr
    assert f"127.0.0.1:{running.port} cannot be listened on: Address already in use" in address.stderr
    assert "Traceback" not in history.stderr + address.stderr


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    files = [f"--set=tls.{name}_file={tmp_path / name}" for name in ("ca", "cert", "key")]
    done = run("--set", f"history.directory={tmp_path}", *files)
    assert done.returncode == 2
    assert f"tls.ca_file {tmp_path / 'ca'} cannot be used" in done.stderr
