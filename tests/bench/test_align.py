# SPDX-License-Identifier: Apache-2.0
"""The measurement of clocks compares with the truth and counts what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench import align
from tests.cli.conftest import Pulse


def model_named(name: str) -> align.ClockModel:
    return next(model for model in align.MODELS if model.name == name)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "_jobs", lambda quick: iter([(4, 2, "messages", 6)]))


def test_straight_clocks_are_found_to_a_microsecond_inside_what_is_claimed() -> None:
    row = align.measure_model(model_named("offset 50 ms, drift 50 ppm"), quick=True)
    assert row.p99_us is not None
    assert row.p99_us <= 1
    assert row.inside_percent == 100
    assert row.bound_violations == 0
    assert row.basis == "measured:8"
    assert row.between_inside == "1/1"


def test_steps_are_counted_where_they_happened() -> None:
    row = align.measure_model(model_named("steps of 37 s"), quick=True)
    found, true = row.steps.split("/")
    assert int(true) > 0
    assert found == true


def test_the_command_prints_a_row_per_clock_model(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [model_named("offset 50 ms, drift 50 ppm"), model_named("TAI and UTC")]
    monkeypatch.setattr(align, "MODELS", models)
    result = pulse("bench", "align", "--quick")
    assert result.status == 0
    head, *rows = result.out.splitlines()
    assert head.startswith("model | p50_us | p99_us")
    assert [row.split(" | ")[0] for row in rows] == [model.name for model in models]
    assert all(row.count("|") == head.count("|") for row in rows)
    listed = json.loads(pulse("bench", "align", "--quick", "--json").out)
    assert [row["model"] for row in listed] == [model.name for model in models]


def test_a_violated_bound_is_the_exit_status(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    row = align.measure_model(align.MODELS[0], quick=True)
    broken = replace(row, bound_violations=1)
    monkeypatch.setattr(align, "measure_model", lambda model, quick: broken)
    assert pulse("bench", "align").status == 1


def test_the_command_refuses_what_it_does_not_know(pulse: Pulse) -> None:
    result = pulse("bench", "align", "--slow")
    assert result.status == 2
    assert "--slow" in result.err
