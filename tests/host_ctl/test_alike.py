# SPDX-License-Identifier: Apache-2.0
"""Members that begin an operator alike share their norms: in the rounds of a barrier, as leaves of trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.host_ctl.made import EPOCH_NS
from tests.host_ctl.made_jobs import MS, US, Attributed, attributed, traffic_of

ITERATIONS = 14
LATE_NS = 5 * MS
WIRE_NS = 10 * US
COMPUTE_NS = 20 * MS

Ready = Callable[[int, int], int]


def late_since_the_start(culprit: int) -> Ready:
    """One member computes longer in every iteration; everybody's time varies a little."""
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 50 * US, (ITERATIONS, 8))
    return lambda k, m: COMPUTE_NS + int(noise[k, m]) + (LATE_NS if m == culprit else 0)


def barrier(members: int, ready: Ready) -> Attributed:
    """A dissemination barrier per iteration: a message to the next, then to the next but one, but three."""
    steps = [1 << r for r in range((members - 1).bit_length())]
    links = [(m, (m + step) % members) for step in steps for m in range(members)]
    messages: list[list[tuple[int, ...]]] = [[] for _ in links]
    begin = np.full(members, EPOCH_NS, dtype=np.int64)
    for k in range(ITERATIONS):
        may = [int(begin[m]) + ready(k, m) for m in range(members)]
        for number, step in enumerate(steps):
            for m in range(members):
                messages[number * members + m].append((may[m], may[m] + US, may[m] + WIRE_NS))
            may = [max(may[m], may[m - step] + WIRE_NS) + US for m in range(members)]
        begin = np.array(may)
    return attributed(traffic_of(members, links, messages))


def star(leaves: int, ready: Ready) -> Attributed:
    """A tree of one root: leaves send what they have computed, the root answers when all has come."""
    up, down = [(m, 0) for m in range(1, leaves + 1)], [(0, m) for m in range(1, leaves + 1)]
    messages: list[list[tuple[int, ...]]] = [[] for _ in (*up, *down)]
    begin = np.full(leaves + 1, EPOCH_NS, dtype=np.int64)
    for k in range(ITERATIONS):
        entered = [int(begin[m]) + ready(k, m) for m in range(leaves + 1)]
        answer = max(entered[0], *(e + WIRE_NS for e in entered[1:])) + US
        for m in range(1, leaves + 1):
            messages[m - 1].append((entered[m], entered[m] + US, entered[m] + WIRE_NS))
            sent = answer + m * US
            messages[leaves + m - 1].append((sent, sent + US, sent + WIRE_NS))
            begin[m] = sent + WIRE_NS
        begin[0] = answer
    return attributed(traffic_of(leaves + 1, [*up, *down], messages))


def excess_ns(made: Attributed, member: int) -> float:
    """How much too late a member's latest message is, by the median of the iterations that are whole."""
    replay = made.replay
    mine = (replay.src == member) & (replay.iteration > 0) & (replay.iteration < ITERATIONS - 1)
    late = np.zeros(ITERATIONS)
    np.maximum.at(late, replay.iteration[mine], replay.excess["host"][mine].astype(np.float64))
    return float(np.median(late[1:-1]))


@pytest.mark.parametrize("members", [4, 5, 8])
def test_who_comes_late_to_every_barrier_is_late_against_those_in_the_same_round(members: int) -> None:
    made = barrier(members, late_since_the_start(2))
    assert made.sharing.groups == set(range(len(made.job.timelines)))
    assert excess_ns(made, 2) == pytest.approx(LATE_NS, rel=0.1)
    assert all(excess_ns(made, m) < 0.1 * LATE_NS for m in range(members) if m != 2)


def test_a_round_takes_every_member_to_another() -> None:
    made = barrier(6, late_since_the_start(-1))
    for number in range(3):
        lanes = [lane for lane in made.program.lanes if lane.round == number]
        assert sorted(lane.src for lane in lanes) == sorted(lane.dst for lane in lanes) == list(range(6))
        assert {(lane.dst - lane.src) % 6 for lane in lanes} == {1 << number}


def test_a_leaf_that_is_late_from_the_start_is_late_against_the_other_leaves() -> None:
    made = star(4, late_since_the_start(3))
    assert excess_ns(made, 3) == pytest.approx(LATE_NS, rel=0.1)
    assert all(excess_ns(made, m) < 0.1 * LATE_NS for m in (1, 2, 4))
    compared = made.replay.compared
    assert compared[made.replay.src == 3].all()
    assert not compared[made.replay.src == 0].any()


def test_two_leaves_are_too_few_to_tell_which_of_them_is_late() -> None:
    assert not star(2, late_since_the_start(1)).sharing.starters
