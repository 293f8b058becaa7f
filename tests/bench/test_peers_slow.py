# SPDX-License-Identifier: Apache-2.0
"""Rules of published systems on slow jobs: when each must fire, and when it must not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench.peers import aegis, ccl_d, greyhound, holmes, ras
from bench.peers.change_point import change_points
from bench.peers.interface import ContenderVerdict
from bench.peers.operator_log import OperatorLog
from tests.bench.small_log import MS, TRANSFER_NS, SmallJob

Rule = Callable[[OperatorLog], list[ContenderVerdict]]
ONSET = 7
LOG_RULES = [aegis.judge, ccl_d.judge, greyhound.judge, holmes.judge, ras.judge]


def steady(rank: int, step: int) -> int:
    """Compute that differs a little between ranks and steps, always in the same way."""
    return 10 * MS + (7 * rank + 13 * step) % 11 * MS // 100


def slow_rank(slow: int, factor: float) -> OperatorLog:
    """One rank that computes longer from the onset on."""
    return SmallJob(
        compute=lambda r, s: int(steady(r, s) * (factor if r == slow and s >= ONSET else 1))
    ).log()


def slow_network(slow: int, factor: int) -> OperatorLog:
    """A job whose transfers all last longer from the onset on, as one rank's requests do."""
    return SmallJob(
        compute=steady,
        transfer=lambda s: TRANSFER_NS * (factor if s >= ONSET else 1),
        network=lambda r, s: TRANSFER_NS * (factor if s >= ONSET and r == slow else 1),
    ).log()


def accused(verdicts: list[ContenderVerdict]) -> list[tuple[str | None, str | None]]:
    return [(verdict.machine, verdict.cause) for verdict in verdicts]


@pytest.mark.parametrize("judge", LOG_RULES)
def test_nobody_accuses_anybody_of_a_steady_job(judge: Rule) -> None:
    assert judge(SmallJob(compute=steady).log()) == []


@pytest.mark.parametrize("judge", [aegis.judge, ccl_d.judge, greyhound.judge, holmes.judge])
def test_a_rank_that_computes_twice_as_long_is_named(judge: Rule) -> None:
    assert accused(judge(slow_rank(2, 2.0))) == [("node2", "compute_slow")]


def test_aegis_names_the_rank_whose_requests_are_under_way_for_more_than_one_and_a_half_of_the_mean() -> None:
    assert accused(aegis.judge(slow_network(1, 3))) == [("node1", "nic_slow")]


def test_aegis_names_nobody_when_all_requests_are_equally_long() -> None:
    log = SmallJob(
        compute=lambda r, s: 10 * MS,
        transfer=lambda s: TRANSFER_NS * (3 if s >= ONSET else 1),
        network=lambda r, s: TRANSFER_NS * (3 if s >= ONSET else 1),
    ).log()
    assert accused(aegis.judge(log)) == [(None, None)]


def test_aegis_needs_several_slow_iterations_in_a_row() -> None:
    log = SmallJob(compute=lambda r, s: steady(r, s) * (2 if r == 1 and s in (7, 10) else 1)).log()
    assert aegis.judge(log) == []


def test_ccl_d_keeps_still_below_three_times_the_usual_duration() -> None:
    assert ccl_d.judge(slow_network(1, 2)) == []


def test_ccl_d_names_the_lowest_rate_when_all_durations_grow_alike() -> None:
    assert accused(ccl_d.judge(slow_network(1, 4))) == [("node1", "nic_slow")]


def test_ccl_d_names_nobody_when_rates_do_not_differ() -> None:
    log = SmallJob(compute=steady, transfer=lambda s: TRANSFER_NS * (4 if s >= ONSET else 1)).log()
    assert accused(ccl_d.judge(log)) == [(None, "link_slow")]


def test_holmes_finds_a_group_and_no_machine_when_all_of_its_ranks_last_long() -> None:
    assert accused(holmes.judge(slow_network(1, 3))) == [(None, "link_slow")]


def test_holmes_names_nobody_when_another_rank_is_slow_in_every_iteration() -> None:
    log = SmallJob(compute=lambda r, s: steady(r, s) * (2 if s >= ONSET and r == s % 4 else 1)).log()
    assert [verdict.machine for verdict in holmes.judge(log)] == [None]


def test_greyhound_ignores_a_slowdown_below_ten_percent() -> None:
    assert greyhound.judge(slow_rank(2, 1.08)) == []


def test_greyhound_reports_a_single_slow_link_without_a_machine() -> None:
    assert accused(greyhound.judge(slow_network(1, 3))) == [(None, "link_slow")]


def test_greyhound_names_the_machine_that_two_slow_links_share() -> None:
    log = SmallJob(
        ranks=5,
        compute=steady,
        transfer=lambda s: TRANSFER_NS * (3 if s >= ONSET else 1),
        network=lambda r, s: TRANSFER_NS * (3 if s >= ONSET and r in (1, 2) else 1),
    ).log()
    assert accused(greyhound.judge(log)) == [("node2", "link_slow")]


def test_greyhound_tells_when_the_slowdown_began() -> None:
    assert [verdict.iteration for verdict in greyhound.judge(slow_rank(0, 1.5))] == [ONSET]


def test_ras_says_nothing_of_slowness() -> None:
    assert ras.judge(slow_rank(2, 3.0)) == []


def test_a_change_of_level_is_one_change_point_at_its_place() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.01, 30)
    assert change_points(np.r_[np.zeros(12), np.full(18, 0.3)] + noise, 0.01, 0.01) == [12]


def test_a_steady_series_and_an_empty_one_have_no_change_point() -> None:
    assert change_points(np.random.default_rng(2).normal(0.0, 0.01, 40), 0.01, 0.01) == []
    assert change_points(np.zeros(0), 0.01, 0.01) == []
