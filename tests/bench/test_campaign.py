# SPDX-License-Identifier: Apache-2.0
"""Campaigns: resumed, crashed, and from the command line; the sets of cases."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.contenders import ContenderVerdict
from bench.scenarios.campaign import run_campaign
from bench.scenarios.cases import Case, rungs, scenario_of
from bench.scenarios.judge import Word, judge_outcome
from bench.scenarios.outcome import outcome_from
from bench.scenarios.real import real_rows
from bench.scenarios.results import FILE_NAME
from bench.scenarios.sets import SETS, ablation_cases, cases_of
from bench.scenarios.work import run_case
from host_ctl.errors import InputError
from sim.scenarios.catalogue import CATALOGUE, TWO_FAULTS
from tests.bench.facts import case, ended
from tests.bench.runners import die_of_one, leave_mark
from tests.cli.conftest import Pulse
from tests.cli.expect import refused

CASES = [case(seed) for seed in range(3)]


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "marks"
    path.touch()
    monkeypatch.setenv("PULSE_TEST_MARKS", str(path))
    return path


def test_a_resumed_campaign_repeats_no_case(tmp_path: Path, marks: Path) -> None:
    run_campaign(CASES[:2], tmp_path / "out", 1, runner=leave_mark)
    results = run_campaign(CASES, tmp_path / "out", 1, runner=leave_mark)
    assert sorted(marks.read_text().split()) == ["0", "1", "2"]
    assert results == [ended(one) for one in CASES]


def test_a_half_written_last_line_is_dropped_and_its_case_run_again(tmp_path: Path, marks: Path) -> None:
    run_campaign(CASES, tmp_path / "out", 1, runner=leave_mark)
    file = tmp_path / "out" / FILE_NAME
    file.write_bytes(file.read_bytes()[:-40])
    results = run_campaign(CASES, tmp_path / "out", 1, runner=leave_mark)
    assert len(marks.read_text().split()) == 4
    assert results == [ended(one) for one in CASES]
    assert [json.loads(line)["failure"] for line in file.read_text().splitlines()] == [None] * 3


def test_without_resume_everything_runs_again(tmp_path: Path, marks: Path) -> None:
    for _ in range(2):
        run_campaign(CASES[:1], tmp_path / "out", 1, resume=False, runner=leave_mark)
    assert marks.read_text().split() == ["0", "0"]
    assert len((tmp_path / "out" / FILE_NAME).read_text().splitlines()) == 1


def test_a_process_that_dies_is_a_failed_case_and_the_others_go_on(tmp_path: Path) -> None:
    results = run_campaign(CASES, tmp_path / "out", 2, runner=die_of_one)
    assert [result.failure for result in results] == [None, "the process that ran it died", None]


def test_an_impossible_case_is_recorded_with_its_reason(tmp_path: Path) -> None:
    (result,) = run_campaign([Case("rail_slow", "dp", 4, 1, 1)], tmp_path / "out", 1)
    assert result.outcome is None
    assert "several NICs" in (result.failure or "")


@pytest.mark.parametrize("name", SETS)
def test_the_sets_have_unlike_cases_and_seeds_of_their_range_alone(name: str) -> None:
    cases = cases_of(name, "development")
    assert len({one.id for one in cases}) == len(cases)
    seeds = {one.seed for one in cases}
    assert seeds.isdisjoint(one.seed for one in cases_of(name, "reported"))
    assert seeds.isdisjoint(one.seed for one in ablation_cases("development"))


def test_the_full_set_has_a_thousand_faults_and_a_thousand_controls_of_every_entry() -> None:
    cases = cases_of("full", "reported")
    assert sum(one.control for one in cases) >= 1000
    assert sum(not one.control for one in cases) >= 1000
    assert {one.scenario for one in cases} >= set(CATALOGUE) - {TWO_FAULTS}
    assert any("+" in one.scenario for one in cases)


def test_the_quick_set_has_every_entry_and_as_many_controls_as_it_promises() -> None:
    cases = cases_of("quick", "development")
    assert {one.scenario for one in cases} >= set(CATALOGUE) - {TWO_FAULTS}
    assert sum(one.control for one in cases) >= 57
    for one in cases:
        scenario_of(one)


@pytest.mark.parametrize("name", [n for n in CATALOGUE if CATALOGUE[n].severity is not None])
def test_ladders_rise_up_to_the_end_of_the_usual_range(name: str) -> None:
    steps, severity = rungs(name), CATALOGUE[name].severity
    assert severity is not None
    assert steps == sorted(steps)
    assert steps[-1] == severity.high
    assert steps[0] >= severity.least


class Clairvoyant:
    """Names whom the truth names."""

    name = "clairvoyant"

    def judge(self, truth: dict[str, object], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """One verdict of the truth's machine."""
        assert frames
        fault = truth["fault"]
        assert isinstance(fault, dict)
        return [ContenderVerdict(f"node{fault['culprit_node']}", None, "fail_slow", None)]


def test_one_tiny_case_goes_all_the_way_and_through_json() -> None:
    tiny = Case("gpu_slow", "dp", 4, 1, 5, steps=14, severity=2.0, onset=5)
    outcome = run_case(tiny, [Clairvoyant()])
    (fault,) = outcome.facts.faults
    assert (fault.onset_step, fault.onset_iteration, fault.counts) == (5, 6, True)
    assert judge_outcome(outcome.facts, outcome.verdicts, outcome.health).words == (Word.RIGHT,)
    assert outcome.contenders["clairvoyant"][0].machine == fault.machine
    assert outcome_from(json.loads(json.dumps(outcome.as_dict()))) == outcome


@pytest.mark.slow
def test_the_smoke_set_runs_from_the_command_line(tmp_path: Path, pulse: Pulse) -> None:
    result = pulse("bench", "scenarios", "--set", "smoke", "--out", tmp_path / "out", "--json")
    assert result.status == 0
    data = json.loads(result.out)
    assert data["failures"] == {}
    assert len(data["cases"]) == len(cases_of("smoke", "development"))
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == data
    again = pulse("bench", "scenarios", "--set", "smoke", "--out", tmp_path / "out")
    assert again.out.startswith((tmp_path / "out" / "report.md").read_text())


def test_other_commands_do_not_load_the_benchmark() -> None:
    code = "import sys, host_ctl.cli.app; sys.exit('bench' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_folders_without_captures_or_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no labelled captures"):
        real_rows(tmp_path, None)
    with pytest.raises(InputError, match="no trace named"):
        real_rows(None, tmp_path)


def test_wrong_usage_takes_one_line(tmp_path: Path, pulse: Pulse) -> None:
    file = tmp_path / "file"
    file.touch()
    refused(pulse("bench"), "pulse bench scenarios")
    refused(pulse("bench", "scenarios", "--set", "huge"), "huge")
    refused(pulse("bench", "scenarios", "--jobs", 0), "jobs")
    refused(pulse("bench", "scenarios", "--out", file), "is no folder")
    refused(pulse("bench", "scenarios", "--real", tmp_path / "absent"), "is no folder")
    refused(pulse("bench", "scenarios", "--traces", tmp_path / "absent"), "is no folder")
