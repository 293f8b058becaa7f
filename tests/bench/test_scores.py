# SPDX-License-Identifier: Apache-2.0
"""Rates with their intervals, delays, costs, and the figures made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.contenders import ContenderVerdict
from bench.scenarios.costs import Cost, cost_of, counts, spread_of
from bench.scenarios.data import Campaign, as_data
from bench.scenarios.figure import by_cost, draw
from bench.scenarios.rates import Rate, wilson
from bench.scenarios.results import Result
from bench.scenarios.score import (
    allowed_delay,
    calibration,
    cost_errors,
    delays,
    judged,
    machine_scores,
    smallest_found,
    summarize,
)
from bench.scenarios.tables import markdown
from tests.bench.facts import HEALTHY, PORT, SAID_PORT, case, ended, outcome, truth


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (81, 263, 0.2553, 0.3662),
        (0, 0, 0, 1),
    ],
)
def test_wilson_intervals_are_those_of_published_tables(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=1e-4)


def test_delays_allowed_are_those_of_the_design() -> None:
    assert allowed_delay(1.2, 0.01) == 3
    assert allowed_delay(1.03, 0.01) == 12
    assert allowed_delay(1.2, 0.11) == 37


def test_a_fault_counts_from_two_percent_or_three_standard_errors_on() -> None:
    assert counts(Cost(1.02, 0.001, 12), 7, 0.013)
    assert not counts(Cost(1.019, 0.001, 12), 7, 0.013)
    assert not counts(Cost(1.05, 0.1, 16), 7, 0.013)
    assert counts(Cost(1.08, 0.1, 16), 7, 0.013)


def test_without_a_before_a_fault_must_exceed_what_healthy_machines_differ_by() -> None:
    assert not counts(Cost(1.05, 0.001, 20), 0, 0.013)
    assert counts(Cost(1.07, 0.001, 20), 0, 0.013)


def test_costs_compare_the_iterations_that_both_runs_have_from_the_onset_on() -> None:
    now, usual = ((10.0, 10.0, 15.0, 15.0),), ((10.0, 10.0, 10.0, 10.0, 10.0),)
    cost = cost_of(now, usual, usual, 2, 0)
    assert cost is not None
    assert (cost.slowdown, cost.iterations) == (1.5, 2)
    assert cost_of(((10.0, 10.0),), usual, usual, 2, 0) is None


def test_one_long_iteration_does_not_widen_the_spread() -> None:
    assert spread_of((10.0, 10.0, 10.0, 50.0, 10.0)) == 0.0


def test_a_campaign_adds_up_to_rates_delays_and_tables(tmp_path: Path) -> None:
    found, missed, control = case(1), case(2), case(3, "healthy")
    cases = [found, missed, control, case(4)]
    results = [
        ended(found),
        Result(missed.id, outcome(missed, truth(PORT), health="ok")),
        Result(control.id, outcome(control, HEALTHY, SAID_PORT)),
        Result(case(4).id, None, "it died"),
    ]
    runs = judged(cases, results)
    total = summarize(runs)
    assert (total.recall, total.named, total.precision) == (Rate(1, 2), Rate(1, 2), Rate(1, 2))
    assert (total.allowed, total.accused, total.alarmed) == (Rate(1, 3), Rate(1, 1), Rate(1, 1))
    assert [(d.iterations, d.allowed) for d in delays(runs)] == [(3, 3)]
    assert cost_errors(runs) == [(found, 1.19, 1.2)]
    assert [right for *_, right in calibration(runs)] == [Rate(1, 2)]
    campaign = Campaign("quick", "development", cases, results, [], [], [])
    text, data = markdown(campaign), as_data(campaign)
    assert "seeds, from 1000000; reported seeds, from 2000000, have no seed in common" in text
    assert f"missed: {missed.id}" in text
    assert "it died" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| 0.90 to 0.95")]
    said = SAID_PORT.confidence
    assert row.endswith(f"| {100 * (0.5 - said):+.1f} |"), "what is said in excess of what is right"
    assert data["total"]["recall"]["n"] == 2
    assert data["failures"] == {case(4).id: "it died"}
    assert [one for *_, one in by_cost(runs)] == [Rate(1, 2)]
    pytest.importorskip("matplotlib")
    assert draw(runs, tmp_path / "recall.svg")
    assert "<svg" in (tmp_path / "recall.svg").read_text()


def test_other_methods_are_scored_by_the_machines_that_they_name() -> None:
    one, two = case(1), case(2, "healthy")
    right = (ContenderVerdict("node3", None, "fail_slow", 9),)
    false = (ContenderVerdict("node0", None, "fail_slow", 9),)
    results = [
        Result(one.id, replace(outcome(one, truth(PORT), health="ok"), contenders={"peer": right})),
        Result(two.id, replace(outcome(two, HEALTHY, health="ok"), contenders={"peer": false})),
    ]
    pulse, peer = machine_scores(judged([one, two], results))
    assert (pulse.method, pulse.recall, pulse.accused) == ("pulse", Rate(0, 1), Rate(0, 1))
    assert (peer.method, peer.recall, peer.precision, peer.accused) == (
        "peer",
        Rate(1, 1),
        Rate(1, 2),
        Rate(1, 1),
    )


def test_the_ladder_tells_the_smallest_severity_found_and_the_largest_missed() -> None:
    ladder = [replace(case(1), severity=s, rung=n) for n, s in enumerate((1.1, 1.5, 2.0))]
    results = [
        Result(ladder[0].id, outcome(ladder[0], truth(replace(PORT, counts=False)), health="ok")),
        Result(ladder[1].id, outcome(ladder[1], truth(PORT), health="ok")),
        ended(ladder[2]),
    ]
    assert smallest_found(judged(ladder, results)) == {"port_slow": (2.0, 1.5)}
