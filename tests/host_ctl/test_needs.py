# SPDX-License-Identifier: Apache-2.0
"""What a message needs is what it was never sent without, and no more than its peers need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpu_app.wire.records import MessageFlag
from host_ctl.attribute.needs import Action, Learned, Needs, Sharing, learn_needs, share_needs
from host_ctl.attribute.places import Places
from host_ctl.attribute.program import Arrivals, Program, lay_out
from host_ctl.attribute.replay import Replay
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic
from tests.host_ctl.made_jobs import MS, US, attributed, bare_lane, ring

MEMBERS, ITERATIONS = 4, 16
RING_NEEDS = list(range(2 * (MEMBERS - 1)))


def own_needs(traffic: Traffic) -> dict[int, list[int]]:
    """What each member of a ring needs of what it gets, learned from its own iterations."""
    one = attributed(traffic)
    return {one.program.lanes[index].src: need.tolist() for (index, _), need in one.learned.needs.items()}


def test_a_member_of_a_ring_needs_for_each_message_the_one_that_it_hands_on() -> None:
    traffic = ring(MEMBERS, ITERATIONS, late=lambda k, i: (k * 7919 + i * 104_729) % 13 * 10 * US)
    assert own_needs(traffic) == dict.fromkeys(range(MEMBERS), RING_NEEDS)


def always_late(member: int) -> Traffic:
    """A ring with a member that begins so late that the others' first messages have always come."""
    return ring(MEMBERS, ITERATIONS, late=lambda k, i: MS * (i == member))


def test_a_late_member_seems_to_need_what_had_come_meanwhile() -> None:
    assert own_needs(always_late(2))[2][0] > 0


def test_a_late_member_gets_the_need_of_its_peers() -> None:
    one = attributed(always_late(2))
    assert {tuple(need.tolist()) for need in one.needs.values()} == {tuple(RING_NEEDS)}


def test_so_a_late_member_is_late_from_what_its_peers_wait_for() -> None:
    replay: Replay = attributed(always_late(2)).replay
    (saved,) = replay.saved_ns(replay.hosts([2]))
    assert saved[1:-1] == pytest.approx(MS, rel=0.01)


def repeated(traffic: Traffic, link: int, per_iteration: int, iterations: list[int]) -> Traffic:
    """The same with messages of a link that came late, since they were repeated, in some iterations.

    Nobody who sees the packets knows that their first parts had come: what follows seems to come too soon.
    """
    t = traffic.transfers.copy()
    rows = np.flatnonzero(t["link"] == link)
    for k in iterations:
        mine = rows[k * per_iteration : (k + 1) * per_iteration]
        t["rx_end"][mine] += 30 * US
        t["flags"][mine] = MessageFlag.REPEATED
    return replace(traffic, transfers=t)


def learned_behind(iterations: list[int], flagged: bool = True) -> tuple[list[int], bool]:
    """What the receiver of repeated messages needs, and whether disturbed iterations had to tell it."""
    traffic = repeated(ring(MEMBERS, ITERATIONS), 0, len(RING_NEEDS), iterations)
    if not flagged:
        t = traffic.transfers.copy()
        t["flags"] = 0
        traffic = replace(traffic, transfers=t)
    one = attributed(traffic)
    (key,) = (k for k in one.learned.needs if one.program.lanes[k[0]].src == 1)
    return one.learned.needs[key].tolist(), key in one.learned.poor


def test_iterations_with_repeated_messages_are_left_out() -> None:
    assert learned_behind([4, 5, 9]) == (RING_NEEDS, False)


def test_without_the_sign_of_a_repetition_its_message_would_not_seem_to_be_needed() -> None:
    need, _ = learned_behind([4, 5, 9], flagged=False)
    assert need < RING_NEEDS


def test_needs_that_only_disturbed_iterations_tell_are_poor_and_replaced_by_the_peers() -> None:
    need, poor = learned_behind(list(range(ITERATIONS)))
    assert poor
    assert need < RING_NEEDS
    one = attributed(repeated(ring(MEMBERS, ITERATIONS), 0, len(RING_NEEDS), list(range(ITERATIONS))))
    assert {tuple(n.tolist()) for n in one.needs.values()} == {tuple(RING_NEEDS)}


