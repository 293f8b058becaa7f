# SPDX-License-Identifier: Apache-2.0
"""The scores of a reconstruction, on operators, states and costs whose errors are known."""

from __future__ import annotations

import numpy as np
import pytest

from bench.fidelity.cases import CaseScore
from bench.fidelity.report import cluster_of, confusion_lines
from bench.fidelity.score import confusion, cost_error, length_errors, nearest_errors, score_cuts
from bench.fidelity.states import true_stretches
from bench.fidelity.summary import GOALS, costs_near, iterations_right, right_share, unknown_share
from bench.fidelity.truth import SLOT
from host_ctl.attribute.states import WaitState

BEGIN = np.array([0, 100, 200, 300], dtype=np.int64)
END = BEGIN + 60
STATES = len(WaitState)


def test_operators_that_are_found_as_they_were_have_no_error() -> None:
    score = score_cuts(BEGIN, END, BEGIN, END)
    assert (score.visible, score.found, score.false) == (3, 3, 0)
    assert not score.begin_error_ns.any()
    assert not score.end_error_ns.any()


def test_begins_and_ends_that_are_off_are_measured_apart() -> None:
    score = score_cuts(BEGIN, END, BEGIN + 5, END - 7)
    assert score.found == 3
    assert score.begin_error_ns.tolist() == [5] * 3
    assert score.end_error_ns.tolist() == [7] * 3


def test_merged_operators_are_missed_cuts_and_split_ones_false() -> None:
    merged = score_cuts(BEGIN, END, BEGIN[[0, 2, 3]], END[[1, 2, 3]])
    assert (merged.visible, merged.found, merged.false) == (3, 2, 0)
    split = score_cuts(BEGIN, END, np.array([0, 30, 100, 200, 300]), np.array([20, 60, 160, 260, 360]))
    assert (split.found, split.false) == (3, 1)


def test_back_to_back_operators_have_no_boundary_that_could_be_seen() -> None:
    touching = score_cuts(BEGIN, BEGIN + 100, BEGIN, BEGIN + 100)
    assert (touching.visible, touching.found, touching.false) == (0, 0, 0)


def test_every_true_time_is_held_against_the_nearest_found() -> None:
    assert nearest_errors(BEGIN, np.array([-3, 101, 290])).tolist() == [3, 1, 90, 10]
    assert nearest_errors(BEGIN, np.array([100])).tolist() == [100, 0, 100, 200]


def test_iterations_that_are_cut_elsewhere_but_alike_have_the_right_length() -> None:
    assert length_errors(BEGIN, BEGIN + 45).tolist() == [0.0] * 3
    assert length_errors(BEGIN, np.array([0, 110, 200, 300])).tolist() == pytest.approx([0.1, 0.1, 0.0])
    assert length_errors(BEGIN, BEGIN[:1]).tolist() == [1.0] * 3


def test_time_is_counted_per_pair_of_states_where_both_say_something() -> None:
    true = (np.array([0, 10]), np.array([10, 30]), np.array([0, 1]))
    found = (np.array([5, 12]), np.array([12, 40]), np.array([0, 1]))
    table = confusion(true, found, 2)
    assert table.tolist() == [[5, 0], [2, 18]]


def test_a_slot_waits_for_its_input_its_gpu_its_credit_and_its_host_in_turn() -> None:
    slots = np.zeros(2, SLOT)
    for name, times in {
        "input": (10, 55), "staged": (20, 60), "credit": (30, 0), "posted": (35, 70), "delivered": (50, 90),
    }.items():  # fmt: skip
        slots[name] = times
    begin, end = np.array([0]), np.array([100])
    found = true_stretches(slots, np.zeros(2, dtype=np.int64), begin, end)
    time = np.bincount(found["state"], found["end"] - found["start"], minlength=STATES)
    assert time.sum() == 100
    expected = {
        WaitState.WAIT_UPSTREAM: 10 + 5,
        WaitState.NOT_STARTED: 10 + 5,
        WaitState.WAIT_CREDIT: 10,
        WaitState.TRANSFER: 15 + 20,
        WaitState.WAIT_SENDER: 15,
        WaitState.COMPLETE: 10,
    }
    assert {s: int(time[s]) for s in expected} == expected


def test_a_cost_is_off_by_a_share_of_itself() -> None:
    assert cost_error(1.33, 1.30) == pytest.approx(0.1)
    assert cost_error(0.0, 1.5) > 1


def _case(confusion_ns: np.ndarray, **more: object) -> CaseScore:
    return CaseScore("dp", "healthy", "all", confusion=confusion_ns, **more)  # type: ignore[arg-type]


def test_runs_count_alike_however_long_they_are() -> None:
    short, long = np.zeros((STATES, STATES)), np.zeros((STATES, STATES))
    short[0, 0], long[0, 0], long[0, WaitState.UNKNOWN] = 1.0, 50.0, 50.0
    cases = [_case(short), _case(long, iterations=[(20, 20), (20, 19)], costs=[(1.3, 1.3), (1.0, 1.3)])]
    assert right_share(cases) == pytest.approx(0.75)
    assert unknown_share(cases) == pytest.approx(50 / 101)
    assert iterations_right(cases) == 0.5
    assert costs_near(cases) == 0.5
    assert "| transfer | 75.00 | 25.00 |" in confusion_lines(cases, "all")


def test_steered_capture_has_a_goal_of_its_own() -> None:
    goal = GOALS[0]
    assert goal.reached(0.92, "steered")
    assert not goal.reached(0.92, "all")
    assert goal.reached(None, "all") is None


def test_a_cluster_that_is_no_size_is_refused() -> None:
    assert (cluster_of("4x2").machines, cluster_of("4x2").nics_per_machine) == (4, 2)
    with pytest.raises(ValueError, match="MACHINESxNICS"):
        cluster_of("many")
