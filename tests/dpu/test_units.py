# SPDX-License-Identifier: Apache-2.0
"""The systemd units: systemd accepts them, and they ask for no more than they need."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpu_app.service.main import _parser

UNITS = Path(__file__).parents[2] / "dpu_app" / "service" / "units"
NAMES = ("pulse-dpu@.service", "pulse-dpu-device@.service")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze"
)


class _Repeated(dict[str, object]):
    """Keys that stand several times add up, as systemd reads them."""

    def __setitem__(self, key: str, value: object) -> None:
        if isinstance(value, list) and isinstance(self.get(key), list):
            self[key].extend(value)  # type: ignore[attr-defined]
        else:
            super().__setitem__(key, value)


def settings(name: str) -> configparser.SectionProxy:
    """The section [Service] of a unit."""
    parser = configparser.RawConfigParser(dict_type=_Repeated, strict=False, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(UNITS / name)
    return parser["Service"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as for an instance, with a program that exists."""
    for name in NAMES:
        text = (UNITS / name).read_text().replace("/usr/bin/pulse-dpu", sys.executable)
        (tmp_path / name.replace("@.", "@p0.")).write_text(text)
    return tmp_path


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_has_nothing_to_say_against_a_unit(installed: Path, name: str) -> None:
    unit = installed / name.replace("@.", "@p0.")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    about_this = [line for line in done.stderr.splitlines() if "pulse-dpu" in line]
    assert about_this == []
    assert done.returncode == 0, done.stderr


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_rates_a_unit_as_well_protected(installed: Path, name: str) -> None:
    unit = installed / name.replace("@.", "@p0.")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25", unit],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_service_has_one_capability_and_bounds() -> None:
    service = settings("pulse-dpu@.service")
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == "CAP_NET_RAW"
    assert service["Environment"] == "MALLOC_MMAP_THRESHOLD_=131072"
    assert {"MemoryMax", "CPUQuota", "WatchdogSec"} <= set(service)
    assert service["ProtectSystem"] == "strict"
    assert service["DevicePolicy"] == "closed"


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_unit_exist(name: str) -> None:
    service = settings(name)
    for key in ("ExecStart", "ExecStop"):
        if key in service:
            program, *arguments = re.sub("%i", "p0", service[key]).split()
            assert program == "/usr/bin/pulse-dpu"
            assert _parser().parse_args(arguments).command in ("run", "device")
