# SPDX-License-Identifier: Apache-2.0
"""Rules of published systems on jobs that stand: when each must fire, and when it must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.peers import aegis, ccl_d, epochs, greyhound, holmes, ras
from bench.peers.interface import ContenderVerdict
from bench.peers.operator_log import OperatorLog
from tests.bench.small_log import BYTES, MS, SmallJob, point_to_point, sent_messages

Rule = Callable[[OperatorLog], list[ContenderVerdict]]
COUNTING = [aegis.judge, ccl_d.judge, ras.judge]


def accused(verdicts: list[ContenderVerdict]) -> list[tuple[str | None, str | None]]:
    return [(verdict.machine, verdict.cause) for verdict in verdicts]


@pytest.mark.parametrize("judge", COUNTING)
def test_the_rank_that_never_enters_is_named(judge: Rule) -> None:
    verdicts = judge(SmallJob(stands=True, missing=frozenset({3})).log())
    assert [(v.machine, v.cause, v.severity, v.iteration) for v in verdicts] == [
        ("node3", "hang", "fail_stop", 15)
    ]


@pytest.mark.parametrize("judge", [greyhound.judge, holmes.judge])
def test_what_watches_iteration_times_says_nothing_of_a_hang(judge: Rule) -> None:
    assert judge(SmallJob(stands=True, missing=frozenset({3})).log()) == []


@pytest.mark.parametrize("judge", COUNTING)
def test_of_several_missing_machines_none_is_named(judge: Rule) -> None:
    verdicts = judge(SmallJob(stands=True, missing=frozenset({1, 3})).log())
    assert [verdict.machine for verdict in verdicts] == [None]


def all_inside(completed: dict[int, tuple[int, int]]) -> OperatorLog:
    """All ranks are in the last operation; (requests, completions) of some differ from 10 and 10."""
    return SmallJob(stands=True, completed=lambda rank: completed.get(rank, (10, 10))).log()


def test_aegis_names_the_machine_that_all_pairs_with_open_requests_share() -> None:
    assert accused(aegis.judge(all_inside({1: (10, 4), 2: (10, 7)}))) == [("node2", "nic_dead")]


def test_aegis_names_neither_end_of_a_single_pair() -> None:
    assert accused(aegis.judge(all_inside({1: (10, 4)}))) == [(None, "nic_dead")]


def test_ras_says_nothing_when_all_ranks_are_inside() -> None:
    assert ras.judge(all_inside({1: (10, 4)})) == []


def test_ras_reports_a_process_that_ended() -> None:
    job = SmallJob(stands=True, ended={2: 150 * MS})
    assert accused(ras.judge(job.log())) == [("node2", "crash")]


def test_ras_names_no_majority_that_lags() -> None:
    assert ras.judge(SmallJob(stands=True, missing=frozenset({0, 1, 2})).log()) == []


def test_ccl_d_names_the_least_progress_when_all_call_the_same() -> None:
    assert accused(ccl_d.judge(all_inside({1: (10, 4), 2: (10, 7)}))) == [("node1", "nic_dead")]


def test_ccl_d_names_nobody_when_two_are_equally_far_behind() -> None:
    assert accused(ccl_d.judge(all_inside({1: (10, 4), 2: (10, 4)}))) == [(None, "nic_dead")]


def test_ccl_d_names_the_caller_whose_size_differs() -> None:
    job = SmallJob(stands=True, size=lambda r, s: BYTES // 2 if (r, s) == (2, 15) else BYTES)
    assert accused(ccl_d.judge(job.log())) == [("node2", "op_mismatch")]


@pytest.mark.parametrize("judge", [aegis.judge, ccl_d.judge])
def test_point_to_point_the_partner_that_does_nothing_is_named(judge: Rule) -> None:
    log = point_to_point({0: (10, 10), 2: (10, 10)}, {0: 1, 1: 2, 2: 1})
    assert accused(judge(log)) == [("node1", "hang")]


def test_the_published_pulse_names_the_rank_that_sent_least_of_a_collective_that_does_not_end() -> None:
    log = SmallJob(stands=True).log()
    seen = sent_messages(log, lambda r, s: [(0, MS, BYTES // 4 if (r, s) == (1, 15) else BYTES // 2)])
    assert accused(epochs.judge(log, seen)) == [("node1", "nic_dead")]


def test_the_published_pulse_names_nobody_when_two_sent_equally_little() -> None:
    log = SmallJob(stands=True).log()
    seen = sent_messages(log, lambda r, s: [(0, MS, BYTES // 4 if r in (1, 2) else BYTES // 2)])
    assert accused(epochs.judge(log, seen)) == [(None, "nic_dead")]
