# SPDX-License-Identifier: Apache-2.0
"""Patterns that accuse nobody: pauses that come by a plan, and machines that have unequal work by turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_ctl.attribute.features import extract_features
from host_ctl.attribute.path import critical_paths
from host_ctl.diagnose.data_imbalance import is_uneven, spread_between
from host_ctl.diagnose.patterns import find_patterns
from host_ctl.diagnose.periodic_pause import find_period
from host_ctl.diagnose.verdict import Verdict
from tests.host_ctl.made_jobs import MS, US, Times, attributed, ring
from tests.host_ctl.test_dimensions import report_for, scenario

MEMBERS = 4
USUAL_NS = 3.0 * MS


def notices(late: Times, iterations: int = 24) -> list[Verdict]:
    """The notices about a ring that computes 2 ms per iteration, with so much more by (iteration, member)."""
    made = attributed(ring(MEMBERS, iterations, late=late))
    features = extract_features(made.charges, made.job)
    paths = critical_paths(made.traffic, made.program, made.gates, made.grants)
    return find_patterns(made.traffic, made.program, features, made.replay, paths, ())


def causes(late: Times, iterations: int = 24) -> list[str]:
    """What is said of the same ring."""
    return [v.cause for v in notices(late, iterations)]


def jitter(share: float, seed: int = 1) -> Times:
    """Computing times that spread by a share of 2 ms, afresh in every iteration."""
    drawn = np.random.default_rng(seed).normal(0.0, share * 2 * MS, (1000, MEMBERS))
    return lambda k, i: int(drawn[k, i])


def with_pauses(pause_ns: Callable[[int, int], int], share: float = 0.01) -> Times:
    """Healthy jitter and pauses."""
    noise = jitter(share)
    return lambda k, i: noise(k, i) + pause_ns(k, i)


def no_machine(found: list[Verdict]) -> bool:
    """Whether nobody is accused."""
    return all(v.severity == "notice" and v.machine is None and not v.candidates for v in found)


@pytest.mark.parametrize("period", [4, 5, 7])
def test_a_pause_of_all_every_k_iterations_is_periodic(period: int) -> None:
    found = notices(with_pauses(lambda k, _: 0 if k % period else 2 * MS))
    assert [v.cause for v in found] == ["periodic_pause"]
    assert found[0].evidence[0].value == period
    assert "nobody in particular" in found[0].summary
    assert no_machine(found)


def test_who_alone_pauses_every_k_iterations_is_told_and_not_accused() -> None:
    found = notices(with_pauses(lambda k, i: 2 * MS if k % 5 == 0 and i == 2 else 0))
    assert [v.cause for v in found] == ["periodic_pause"]
    assert "node2 resumes last" in found[0].summary
    assert no_machine(found)


def test_pauses_now_here_now_there_are_random_although_their_times_are_regular() -> None:
    who = {5: 0, 10: 1, 15: 2, 20: 3}
    assert causes(with_pauses(lambda k, i: 2 * MS if who.get(k) == i else 0)) == ["random_pauses"]


def test_two_pauses_have_no_period() -> None:
    assert causes(with_pauses(lambda k, _: 2 * MS if k in (8, 16) else 0)) == []


@pytest.mark.parametrize("seed", range(5))
def test_machines_that_differ_as_healthy_ones_do_are_no_news(seed: int) -> None:
    assert causes(jitter(0.01, seed), 40) == []


@pytest.mark.parametrize("seed", range(3))
def test_unequal_work_by_turns_is_imbalance_with_its_spread_and_its_cost(seed: int) -> None:
    found = notices(jitter(0.11, seed), 40)
    assert [v.cause for v in found] == ["data_imbalance"]
    assert no_machine(found)
    assert found[0].lost_gpu_seconds > 0


def test_who_always_has_more_to_do_is_no_imbalance_of_data() -> None:
    noise = jitter(0.11)
    assert causes(lambda k, i: noise(k, i) + (MS if i == 1 else 0), 40) == []


# ---- periods


def lost(places: list[int], iterations: int = 20, pause_ns: float = 2.0 * MS) -> np.ndarray:
    """What iterations lost: a little, and a pause at some places."""
    series = np.random.default_rng(1).normal(0.0, 10 * US, iterations)
    series[places] += pause_ns
    return series


def period_of(series: np.ndarray) -> int | None:
    """The period that is found."""
    found = find_period(series, np.ones(len(series), dtype=bool), USUAL_NS)
    return None if found is None else found.period


def test_a_run_may_begin_before_the_first_pause() -> None:
    assert period_of(lost([9, 13, 17])) == 4


def test_a_pause_that_stays_away_ends_the_period() -> None:
    assert period_of(lost([2, 6, 14, 18])) is None


def test_a_pause_beside_the_plan_may_happen_in_a_long_run() -> None:
    assert period_of(lost([4, 10, 11, 16, 22, 28], 30)) == 6


def test_pauses_too_short_to_matter_are_none() -> None:
    assert period_of(lost([4, 9, 14, 19], pause_ns=0.05 * USUAL_NS)) is None


def test_pauses_of_very_unequal_lengths_have_no_plan() -> None:
    series = lost([4, 9, 14, 19])
    series[9] /= 5
    assert period_of(series) is None


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 59), min_size=4, max_size=9))
def test_a_period_that_is_found_holds_from_some_pause_to_the_end(places: set[int]) -> None:
    found = period_of(lost(sorted(places), 60))
    if found is not None:
        held = [range(p, 60, found) for p in places if places.issuperset(range(p, 60, found))]
        assert max(map(len, held)) >= 3


def test_chance_makes_few_periods_of_random_pauses() -> None:
    rng = np.random.default_rng(7)
    found = [period_of(lost(sorted(rng.choice(20, 4, replace=False).tolist()))) for _ in range(300)]
    assert np.mean([p is not None for p in found]) <= 0.05


# ---- spreads


def spread_of(sigma: float, lasting: float = 0.0, seed: int = 1) -> np.ndarray:
    """Lateness of eight machines in forty iterations, beyond the quickest quarter as charges are."""
    rng = np.random.default_rng(seed)
    times = rng.normal(0.0, sigma, (40, 8)) + rng.normal(0.0, lasting, 8)
    return np.maximum(times - np.quantile(times, 0.25), 0.0)


@pytest.mark.parametrize("steady", [True, False])
def test_healthy_spreads_are_never_uneven(steady: bool) -> None:
    cases = [spread_of(0.02, 0.013, seed) for seed in range(200)]
    assert sum(is_uneven(spread_between(case), steady) for case in cases) == 0


def test_a_busy_processor_needs_more_to_be_uneven_work() -> None:
    spread = spread_between(spread_of(0.05))
    assert is_uneven(spread, steady=True)
    assert not is_uneven(spread, steady=False)


def test_a_few_long_pauses_are_no_spread() -> None:
    late = spread_of(0.01)
    late[::5, 3] += 1.0
    assert not is_uneven(spread_between(late), steady=True)


def test_differences_that_last_are_not_those_that_change() -> None:
    spread = spread_between(spread_of(0.01, 0.1))
    assert spread.lasting > 3 * spread.changing
    assert not is_uneven(spread, steady=True)


# ---- simulated jobs


@cache
def said_of(workload: str, fault: str, seed: int = 3) -> tuple[tuple[str, str, str | None], ...]:
    """Severity, cause and machine of all verdicts on a simulated job of eight machines."""
    report = report_for(scenario(workload, fault, seed=seed))
    return tuple((v["severity"], v["cause"], v["machine"]) for v in report["verdicts"])


@pytest.mark.parametrize(
    ("workload", "fault", "cause"),
    [
        ("dp", "checkpoint", "periodic_pause"),
        ("pp", "checkpoint", "periodic_pause"),
        ("dp", "imbalance", "data_imbalance"),
        ("pp", "stage_imbalance", "stage_imbalance"),
    ],
)
def test_a_simulated_pattern_is_told(workload: str, fault: str, cause: str) -> None:
    assert said_of(workload, fault) == (("notice", cause, None),)


@pytest.mark.parametrize("workload", ["dp", "pp", "tree", "dp_overlap"])
def test_a_simulated_healthy_job_gets_no_notice(workload: str) -> None:
    assert said_of(workload, "healthy") == ()


def test_a_slow_machine_of_a_pipeline_is_a_fault_and_no_notice() -> None:
    assert [(severity, cause) for severity, cause, _ in said_of("pp", "gpu_slow")] == [
        ("fail_slow", "compute_slow")
    ]
