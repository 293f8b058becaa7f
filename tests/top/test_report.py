# SPDX-License-Identifier: Apache-2.0
"""``pulse report``: what the dashboard shows, once."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from host_ctl.present.report import report_schema
from tests.cli.conftest import Pulse


def test_a_session_is_told_once_verdict_first_with_blame_and_data_quality(folder: Path, pulse: Pulse) -> None:
    done = pulse("report", folder)
    assert done.status == 3
    assert "DEGRADED" in done.out.splitlines()[0]
    for said in ("node1 slows job-1", "What would settle it?", "GPU-seconds", "Clocks: 4 of 4 are known"):
        assert said in done.out
    assert "\x1b" not in done.out


def test_its_json_is_the_report_of_the_analysis(folder: Path, tmp_path: Path, pulse: Pulse) -> None:
    done = pulse("report", folder, "--json")
    found = json.loads(done.out)
    jsonschema.validate(found, report_schema())
    assert found == json.loads(pulse("analyze", folder, "--json").out)
    kept = tmp_path / "report.json"
    kept.write_text(done.out, encoding="utf-8")
    assert json.loads(pulse("report", kept, "--json").out) == found
    assert "node1 slows job-1" in pulse("report", kept).out


def test_a_controller_that_is_not_there_is_one_line(pulse: Pulse) -> None:
    done = pulse("report", "--server", "http://127.0.0.1:1")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "cannot be asked" in done.err
