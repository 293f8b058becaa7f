# SPDX-License-Identifier: Apache-2.0
"""The demo from beginning to end, and what an interrupted one leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.controller.running import COMMAND, ROOT, wait_for

pytestmark = pytest.mark.slow


def begin(scratch: Path, *flags: str) -> subprocess.Popen[str]:
    """Run the demo as a user would, its temporary folders in one that can be looked at."""
    return subprocess.Popen(
        [*COMMAND, "demo", *flags],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(scratch)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def still_there(scratch: Path) -> list[str]:
    """Command lines of processes that have to do with a demo of this folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            line = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            surroundings = (each / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"TMPDIR={scratch}" in surroundings:
            found.append(line)
    return found


def test_the_demo_names_the_machine_and_keeps_the_evidence(tmp_path: Path) -> None:
    scratch, evidence = tmp_path / "tmp", tmp_path / "kept"
    scratch.mkdir()
    process = begin(scratch, "--keep", str(evidence))
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    (culprit,) = [line.split()[-4] for line in out.splitlines() if "truth" in line]
    report = json.loads((evidence / "report.json").read_text())
    assert report["verdicts"][0]["machine"] == culprit
    assert report["verdicts"][0]["summary"] in out
    again = subprocess.run(
        [*COMMAND, "analyze", "--json", evidence / "session"], capture_output=True, text=True, check=False
    )
    assert json.loads(again.stdout)["verdicts"][0]["machine"] == culprit
    assert list(scratch.iterdir()) == []
    assert still_there(scratch) == []


def test_an_interrupted_demo_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    process = begin(tmp_path)
    assert process.stdout is not None
    while "simulating" not in process.stdout.readline():
        assert process.poll() is None
    wait_for(lambda: len(still_there(tmp_path)) >= 4, "all processes of the demo")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: still_there(tmp_path) == [], "the end of all processes")
