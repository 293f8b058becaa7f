# SPDX-License-Identifier: Apache-2.0
"""The systemd unit, and what the controller tells systemd."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controller.running import Pki, Service, wait_for

UNIT = Path(__file__).parents[2] / "host_ctl" / "units" / "pulse-controller.service"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze"
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a program that exists."""
    text = UNIT.read_text().replace("/usr/bin/pulse", sys.executable)
    path = tmp_path / UNIT.name
    path.write_text(text)
    return path


@needs_systemd
def test_systemd_has_nothing_to_say_against_the_unit(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", installed], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "pulse-controller" in line] == []
    assert done.returncode == 0, done.stderr


@needs_systemd
def test_systemd_rates_the_unit_as_well_protected(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", installed],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_systemd_hears_of_begin_life_and_end(tmp_path: Path, pki: Pki) -> None:
    path = tmp_path / "notify"
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(0.1)

        def has_heard(what: str) -> bool:
            with contextlib.suppress(TimeoutError):
                heard.append(manager.recv(4096).decode())
            return any(what in message for message in heard)

        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"}
        with Service(tmp_path, pki, environment=environment) as service:
            for what in ("READY=1", "WATCHDOG=1"):
                wait_for(lambda what=what: has_heard(what), what)  # type: ignore[misc]
            assert not has_heard("STOPPING=1")
            assert service.terminate() == 0
            wait_for(lambda: has_heard("STOPPING=1"), "STOPPING=1")
