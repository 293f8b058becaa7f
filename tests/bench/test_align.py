# SPDX-License-Identifier: Apache-2.0
"""The measurement of clocks compares with the truth and counts what it says."""

from __future__ import annotations

import pytest

from bench import align


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
