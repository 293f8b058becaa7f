# SPDX-License-Identifier: Apache-2.0
"""Suspects are those who lose enough to matter, and their worth is what a replay gains without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.suspects import Suspect, find_suspects, gains
from tests.host_ctl.made_jobs import MS, US, Attributed, attributed, grid, members_only, ring

ITERATIONS = 12
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
ALL = [(a, b) for a in range(4) for b in range(4) if a != b]
PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7), (1, 0)]
INSIDE = range(1, ITERATIONS - 1)
LEAST = 10 * US


def found(
    made: Replay, machines: Sequence[Sequence[int]] | None = None, fewest: int = 3
) -> list[tuple[str, tuple[int, ...]]]:
    """Feature and columns of all suspects; by default every NIC is a machine."""
    members = sorted({*made.src.tolist(), *made.dst.tolist()})
    machines = [[c] for c in range(len(members))] if machines is None else machines
    suspects = find_suspects(made, members_only(members, ITERATIONS), machines, LEAST, fewest)
    return [(s.feature, s.names) for s in suspects]


def lose(
    made: Replay, step: str, chosen: np.ndarray, iterations: ArrayLike = INSIDE, each: int = 2 * US
) -> None:
    """Let chosen messages lose so much in some iterations; ten of a lane's are 20 us by default."""
    made.excess[step][chosen & np.isin(made.iteration, iterations)] = each


def test_where_nobody_loses_anything_nobody_is_suspected() -> None:
    assert found(grid(RING, ITERATIONS)) == []


def test_a_late_host_is_suspected_and_nobody_else() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "host", made.src == 2)
    assert found(made) == [("host", (2,))]


def test_a_host_that_grants_late_is_suspected_and_not_who_waits_for_it() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "credit", made.dst == 2)
    assert found(made) == [("host", (2,))]


def test_late_sends_and_late_grants_of_one_host_count_together() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "host", made.src == 2, each=600)
    assert found(made) == []
    lose(made, "credit", made.dst == 2, each=600)
    assert found(made) == [("host", (2,))]


def test_the_nics_of_a_machine_are_one_host() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "host", made.src == 1, each=600)
    lose(made, "host", made.src == 3, each=600)
    assert found(made) == []
    assert found(made, [[0], [1, 3], [2]]) == [("host", (1, 3))]


def test_what_is_lost_in_few_iterations_makes_no_suspect() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "host", made.src == 2, [4, 7])
    assert found(made) == []
    assert found(made, fewest=2) == [("host", (2,))]


def test_the_first_and_the_last_iteration_make_no_suspect() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "host", made.src == 2, [0, 4, ITERATIONS - 1])
    assert found(made, fewest=2) == []


def test_slow_messages_suspect_who_sends_and_who_gets_them() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "transfer", (made.src == 1) & (made.dst == 2))
    assert found(made) == [("egress", (1,)), ("ingress", (2,))]


def test_a_nic_that_is_slow_both_ways_is_suspected_as_a_port() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "transfer", (made.src == 1) | (made.dst == 1))
    assert set(found(made)) == {
        ("ingress", (1,)),
        ("egress", (1,)),
        ("port", (1,)),
        ("egress", (0,)),
        ("ingress", (2,)),
    }


def test_a_late_host_whose_messages_are_slow_to_come_is_suspected_as_a_receiver() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "transfer", made.dst == 1)
    lose(made, "host", made.src == 1)
    assert ("receiver", (1,)) in found(made)
    lose(made, "transfer", made.dst == 1, each=0)
    assert found(made) == [("host", (1,))]


def suspects_of(made: Replay, nodes: int = 4) -> dict[tuple[str, tuple[int, ...]], Suspect]:
    """The suspects by feature and columns, every NIC a machine."""
    machines = [[n] for n in range(nodes)]
    every = find_suspects(made, members_only(range(nodes), ITERATIONS), machines, LEAST)
    return {(s.feature, s.names): s for s in every}


def test_a_suspect_is_cut_in_all_that_it_is_suspected_for_and_in_nothing_else() -> None:
    made = grid(RING, ITERATIONS)
    lose(made, "transfer", (made.src == 1) | (made.dst == 1))
    lose(made, "host", made.src == 1)
    lose(made, "credit", made.dst == 1)
    by = suspects_of(made)
    sent, got = made.src == 1, made.dst == 1
    inside = np.isin(made.iteration, INSIDE)
    for feature, hosts, grants, moved in (
        ("host", sent, got, sent & ~sent),
        ("egress", sent & ~sent, sent & ~sent, sent),
        ("ingress", sent & ~sent, sent & ~sent, got),
        ("port", sent & ~sent, sent & ~sent, sent | got),
        ("receiver", sent, got, got),
    ):
        cuts = by[feature, (1,)].cuts
        for name, meant in (("host", hosts), ("credit", grants), ("transfer", moved)):
            assert ((cuts[name] > 0) == (meant & inside)).all(), (feature, name)


