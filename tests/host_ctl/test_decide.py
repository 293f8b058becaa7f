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
    lost: NDArray[np.float64], *, peers: bool, least_ns: float, usable: NDArray[np.bool_] | None = None
) -> list[Shift]:
    """Shifts, all members compared with each other or each with its own past."""
    n, members = lost.shape
    classes = [np.arange(members)] if peers else []
    mask = np.ones(n, dtype=bool) if usable is None else usable
    return find_shifts(lost, classes=classes, least_ns=least_ns, usable=mask)


@pytest.mark.parametrize("name", NOISES)
def test_a_thousand_healthy_runs_raise_no_alarm(name: str) -> None:
    """About a thousand over all noises; the least excess that counts is a hundredth of the noise."""
    alarms = []
    for seed in range(RUNS_EACH):
        rng = np.random.default_rng([seed, *name.encode()])
        n, members = int(rng.integers(8, 120)), int(rng.integers(2, 9))
        lost = NOISES[name](rng, (n, members))
        found = decided(lost, peers=bool(seed % 2), least_ns=0.01 * MS)
        alarms += [(seed, n, members, s) for s in found]
    assert alarms == []


def test_static_differences_below_what_counts_raise_no_alarm() -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        static = rng.uniform(0, MS, 6)
        lost = static + rng.normal(0, 0.2 * MS, (60, 6))
        assert decided(lost, peers=True, least_ns=1.2 * MS) == []


@pytest.mark.parametrize("peers", [True, False])
@pytest.mark.parametrize("sigmas", [3.0, 8.0])
def test_a_shift_is_found_at_its_member_onset_and_size(peers: bool, sigmas: float) -> None:
    misplaced = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        onset, member = int(rng.integers(10, 25)), int(rng.integers(0, 5))
        lost = rng.normal(0, MS, (60, 5))
        lost[onset:, member] += sigmas * MS
        found = decided(lost, peers=peers, least_ns=0.5 * MS)
        assert {s.member for s in found} <= {member}
        misplaced.append(abs(found[0].onset - onset) if found else 60)
        for shift in found:
            assert shift.end >= 59
            assert shift.excess_ns == pytest.approx(sigmas * MS, rel=0.35)
            assert shift.onset <= shift.detected < 60
            assert shift.own_past is not peers
            assert shift.p_value <= 1e-5
    assert np.median(misplaced) == 0
    assert np.quantile(misplaced, 0.95) <= 2


def test_a_shift_from_the_first_iteration_needs_peers() -> None:
    rng = np.random.default_rng(3)
    lost = rng.normal(0, MS, (40, 5))
    lost[:, 2] += 6 * MS
    assert [s.member for s in decided(lost, peers=True, least_ns=MS)] == [2]
    assert decided(lost, peers=False, least_ns=MS) == []


def test_a_shift_that_ends_is_found_with_its_end() -> None:
    rng = np.random.default_rng(5)
    lost = rng.normal(0, MS, (90, 5))
    lost[30:55, 1] += 8 * MS
    (shift,) = decided(lost, peers=True, least_ns=MS)
    assert (shift.member, shift.onset, shift.end) == (1, 30, 55)


def test_two_members_that_are_slow_at_once_are_both_found() -> None:
    rng = np.random.default_rng(6)
    lost = rng.normal(0, MS, (60, 8))
    lost[20:, 3] += 12 * MS
    lost[20:, 5] += 12 * MS
    found = {s.member for s in decided(lost, peers=False, least_ns=MS)}
    assert found == {3, 5}


def test_what_all_members_lose_alike_is_nobodys_shift() -> None:
    rng = np.random.default_rng(7)
    lost = rng.normal(0, MS, (60, 5))
    lost[20:] += 30 * MS
    assert decided(lost, peers=True, least_ns=MS) == []
    assert decided(lost, peers=False, least_ns=MS) == []


def test_an_excess_below_what_counts_is_not_told() -> None:
    rng = np.random.default_rng(8)
    lost = rng.normal(0, 0.01 * MS, (60, 5))
    lost[20:, 0] += MS
    assert decided(lost, peers=True, least_ns=2 * MS) == []
    assert [s.member for s in decided(lost, peers=True, least_ns=0.5 * MS)] == [0]


def test_iterations_that_cannot_be_used_do_not_count_and_keep_their_numbers() -> None:
    rng = np.random.default_rng(9)
    lost = rng.normal(0, MS, (60, 5))
    usable = np.ones(60, dtype=bool)
    usable[:10] = usable[25] = False
    lost[~usable] = 1e12
    lost[30:, 4] += 9 * MS
    (shift,) = decided(lost, peers=True, least_ns=MS, usable=usable)
    assert (shift.member, shift.onset, shift.end) == (4, 30, 60)


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_too_few_iterations_decide_nothing(n: int) -> None:
    lost = np.zeros((n, 4))
    lost[n // 2 :, 0] = 1e9
    assert decided(lost, peers=True, least_ns=1.0) == []


def test_renaming_members_renames_the_shift() -> None:
    rng = np.random.default_rng(11)
    lost = rng.normal(0, MS, (60, 6))
    lost[25:, 2] += 6 * MS
    order = rng.permutation(6)
    (before,) = decided(lost, peers=True, least_ns=MS)
    (after,) = decided(lost[:, order], peers=True, least_ns=MS)
    assert order[after.member] == before.member
    assert (after.onset, after.end, after.excess_ns) == (before.onset, before.end, before.excess_ns)


def test_a_rise_of_what_was_there_all_along_counts_from_the_start() -> None:
    rng = np.random.default_rng(5)
    lost = rng.normal(0, 0.2 * MS, (40, 5))
    lost[:, 3] += 60 * MS
    lost[25:, 3] += 8 * MS
    (shift,) = decided(lost, peers=True, least_ns=MS)
    assert (shift.member, shift.onset, shift.end) == (3, 0, 40)
    assert shift.excess_ns > 50 * MS


def test_what_is_slow_at_the_begin_only_is_no_change_to_its_own_past() -> None:
    """The first iterations of a run are slow anyhow: connections, caches, memory."""
    rng = np.random.default_rng(6)
    lost = rng.normal(0, 0.2 * MS, (40, 5))
    lost[:5, 2] += 20 * MS
    assert decided(lost, peers=False, least_ns=MS) == []


def test_two_that_shift_together_are_both_found_where_that_may_be() -> None:
    rng = np.random.default_rng(7)
    lost = rng.normal(0, 0.2 * MS, (40, 6))
    lost[20:, [1, 4]] += rng.normal(20 * MS, MS, (20, 2))
    every = [np.arange(6)]
    usable = np.ones(40, dtype=bool)
    assert find_shifts(lost, classes=every, least_ns=MS, usable=usable) == []
    both = find_shifts(lost, classes=every, least_ns=MS, usable=usable, together=True)
    assert {(s.member, s.onset) for s in both} == {(1, 20), (4, 20)}


def test_who_loses_no_more_than_before_has_not_shifted_when_the_others_lose_less() -> None:
    rng = np.random.default_rng(8)
    lost = 30 * MS + rng.normal(0, 0.2 * MS, (40, 5))
    lost[20:, [0, 1, 3, 4]] -= 25 * MS
    assert decided(lost, peers=False, least_ns=MS) == []
