# SPDX-License-Identifier: Apache-2.0
"""The PTP settings: each line has its reason, and linuxptp takes them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "firmware_cfg" / "ptp"
FILES = ["ptp4l.conf", "phc2sys.conf"]


@pytest.mark.parametrize("name", FILES)
def test_every_setting_stands_under_a_reason(name: str) -> None:
    before = ""
    section = False
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        section = section or line == "[global]"
        if section and re.match(r"[a-zA-Z]", line):
            # A reason may hold for the lines right below it too.
            assert before.startswith("# ") or re.match(r"[a-zA-Z]", before), line
        before = line


@pytest.mark.parametrize(
    ("program", "name", "arguments"),
    [
        ("ptp4l", "ptp4l.conf", []),
        ("phc2sys", "phc2sys.conf", ["-s", "none0", "-c", "CLOCK_REALTIME", "-O", "0"]),
    ],
)
def test_linuxptp_takes_the_file_and_complains_about_the_interface_alone(
    tmp_path: Path, program: str, name: str, arguments: list[str]
) -> None:
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"there is no {program} (Debian: linuxptp)")
    text = (FOLDER / name).read_text(encoding="utf-8")
    # An interface that no machine has: nothing must happen to a clock of this one.
    copy = tmp_path / name
    copy.write_text(text.replace("[p0]", "[none0]").replace("/var/run/", f"{tmp_path}/"), encoding="utf-8")
    done = subprocess.run(
        [path, "-m", "-f", str(copy), *arguments], capture_output=True, text=True, timeout=20, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "none0" in said or "No such device" in said
    assert "line" not in said, said