def test_edges_without_a_common_nic_that_are_slow_at_once_are_a_path() -> None:
    made = grid(PAIRS, ITERATIONS)
    lose(made, "transfer", np.isin(made.src, (0, 2)))
    by = suspects_of(made, 8)
    (path,) = (s for (feature, _), s in by.items() if feature == "path")
    assert path.edges == ((0, 1), (2, 3))
    assert (path.cuts["transfer"] > 0).tolist() == (made.excess["transfer"] > 0).tolist()


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param([(0, 1)], id="one edge"),
        pytest.param([(0, 1), (0, 2)], id="one sender"),
        pytest.param([(0, 1), (2, 1), (3, 1)], id="one receiver"),
        pytest.param([(0, 1), (1, 0)], id="both ways between two"),
        pytest.param(ALL[:8], id="most of all"),
    ],
)
def test_slow_edges_that_meet_in_a_nic_or_are_most_of_all_are_no_path(slow: list[tuple[int, int]]) -> None:
    made = grid(ALL, ITERATIONS)
    for src, dst in slow:
        lose(made, "transfer", (made.src == src) & (made.dst == dst))
    assert "path" not in {feature for feature, _ in found(made)}


def test_an_edge_that_is_much_less_slow_is_no_part_of_the_path() -> None:
    made = grid(PAIRS, ITERATIONS)
    lose(made, "transfer", np.isin(made.src, (0, 2)), each=9 * US)
    lose(made, "transfer", made.src == 4, each=2 * US)
    (path,) = (s for (feature, _), s in suspects_of(made, 8).items() if feature == "path")
    assert path.edges == ((0, 1), (2, 3))


def late_ring(late: dict[int, int], slow: dict[int, int] | None = None) -> Attributed:
    """A ring of four in which members are late, and their messages slow, from the fifth iteration on."""
    slow = slow or {}
    return attributed(
        ring(
            4,
            ITERATIONS,
            late=lambda k, i: late.get(i, 0) * (k >= 4),
            slow=lambda k, i: slow.get(i, 0) * (k >= 4),
        )
    )


def worth(one: Attributed, suspects: Sequence[Suspect], *without: Suspect) -> list[float]:
    """What an iteration gains without each of the suspects, when others are gone already (median, ns)."""
    gained = gains(one.replay, suspects, [s.cuts for s in without])
    return [float(x) for x in np.median(gained[4:-1], axis=0)]


def hosts_of(one: Attributed) -> list[Suspect]:
    """The late hosts of a ring."""
    return [
        s for s in find_suspects(one.replay, one.job, [[n] for n in range(4)], LEAST) if s.feature == "host"
    ]


def test_the_later_of_two_late_hosts_is_worth_the_difference_and_the_other_nothing() -> None:
    one = late_ring({1: 2 * MS, 3: 3 * MS})
    first, second = hosts_of(one)
    assert (first.names, second.names) == ((1,), (3,))
    assert worth(one, [first, second]) == pytest.approx([0, MS], abs=20 * US)


def test_a_hidden_fault_shows_once_the_one_that_hides_it_is_gone() -> None:
    one = late_ring({1: 2 * MS, 3: 3 * MS})
    first, second = hosts_of(one)
    assert worth(one, [first, second], second) == pytest.approx([2 * MS, 0], abs=20 * US)


def test_a_late_host_and_slow_messages_are_each_worth_their_own() -> None:
    one = late_ring({1: 2 * MS}, {3: 60 * US})
    every = find_suspects(one.replay, one.job, [[n] for n in range(4)], LEAST)
    by = {(s.feature, s.names): s for s in every}
    host, egress = by["host", (1,)], by["egress", (3,)]
    assert worth(one, [host], egress)[0] == pytest.approx(2 * MS, rel=0.05)
    both = one.replay.saved_ns(host.cuts, egress.cuts)[0]
    assert worth(one, [host])[0] + worth(one, [egress], host)[0] == pytest.approx(
        np.median(both[4:-1]), rel=0.02
    )


def test_without_suspects_there_is_nothing_to_gain() -> None:
    assert gains(grid(RING, ITERATIONS), [], []).shape == (ITERATIONS, 0)


def test_a_suspect_without_cuts_gains_nothing() -> None:
    made = grid(RING, ITERATIONS)
    assert not gains(made, [Suspect("host", (0,), made.nothing())], []).any()


def test_rails_on_clocks_of_their_own_count_only_where_a_suspect_has_a_part_and_by_their_mean() -> None:
    made = grid([(0, 1), (1, 0), (2, 3), (3, 2)], ITERATIONS)
    made = replace(made, clock=(made.src >= 2).astype(np.int64))
    last = made.place == made.place.max()
    lose(made, "transfer", last & (made.src < 2), each=4 * US)
    lose(made, "transfer", last & (made.src >= 2), each=2 * US)
    one, other = made.transfers(made.src < 2), made.transfers(made.src >= 2)
    both = made.transfers(last)
    suspects = [Suspect("egress", (n,), cuts) for n, cuts in enumerate((one, other, both))]
    saved = made.saved_ns(both)
    gained = gains(made, suspects, [])
    assert (gained[:, 0] == saved[0]).all()
    assert (gained[:, 1] == saved[1]).all()
    assert (gained[:, 2] == saved.mean(axis=0)).all()
    assert saved.any(axis=1).all()


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_in_any_job_a_suspect_loses_enough_and_who_does_is_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = grid(RING, ITERATIONS)
    made.excess["host"] = rng.integers(0, 2 * US, len(made.src)) * (rng.random(len(made.src)) < 0.5)
    lost = np.zeros((ITERATIONS, 4))
    np.add.at(lost, (made.iteration, made.src), made.excess["host"])
    enough = np.flatnonzero((lost[1:-1] >= LEAST).sum(axis=0) >= 3)
    assert [names for _, names in found(made)] == [(n,) for n in enough.tolist()]
