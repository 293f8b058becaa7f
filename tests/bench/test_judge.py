# SPDX-License-Identifier: Apache-2.0
"""The judgement on a report, for every kind of answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.scenarios.judge import Word, judge_machines, judge_outcome
from bench.scenarios.outcome import Facts, FaultFacts, SaidVerdict
from tests.bench.facts import (
    CONGESTION,
    FABRIC_LOSS,
    FLAP,
    GPU,
    HEALTHY,
    NOTICE,
    PORT,
    SAID_CONGESTION,
    SAID_PORT,
    truth,
)

CHEAP = replace(PORT, counts=False, slowdown=1.001)
SAID_INNOCENT = replace(SAID_PORT, machine="node0")
SAID_GPU = replace(SAID_PORT, cause="compute_slow", scope="machine", machine="node1")


def word(facts: Facts, *verdicts: SaidVerdict, health: str = "degraded") -> Word:
    return judge_outcome(facts, verdicts, health).words[0]


def test_severity_cause_scope_and_machine_as_allowed_are_right() -> None:
    assert word(truth(PORT), SAID_PORT) is Word.RIGHT
    assert word(truth(PORT), replace(SAID_PORT, cause="link_slow", scope="link")) is Word.RIGHT


@pytest.mark.parametrize(
    "other", [{"cause": "compute_slow"}, {"scope": "machine"}, {"severity": "fail_stop"}]
)
def test_the_right_machine_with_anything_else_wrong_is_not_right(other: dict[str, str]) -> None:
    assert word(truth(PORT), replace(SAID_PORT, **other)) is Word.OTHER_CAUSE  # type: ignore[arg-type]


def test_the_culprit_among_candidates_without_a_machine_is_a_candidate_only() -> None:
    said = replace(SAID_PORT, machine=None, scope="link", candidates=("node2", "node3"))
    assert word(truth(PORT), said) is Word.CANDIDATES


def test_a_report_that_cannot_tell_is_unsure() -> None:
    assert word(truth(PORT), health="unsure") is Word.UNSURE
    assert word(HEALTHY, health="unsure") is Word.UNSURE


@pytest.mark.parametrize("said", [(), (NOTICE,), (SAID_CONGESTION,)])
def test_a_counting_fault_of_which_nothing_fitting_is_said_is_missed(said: tuple[SaidVerdict, ...]) -> None:
    assert word(truth(PORT), *said, health="ok") is Word.MISSED


def test_another_machine_in_place_of_the_culprit_is_wrong() -> None:
    judgement = judge_outcome(truth(PORT), [SAID_INNOCENT], "degraded")
    assert judgement.words == (Word.WRONG_MACHINE,)
    assert (judgement.accusations.named, judgement.accusations.innocent) == (1, 1)


@pytest.mark.parametrize("fault", [CONGESTION, FABRIC_LOSS])
def test_a_machine_named_for_a_fault_of_no_machine_is_wrong(fault: FaultFacts) -> None:
    assert word(truth(fault), replace(SAID_PORT, machine="node1")) is Word.WRONG_MACHINE


@pytest.mark.parametrize("said", [(), (NOTICE,)])
def test_silence_or_a_notice_is_allowed_for_a_fault_that_costs_nothing(said: tuple[SaidVerdict, ...]) -> None:
    assert word(truth(CHEAP), *said, health="ok") is Word.QUIET
    assert word(HEALTHY, *said, health="ok") is Word.QUIET


def test_a_fault_that_costs_nothing_may_be_named_and_another_machine_may_not() -> None:
    assert word(truth(CHEAP), SAID_PORT) is Word.RIGHT
    assert word(truth(CHEAP), SAID_INNOCENT) is Word.WRONG_MACHINE
    assert word(truth(CHEAP), SAID_CONGESTION) is Word.FALSE_ALARM


def test_a_machine_named_in_a_control_is_a_false_accusation_and_any_other_alarm_a_false_alarm() -> None:
    assert word(HEALTHY, SAID_PORT) is Word.FALSE_ACCUSATION
    assert word(HEALTHY, SAID_CONGESTION) is Word.FALSE_ALARM
    assert word(HEALTHY, replace(SAID_PORT, severity="notice"), health="ok") is Word.QUIET


def test_an_innocent_beside_the_culprit_is_counted_though_the_fault_was_found() -> None:
    judgement = judge_outcome(truth(PORT), [SAID_PORT, SAID_INNOCENT], "degraded")
    assert judgement.words == (Word.RIGHT,)
    assert (judgement.accusations.named, judgement.accusations.innocent) == (2, 1)


def test_a_fault_of_no_machine_is_right_by_cause_and_needs_all_candidates() -> None:
    assert word(truth(CONGESTION), SAID_CONGESTION) is Word.RIGHT
    loss = replace(SAID_CONGESTION, cause="link_loss", candidates=("node1", "node2"))
    assert word(truth(FABRIC_LOSS), loss) is Word.RIGHT
    assert word(truth(FABRIC_LOSS), replace(loss, candidates=("node1",))) is Word.CANDIDATES
    assert word(truth(CONGESTION), replace(SAID_CONGESTION, cause="link_slow")) is Word.OTHER_CAUSE


def test_a_notice_is_right_where_the_row_allows_one() -> None:
    assert (
        word(truth(FLAP), replace(SAID_PORT, severity="notice", cause="link_down"), health="ok") is Word.RIGHT
    )


def test_each_of_two_faults_is_judged_by_what_is_said_of_it() -> None:
    both = truth(GPU, PORT)
    assert judge_outcome(both, [SAID_GPU, SAID_PORT], "degraded").words == (Word.RIGHT, Word.RIGHT)
    one = judge_outcome(both, [SAID_PORT], "degraded")
    assert one.words == (Word.MISSED, Word.RIGHT)
    assert one.accusations.innocent == 0


def test_what_fits_a_fault_of_no_machine_does_not_answer_for_its_neighbour() -> None:
    said = replace(SAID_CONGESTION, candidates=("node1",))
    assert judge_outcome(truth(CONGESTION, GPU), [said], "degraded").words == (Word.RIGHT, Word.MISSED)


def test_machines_are_judged_by_loud_verdicts_alone_each_machine_once() -> None:
    said = [("fail_slow", "node3"), ("fail_stop", "node3"), ("notice", "node0"), ("fail_slow", None)]
    accusations = judge_machines(truth(PORT), said)
    assert (accusations.named, accusations.innocent, accusations.found) == (1, 0, frozenset({"node3"}))
