# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that take turns are one sequence, channels are several; rings that differ are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from host_ctl.reconstruct.rings import separate_rings
from host_ctl.reconstruct.strands import find_strands, share_credits
from host_ctl.reconstruct.transfers import CREDIT, MISSING, Traffic
from tests.host_ctl.made import groups_of, jobs_of, traffic

STEP_NS = 10_000


def spread(made: Traffic, queue_pairs: int, of_message: np.ndarray) -> Traffic:
    """The traffic with every edge's messages spread over queue pairs, the k-th over ``of_message[k]``."""
    transfers = made.transfers.copy()
    links = []
    for number, link in enumerate(made.links):
        rows = np.flatnonzero(made.transfers["link"] == number)
        rows = rows[np.argsort(transfers["tx_start"][rows])]
        transfers["link"][rows] = number * queue_pairs + of_message[: len(rows)]
        links.extend(replace(link, dest_qpn=100 * number + n) for n in range(queue_pairs))
    return replace(
        made, transfers=transfers[np.argsort(transfers["link"], kind="stable")], links=tuple(links)
    )


def ring(members: int, operators: int, messages: int, pause_ns: int = 500_000) -> Traffic:
    """A ring: ``operators`` times ``messages`` on every edge."""
    sends = {}
    for node in range(members):
        times = []
        for operator in range(operators):
            begin = operator * (messages * STEP_NS + pause_ns) + 137 * node
            times += [(begin + k * STEP_NS, begin + k * STEP_NS + 7_000) for k in range(messages)]
        sends[node, (node + 1) % members] = times
    return traffic(members, sends)


@pytest.mark.parametrize("queue_pairs", [2, 3, 4])
def test_queue_pairs_that_take_turns_are_one_strand(queue_pairs: int) -> None:
    made = ring(4, 12, 7)
    turns = np.arange(12 * 7) % queue_pairs
    strands = find_strands(spread(made, queue_pairs, turns))
    assert sorted(map(len, strands)) == [queue_pairs] * 4


def test_channels_that_run_ahead_of_each_other_are_strands_of_their_own() -> None:
    made = ring(4, 12, 8)
    ahead = np.tile([0, 0, 0, 1, 1, 0, 1, 1], 12)
    assert sorted(map(len, find_strands(spread(made, 2, ahead)))) == [1] * 8


def mixed(operators: int, messages: int, queue_pairs: int = 2) -> np.ndarray:
    """Turns of queue pairs whose messages leave in another order within each operator."""
    rng = np.random.default_rng(5)
    turns = (np.arange(operators * messages) % queue_pairs).reshape(operators, messages)
    return np.concatenate([rng.permutation(row) for row in turns])


@pytest.mark.parametrize("queue_pairs", [2, 3])
def test_queue_pairs_that_share_a_port_take_turns_if_that_shows_in_every_pause(queue_pairs: int) -> None:
    strands = find_strands(spread(ring(4, 20, 7), queue_pairs, mixed(20, 7, queue_pairs)))
    assert sorted(map(len, strands)) == [queue_pairs] * 4


def test_channels_that_carry_the_same_in_every_operator_stay_apart() -> None:
    assert sorted(map(len, find_strands(spread(ring(4, 20, 8), 2, mixed(20, 8))))) == [1] * 8


def test_one_edge_on_which_messages_were_lost_is_no_other_than_the_rest() -> None:
    made = spread(ring(4, 20, 8), 2, mixed(20, 8))
    lossy = np.flatnonzero(np.isin(made.transfers["link"], (0, 1)))
    late = np.sort(lossy)[3::8]  # counted one operator later, now and then
    transfers = made.transfers.copy()
    transfers["link"][late] ^= 1
    order = np.argsort(transfers["link"], kind="stable")
    assert sorted(map(len, find_strands(replace(made, transfers=transfers[order])))) == [1] * 8


def test_operators_are_cut_alike_however_their_messages_are_spread() -> None:
    made = ring(4, 12, 7)
    (whole,), _ = jobs_of(made)
    (parted,), aside = jobs_of(spread(made, 4, np.arange(12 * 7) % 4))
    assert not aside
    (one,), (other,) = whole.timelines, parted.timelines
    assert other.regular
    assert [o.messages for o in other.operators] == [o.messages for o in one.operators]
    assert whole.iterations == parted.iterations


