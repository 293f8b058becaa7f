# SPDX-License-Identifier: Apache-2.0
"""What becomes of frames before anybody looks at them: repeats, gaps, lives, bounds, who is waited for."""

from __future__ import annotations

from host_ctl.live.intake import Intake
from host_ctl.live.intervals import Intervals
from host_ctl.live.limits import WindowLimits
from host_ctl.live.window import Wish, choose_window
from tests.live.sessions import MS, bare

SECOND = 1000 * MS
MUCH = 1 << 30


def intake_of(*frames: object, most_bytes: int = MUCH) -> Intake:
    intake = Intake(most_bytes)
    for each in frames:
        intake.take(each)  # type: ignore[arg-type]  # frames all
    return intake


def test_a_repeat_is_not_held_again() -> None:
    intake = intake_of(bare("a", 0), bare("a", 1))
    assert not intake.take(bare("a", 0))
    assert (intake.held_frames, intake.counts.repeats) == (2, 1)


def test_frames_out_of_order_are_held_in_order_and_a_gap_is_counted() -> None:
    intake = intake_of(bare("a", 4), bare("a", 1), bare("a", 2))
    (nic,) = intake
    frames = nic.overlapping(0, 10 * SECOND)
    assert [each.key.sequence for each in frames] == [1, 2, 4]
    assert nic.missing(frames) == 1
    assert intake.counts.late == 2


def test_a_process_that_begins_again_has_a_new_life_whose_frames_count() -> None:
    intake = intake_of(bare("a", 5), bare("a", 6, boot_id="second"))
    (nic,) = intake
    assert intake.counts.restarts == 1
    assert [each.key.boot_id for each in nic.overlapping(0, 10 * SECOND)] == ["life", "second"]
    assert nic.missing(nic.held) == 0


def test_of_too_many_bytes_the_oldest_of_all_go() -> None:
    size = bare("a", 9).size
    intake = intake_of(*(bare(m, n) for n in range(10) for m in "ab"), most_bytes=6 * size)
    assert intake.held_bytes <= 6 * size
    assert [[each.key.sequence for each in nic.held] for nic in intake] == [[7, 8, 9], [7, 8, 9]]
    assert intake.counts.let_go_early == 14


def test_a_nic_that_was_silent_for_long_is_forgotten_with_its_frames() -> None:
    intake = intake_of(bare("a", 0), bare("b", 100))
    assert intake.forget_before(50 * SECOND) == [("a", "mlx5_0")]
    assert [nic.name for nic in intake] == [("b", "mlx5_0")]
    assert intake.held_frames == 1


def test_traffic_is_closed_as_far_as_everybody_reaches() -> None:
    intake, intervals = intake_of(bare("a", 0), bare("a", 1), bare("b", 0)), Intervals(3 * SECOND)
    closed = intervals.close(intake, 2 * SECOND)
    assert closed is not None
    assert (closed.end_ns, closed.silent) == (SECOND, ())


def test_nobody_is_waited_for_longer_than_the_deadline() -> None:
    intake, intervals = intake_of(bare("b", 0)), Intervals(3 * SECOND)
    ends, silent = [], []
    for n in range(8):
        intake.take(bare("a", n))
        closed = intervals.close(intake, (n + 1) * SECOND)
        assert closed is not None
        ends.append(closed.end_ns // SECOND)
        silent.append(closed.silent)
    assert ends == [1, 1, 1, 1, 5, 6, 7, 8]
    assert silent == [()] * 4 + [(("b", "mlx5_0"),)] * 4


def test_who_comes_back_is_waited_for_again_once_it_has_caught_up() -> None:
    intake, intervals = intake_of(bare("b", 0), *(bare("a", n) for n in range(20))), Intervals(3 * SECOND)
    first = intervals.close(intake, 20 * SECOND)
    assert first is not None
    intake.take(bare("b", 1, late_ns=18 * SECOND))  # the rest of its spool
    second = intervals.close(intake, 20 * SECOND)
    assert second is not None
    assert (second.end_ns, second.silent) == (first.end_ns, first.silent)
    intake.take(bare("b", 19))
    third = intervals.close(intake, 20 * SECOND)
    assert third is not None
    assert third.silent == ()


def test_a_window_holds_the_iterations_that_are_wanted_and_no_more() -> None:
    intake = intake_of(*(bare("a", n) for n in range(1000)))
    wish = Wish(iteration_ns=2 * SECOND)
    window = choose_window(intake, 1000 * SECOND, WindowLimits(iterations=60), wish, MUCH, 0)
    assert 120 <= (window.end_ns - window.begin_ns) / SECOND <= 150
    assert not window.cut


def test_a_budget_makes_the_window_shorter_and_says_so() -> None:
    intake = intake_of(*(bare("a", n) for n in range(1000)))
    size = bare("a", 500).size
    wish = Wish(iteration_ns=2 * SECOND)
    window = choose_window(intake, 1000 * SECOND, WindowLimits(), wish, 40 * size, 0)
    assert window.cut
    assert window.bytes <= 41 * size


def test_a_window_has_the_fewest_iterations_that_tell_anything_whatever_they_cost() -> None:
    intake = intake_of(*(bare("a", n) for n in range(1000)))
    wish = Wish(iteration_ns=20 * SECOND)
    limits = WindowLimits(least_iterations=8)
    window = choose_window(intake, 1000 * SECOND, limits, wish, 10 * bare("a", 0).size, 0)
    assert window.cut
    assert (window.end_ns - window.begin_ns) / SECOND >= 160


def test_what_was_before_a_fault_stays_in_sight() -> None:
    intake = intake_of(*(bare("a", n) for n in range(1000)))
    wish = Wish(iteration_ns=SECOND, onset_ns=700 * SECOND)
    window = choose_window(intake, 1000 * SECOND, WindowLimits(), wish, MUCH, 0)
    assert window.begin_ns < 680 * SECOND
