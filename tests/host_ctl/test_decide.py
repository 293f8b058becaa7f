# SPDX-License-Identifier: Apache-2.0
"""Noise raises no alarm, however heavy its tails; lasting shifts are found where they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from host_ctl.diagnose.decide import Shift, find_shifts

Noise = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]

MS = 1e6
NOISES: dict[str, Noise] = {
    "normal": lambda rng, size: rng.normal(0, MS, size),
    "lognormal": lambda rng, size: rng.lognormal(0, 1.2, size) * MS,
    "student": lambda rng, size: rng.standard_t(1.5, size) * MS,
    "pareto": lambda rng, size: (rng.pareto(1.1, size) + 1) * MS,
    "rare pauses": lambda rng, size: np.where(rng.random(size) < 0.05, 200 * MS, rng.normal(0, MS, size)),
    "mostly zero": lambda rng, size: np.maximum(rng.normal(-MS, MS, size), 0),
}
RUNS_EACH = 170


def decided(
    lost: NDArray[np.float64],
    *,
    least_ns: float,
    usable: NDArray[np.bool_] | None = None,
    together: bool = False,
) -> list[Shift]:
    """Shifts of members that are all compared with each other."""
    mask = np.ones(len(lost), dtype=bool) if usable is None else usable
    return find_shifts(lost, least_ns=least_ns, usable=mask, together=together)


@pytest.mark.parametrize("name", NOISES)
def test_a_thousand_healthy_runs_raise_no_alarm(name: str) -> None:
    """About a thousand over all noises; the least excess that counts is a hundredth of the noise."""
    alarms = []
    for seed in range(RUNS_EACH):
        rng = np.random.default_rng([seed, *name.encode()])
        n, members = int(rng.integers(8, 120)), int(rng.integers(2, 9))
        lost = NOISES[name](rng, (n, members))
        found = decided(lost, together=bool(seed % 2), least_ns=0.01 * MS)
        alarms += [(seed, n, members, s) for s in found]
    assert alarms == []


def test_static_differences_below_what_counts_raise_no_alarm() -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        static = rng.uniform(0, MS, 6)
        lost = static + rng.normal(0, 0.2 * MS, (60, 6))
        assert decided(lost, least_ns=1.2 * MS) == []


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("sigmas", [3.0, 8.0])
def test_a_shift_is_found_at_its_member_onset_and_size(together: bool, sigmas: float) -> None:
    misplaced = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        onset, member = int(rng.integers(10, 25)), int(rng.integers(0, 5))
        lost = rng.normal(0, MS, (60, 5))
        lost[onset:, member] += sigmas * MS
        found = decided(lost, together=together, least_ns=0.5 * MS)
        assert {s.member for s in found} <= {member}
        misplaced.append(abs(found[0].onset - onset) if found else 60)
        for shift in found:
            assert shift.end >= 59
            assert shift.excess_ns == pytest.approx(sigmas * MS, rel=0.35)
            assert shift.onset <= shift.detected < 60
            assert shift.p_value <= 1e-5
    assert np.median(misplaced) == 0
    assert np.quantile(misplaced, 0.95) <= 2


def test_a_shift_from_the_first_iteration_must_be_larger_than_a_change() -> None:
    rng = np.random.default_rng(3)
    lost = rng.normal(0, 0.2 * MS, (40, 5))
    lost[:, 2] += 6 * MS
    assert [s.member for s in decided(lost, least_ns=MS)] == [2]
    assert decided(lost, least_ns=2 * MS) == []
    lost[:20, 2] -= 6 * MS
    assert [s.member for s in decided(lost, least_ns=2 * MS)] == [2]


def test_healthy_members_that_differ_for_good_raise_what_counts_without_a_before() -> None:
    rng = np.random.default_rng(4)
    lost = np.array([0, 3, 6, 9, 12, 15]) * MS + rng.normal(0, 0.1 * MS, (40, 6))
    lost[:, 5] += 8 * MS
    assert decided(lost, least_ns=MS) == []
    lost[:, 5] += 40 * MS
    assert [s.member for s in decided(lost, least_ns=MS)] == [5]


def test_a_shift_that_ends_is_found_with_its_end() -> None:
    rng = np.random.default_rng(5)
    lost = rng.normal(0, MS, (90, 5))
    lost[30:55, 1] += 8 * MS
    (shift,) = decided(lost, least_ns=MS)
    assert (shift.member, shift.onset, shift.end) == (1, 30, 55)


def test_what_all_members_lose_alike_is_nobodys_shift() -> None:
    rng = np.random.default_rng(7)
    lost = rng.normal(0, MS, (60, 5))
    lost[20:] += 30 * MS
    assert decided(lost, least_ns=MS) == []
    assert decided(lost, least_ns=MS, together=True) == []


def test_an_excess_below_what_counts_is_not_told() -> None:
    rng = np.random.default_rng(8)
    lost = rng.normal(0, 0.01 * MS, (60, 5))
    lost[20:, 0] += MS
    assert decided(lost, least_ns=2 * MS) == []
    assert [s.member for s in decided(lost, least_ns=0.5 * MS)] == [0]


def test_iterations_that_cannot_be_used_do_not_count_and_keep_their_numbers() -> None:
    rng = np.random.default_rng(9)
    lost = rng.normal(0, MS, (60, 5))
    usable = np.ones(60, dtype=bool)
    usable[:10] = usable[25] = False
    lost[~usable] = 1e12
    lost[30:, 4] += 9 * MS
    (shift,) = decided(lost, least_ns=MS, usable=usable)
    assert (shift.member, shift.onset, shift.end) == (4, 30, 60)


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_too_few_iterations_decide_nothing(n: int) -> None:
    lost = np.zeros((n, 4))
    lost[n // 2 :, 0] = 1e9
    assert decided(lost, least_ns=1.0) == []


def test_renaming_members_renames_the_shift() -> None:
    rng = np.random.default_rng(11)
    lost = rng.normal(0, MS, (60, 6))
    lost[25:, 2] += 6 * MS
    order = rng.permutation(6)
    (before,) = decided(lost, least_ns=MS)
    (after,) = decided(lost[:, order], least_ns=MS)
    assert order[after.member] == before.member
    assert (after.onset, after.end, after.excess_ns) == (before.onset, before.end, before.excess_ns)


def test_a_rise_of_what_was_there_all_along_counts_from_the_start() -> None:
    rng = np.random.default_rng(5)
    lost = rng.normal(0, 0.2 * MS, (40, 5))
    lost[:, 3] += 60 * MS
    lost[25:, 3] += 8 * MS
    (shift,) = decided(lost, least_ns=MS)
    assert (shift.member, shift.onset, shift.end) == (3, 0, 40)
    assert shift.excess_ns > 50 * MS


def test_a_shift_of_the_first_iterations_is_found_with_its_end() -> None:
    rng = np.random.default_rng(6)
    lost = rng.normal(0, 0.2 * MS, (40, 5))
    lost[:5, 2] += 20 * MS
    (shift,) = decided(lost, least_ns=MS)
    assert (shift.member, shift.onset, shift.end) == (2, 0, 5)


def test_two_that_shift_together_are_both_found_where_that_may_be() -> None:
    rng = np.random.default_rng(7)
    lost = rng.normal(0, 0.2 * MS, (40, 6))
    lost[20:, [1, 4]] += rng.normal(20 * MS, MS, (20, 2))
    assert decided(lost, least_ns=MS) == []
    both = decided(lost, least_ns=MS, together=True)
    assert {(s.member, s.onset) for s in both} == {(1, 20), (4, 20)}


def test_two_that_shift_together_must_each_be_worse_than_who_did_not_shift() -> None:
    rng = np.random.default_rng(9)
    lost = rng.normal(0, 0.2 * MS, (40, 6))
    lost[20:, [1, 4]] += rng.normal(20 * MS, MS, (20, 2))
    lost[20:, 0] += np.where(np.arange(20) % 2, 60 * MS, 0)
    assert {s.member for s in decided(lost, least_ns=MS, together=True)} <= {1, 4}


def test_what_most_members_lose_is_no_shift_of_theirs_together() -> None:
    rng = np.random.default_rng(10)
    lost = rng.normal(0, 0.2 * MS, (40, 6))
    lost[20:, :4] += 20 * MS
    assert decided(lost, least_ns=MS, together=True) == []


def test_who_is_last_again_and_again_is_found_where_medians_of_few_peers_tell_little() -> None:
    """With medians alone two of these twenty runs are found."""
    found = []
    for seed in range(20):
        lost = np.random.default_rng(seed).exponential(50 * MS, (40, 4))
        lost[10:, 1] = lost[10:, [0, 2, 3]].max(axis=1) + 40 * MS
        found.append([shift.member for shift in decided(lost, least_ns=30 * MS)])
    assert found == [[1]] * 20


@pytest.mark.parametrize("member", range(4))
def test_it_does_not_matter_in_which_order_members_stand_where_nobody_loses_anything(member: int) -> None:
    found = []
    for seed in range(20):
        lost = np.zeros((46, 4))
        lost[10:] = np.random.default_rng(seed).exponential(50 * MS, (36, 4))
        lost[16:, member] = np.delete(lost[16:], member, axis=1).max(axis=1) + 40 * MS
        found.append([shift.member for shift in decided(lost, least_ns=30 * MS)])
    assert found == [[member]] * 20