def test_credits_granted_in_turns_of_their_own_are_matched_to_the_messages_of_the_strand() -> None:
    made = spread(ring(3, 10, 5), 2, np.arange(50) % 2)
    start = made.transfers["tx_start"]
    granted = np.zeros(len(start), CREDIT)
    granted["tx"], granted["rx"] = start - 2_000, start - 1_000
    granted["link"] = made.transfers["link"] ^ 1  # the other queue pair of the same edge
    order = np.lexsort((granted["tx"], granted["link"]))
    matched = share_credits(replace(made, credits=granted[order]), find_strands(made))
    assert np.array_equal(start - matched.transfers["credit_rx"], np.full(len(start), 1_000))
    assert all(link.unused_credits == 0 for link in matched.links)
    assert (made.transfers["credit_rx"] == MISSING).all()


def forwarding_rings(orders: list[list[int]], late: int) -> tuple[list[tuple[int, int]], list, list]:
    """Strands of rings with one message per step, in which one member is late in every third operator."""
    rng = np.random.default_rng(late)
    edges, sent, got = [], [], []
    for order in orders:
        members = len(order)
        for place, src in enumerate(order):
            edges.append((src, order[(place + 1) % members]))
            times = []
            for operator in range(20):
                begin = operator * 1_000_000
                held = 300_000 if operator % 3 == 0 else 0
                # Whoever is k hops behind the late member has sent its first k messages before it waits.
                hops = (place - order.index(late)) % members
                for step in range(members - 1):
                    at = begin + step * STEP_NS + (held if step >= hops else 0)
                    times.append(at + int(rng.integers(0, 500)))
            sent.append(np.array(times))
            got.append(np.array(times) + 4_000)
    return edges, sent, got


@pytest.mark.parametrize("late", [0, 3, 5])
def test_rings_in_different_orders_are_taken_apart_by_who_forwards_what(late: int) -> None:
    orders = [[0, 1, 2, 3, 4, 5], [0, 2, 4, 1, 5, 3]]
    edges, sent, got = forwarding_rings(orders, late)
    found = separate_rings(edges, sent, got)
    assert found is not None
    assert sorted(sorted(ring) for ring in found) == [list(range(6)), list(range(6, 12))]


def test_a_tree_is_no_rings() -> None:
    edges = [(0, 1), (1, 0), (0, 2), (2, 0)]
    times = [np.arange(10) * 1000 for _ in edges]
    assert separate_rings(edges, times, times) is None


def test_a_barrier_is_no_part_of_the_ring_whose_steps_it_closes() -> None:
    made = ring(4, 12, 8)
    sends = {}
    for node in range(4):
        for distance in (1, 2):
            pair = (node, (node + distance) % 4)
            begins = [o * (8 * STEP_NS + 500_000) + 8 * STEP_NS + 40_000 * distance for o in range(12)]
            sends[pair] = [(b, b + 3_000) for b in begins]
    barrier = traffic(4, sends)
    barrier.transfers["bytes"] = 8
    barrier.transfers["link"] += len(made.links)
    barrier.transfers["edge"] = [
        {**{e: i for i, e in enumerate(made.edges)}, (0, 2): 4, (1, 3): 5, (2, 0): 6, (3, 1): 7}[
            barrier.edges[e]
        ]
        for e in barrier.transfers["edge"]
    ]
    links = [
        *made.links,
        *(
            replace(link, dest_qpn=link.dest_qpn + 500, edge=int(barrier.transfers["edge"][12 * number]))
            for number, link in enumerate(barrier.links)
        ),
    ]
    both = replace(
        made,
        links=tuple(links),
        edges=(*made.edges, (0, 2), (1, 3), (2, 0), (3, 1)),
        transfers=np.concatenate([made.transfers, barrier.transfers]),
    )
    assert sorted((g.algorithm, len(g.links)) for g in groups_of(both)) == [("ring", 4), ("unknown", 8)]
