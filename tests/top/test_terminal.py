# SPDX-License-Identifier: Apache-2.0
"""``pulse top`` in a real pseudo-terminal, and without any."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Pulse

PULSE = [sys.executable, "-m", "host_ctl.cli.main", "top"]
WAIT_S = 60.0


def read_until(terminal: int, wanted: bytes, begun: bytes = b"") -> bytes:
    """What the program wrote up to some bytes; fails when it ends before or writes nothing more."""
    seen, end_s = begun, time.monotonic() + WAIT_S
    while wanted not in seen and time.monotonic() < end_s:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:
                break
    assert wanted in seen, seen[-2000:]
    return seen


@pytest.mark.parametrize("environment", [{}, pytest.param({"NO_COLOR": "1"}, marks=pytest.mark.slow)])
def test_it_shows_a_session_in_a_terminal_and_q_ends_it(folder: Path, environment: dict[str, str]) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
    settings = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | environment
    process = subprocess.Popen(
        [*PULSE, str(folder)], stdin=its, stdout=its, stderr=its, env=settings, close_fds=True
    )
    os.close(its)
    try:
        seen = read_until(ours, b"node1 slows job-1")
        assert (b"\x1b[38;2;" in seen or b";38;2;" in seen) == (not environment)
        os.write(ours, b"2")
        read_until(ours, b"4 of 4 NICs")
        os.write(ours, b"q")
        while select.select([ours], [], [], 0.2)[0]:
            try:
                if not os.read(ours, 1 << 16):
                    break
            except OSError:
                break
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("arguments", [[], ["."]])
def test_without_a_terminal_one_line_says_what_to_do_instead(arguments: list[str], pulse: Pulse) -> None:
    done = pulse("top", *arguments)
    assert (done.status, done.err.count("\n"), done.out) == (2, 1, "")
    assert ("pulse analyze PATH" if arguments else "pulse status") in done.err


@pytest.mark.parametrize("arguments", [["nowhere"], ["--theme", "pink"], ["--refresh", "0"]])
def test_wrong_use_is_one_line(arguments: list[str], pulse: Pulse) -> None:
    done = pulse("top", *arguments)
    assert (done.status, done.err.count("\n")) == (2, 1)