def shared(
    needs: list[list[int]],
    *,
    each: int = 1,
    channels: list[int] | None = None,
    poor: frozenset[int] = frozenset(),
    groups: frozenset[int] = frozenset({0}),
) -> list[list[int]]:
    """The needs that members of one group share who learned these.

    A member has one lane, and needs of ``each`` sources of its own NIC, in the order of the needs.
    """
    actions, sources = [], []
    for number, need in enumerate(needs):
        member, rows = number // each, np.arange(len(need))
        lane = bare_lane(member, member, member + 1, rows, channels[number] if channels else 0)
        if number % each == 0:
            actions.append(Action(lane, member, rows))
        sources.append(Arrivals(member, 0, (number,), (number,), rows, rows, lane.base, lane.first))
    learned: Needs = {(n // each, n): np.array(need) for n, need in enumerate(needs)}
    places = Places((None,) * len(actions), (None,) * len(needs), {})
    found = share_needs(
        Learned(learned, frozenset((n // each, n) for n in poor)), actions, sources, Sharing(groups, places)
    )
    return [found[n // each, n].tolist() for n in range(len(needs))]


def test_nobody_needs_more_than_the_peer_that_needs_least() -> None:
    assert shared([[0, 1], [0, 2], [1, 4], [1, 3]]) == [[0, 1]] * 4


def test_the_least_may_be_of_one_peer_here_and_of_another_there() -> None:
    assert shared([[0, 4], [1, 2], [1, 3]]) == [[0, 2]] * 3


def test_channels_in_step_do_not_undercut_each_other() -> None:
    """Each seems to need one of another's messages more here and one less there."""
    wanted = np.arange(6)
    needs = np.stack([np.maximum(wanted - (wanted == number), 0) for number in range(6)])
    found = np.array(shared(needs.tolist(), each=2))
    assert (found == needs).all()
    assert (np.sort(found, axis=0)[1] == wanted).all()


def test_what_a_late_member_seems_to_need_of_several_channels_is_limited_by_the_middle_of_its_peers() -> None:
    usual, late = [0, 1, 2], [2, 2, 2]
    assert shared([usual, usual, usual, usual, late, late], each=2) == [usual] * 6


def test_channels_that_cut_their_messages_unlike_share_nothing() -> None:
    needs = [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert shared(needs, channels=[0, 1, 0, 1]) == needs
    assert shared(needs) == [[0, 1]] * 4


def test_a_poor_need_is_replaced_and_does_not_count_among_the_peers() -> None:
    assert shared([[0, 0], [0, 0], [1, 2], [1, 2]], poor=frozenset({0, 1})) == [[1, 2]] * 4


def test_where_all_needs_are_poor_they_limit_each_other_as_good_ones_would() -> None:
    assert shared([[0, 3], [1, 2], [1, 2]], poor=frozenset(range(3))) == [[0, 2]] * 3


def test_members_of_groups_that_are_not_symmetric_share_nothing() -> None:
    needs = [[0, 1], [3, 4], [5, 6]]
    assert shared(needs, groups=frozenset()) == needs


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=2, max_size=6))
def test_sharing_never_adds_a_need_and_is_settled_after_once(needs: list[list[int]]) -> None:
    once = shared(needs)
    assert (np.array(once) <= np.array(needs)).all()
    assert shared(once) == once


def test_channels_of_one_edge_are_lanes_of_their_own_with_needs_of_their_own() -> None:
    one = attributed(ring(MEMBERS, ITERATIONS, channels=2))
    program: Program = one.program
    assert [lane.links for lane in program.lanes] == [(n,) for n in range(2 * MEMBERS)]
    assert {lane.volume for lane in program.lanes} == {len(RING_NEEDS)}
    assert all(one.needs[index, number].tolist() == RING_NEEDS for index, number in one.needs)
    assert all(item.links == lane.links for item in program.arrivals for lane in program.lanes
               if set(item.links) & set(lane.links))  # fmt: skip


def taking_turns(job: Job, traffic: Traffic, run: int) -> Program:
    """The same job with two connections per edge, which take turns after so many messages."""
    t = traffic.transfers.copy()
    first = np.searchsorted(t["link"], t["link"])
    t["link"] = 2 * t["link"] + (np.arange(len(t)) - first) // run % 2
    order = np.argsort(t["link"], kind="stable")
    row_now = np.argsort(order)
    links = tuple(link for link in traffic.links for _ in range(2))
    (timeline,) = job.timelines
    operators = tuple(replace(o, rows=np.sort(row_now[o.rows])) for o in timeline.operators)
    numbers = tuple(range(len(links)))
    group = replace(timeline.group, links=numbers, strands=numbers)
    job = replace(job, timelines=(replace(timeline, group=group, operators=operators),))
    return lay_out(replace(traffic, transfers=t[order], links=links), job)


@pytest.mark.parametrize("run", [2, 4, 5])
def test_connections_that_take_turns_are_one_lane(run: int) -> None:
    """What each of them carries changes between iterations, although it may often be the same."""
    traffic = ring(MEMBERS, ITERATIONS)
    program = taking_turns(attributed(traffic).job, traffic, run)
    assert [lane.links for lane in program.lanes] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert {lane.volume for lane in program.lanes} == {len(RING_NEEDS)}
    for lane in program.lanes:
        assert lane.place.tolist() == RING_NEEDS * ITERATIONS


@pytest.mark.parametrize("run", [1, 3])
def test_connections_that_carry_the_same_in_every_iteration_are_lanes_of_their_own(run: int) -> None:
    traffic = ring(MEMBERS, ITERATIONS)
    program = taking_turns(attributed(traffic).job, traffic, run)
    assert [lane.links for lane in program.lanes] == [(n,) for n in range(2 * MEMBERS)]
    assert {lane.volume for lane in program.lanes} == {len(RING_NEEDS) // 2}


def test_needs_are_learned_of_the_own_machine_only() -> None:
    one = attributed(ring(MEMBERS, ITERATIONS))
    for index, number in one.learned.needs:
        assert one.program.arrivals[number].endpoint == one.program.lanes[index].src
    actions = [Action(one.program.lanes[0], 0, one.program.lanes[0].rows * 0 - 1)]
    assert (0, 0) not in learn_needs(actions, (), one.traffic).needs
