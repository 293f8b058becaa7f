# SPDX-License-Identifier: Apache-2.0
"""``pulse replay``: what live analysis would have said of a session, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Pulse
from tests.host_ctl.jobs import Recording
from tests.live.sessions import small_session


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_session(tmp_path_factory.mktemp("session"), "slow_compute")


def test_a_session_is_replayed_line_by_line_and_ends_with_the_status_of_its_health(
    session: Path, pulse: Pulse
) -> None:
    result = pulse("replay", session, "--every", 0.1)
    lines = result.out.splitlines()
    assert result.status == 3
    assert any("ok: job-1 on 4 NICs" in line for line in lines[:-1])
    assert "degraded: compute slow node1 (job-1)" in lines[-1]


def test_the_last_report_can_be_had_as_json(session: Path, pulse: Pulse) -> None:
    result = pulse("replay", session, "--every", 0.2, "--json")
    report = json.loads(result.out)
    assert (report["health"], report["verdicts"][0]["machine"]) == ("degraded", "node1")


def test_captures_cannot_be_replayed(healthy: Recording, tmp_path: Path, pulse: Pulse) -> None:
    result = pulse("replay", healthy.write(tmp_path))
    assert result.status == 2
    assert "files of frames" in result.err


@pytest.mark.parametrize("flag", ["--every", "--speed"])
def test_times_that_make_no_sense_are_refused(session: Path, flag: str, pulse: Pulse) -> None:
    assert pulse("replay", session, flag, 0).status == 2
