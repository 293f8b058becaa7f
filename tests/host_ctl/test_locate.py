# SPDX-License-Identifier: Apache-2.0
"""Where packets are lost: planted losses are given to the right access link or pair."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_ctl.diagnose.locate import Pair, locate_losses

NICS = range(5)
ALL = list(permutations(NICS, 2))
RING = [(i, (i + 1) % 5) for i in NICS] + [((i + 1) % 5, i) for i in NICS]


def lose(
    pairs: list[Pair], affected: set[Pair], rate: float, seed: int
) -> tuple[dict[Pair, int], dict[Pair, int]]:
    """Packets sent and lost per pair."""
    rng = np.random.default_rng(seed)
    sent = {pair: int(rng.integers(5_000, 20_000)) for pair in pairs}
    lost = {pair: int(rng.binomial(sent[pair], rate if pair in affected else 1e-6)) for pair in pairs}
    return sent, lost


@pytest.mark.parametrize("side", ["sends", "receives", "both"])
@pytest.mark.parametrize("pairs", [ALL, RING], ids=["all-to-all", "ring"])
@pytest.mark.parametrize("nic", NICS)
def test_losses_of_one_access_link_are_given_to_its_nic(side: str, pairs: list[Pair], nic: int) -> None:
    affected = {p for p in pairs if (nic == p[0] and side != "receives") or (nic == p[1] and side != "sends")}
    for seed in range(10):
        where = locate_losses(*lose(pairs, affected, 0.004, seed), {})
        assert where.nic[0] == nic
        assert where.nic[1] >= 0.8


@pytest.mark.parametrize("pair", [(0, 1), (3, 2), (4, 0)])
def test_losses_of_one_pair_among_many_are_given_to_the_pair_and_no_nic_is_sure(pair: Pair) -> None:
    for seed in range(10):
        where = locate_losses(*lose(ALL, {pair}, 0.01, seed), {})
        assert where.pairs[0][0] == pair
        assert where.nic[1] < 0.8


def test_losses_before_a_tap_are_that_nics_own() -> None:
    sent, lost = dict.fromkeys(ALL, 10_000), {(2, 3): 20}
    where = locate_losses(sent, lost, {2: 20})
    assert where.nic[0] == 2
    assert where.nic[1] > 0.99


def test_what_passes_clears_a_nic_when_nothing_passes_a_dead_link() -> None:
    sent, lost = {(0, 1): 1, (0, 2): 1, (1, 2): 0, (2, 0): 0}, {(0, 1): 1}
    assert locate_losses(sent, lost, {}).nic[1] < 0.8
    where = locate_losses(sent, lost, {}, dead=True)
    assert where.nic[0] == 1
    assert where.nic[1] >= 0.8


def test_a_single_pair_of_nics_leaves_both_ends() -> None:
    where = locate_losses({(0, 1): 10_000, (1, 0): 10_000}, {(0, 1): 50}, {})
    (_, first), (_, second) = where.nics
    assert first == pytest.approx(second)


@given(
    lost=st.dictionaries(st.sampled_from(ALL), st.integers(0, 500), min_size=1),
    order=st.permutations(list(NICS)),
    before=st.dictionaries(st.sampled_from(list(NICS)), st.integers(0, 50)),
)
def test_probabilities_sum_to_one_and_follow_the_names(
    lost: dict[Pair, int], order: list[int], before: dict[int, int]
) -> None:
    sent = {pair: 1000 + 7 * i for i, pair in enumerate(ALL)}
    where = locate_losses(sent, lost, before)
    total = sum(p for _, p in where.nics) + sum(p for _, p in where.pairs)
    assert total == pytest.approx(1.0)

    def named(pairs: dict[Pair, int]) -> dict[Pair, int]:
        return {(order[a], order[b]): count for (a, b), count in pairs.items()}

    other = locate_losses(named(sent), named(lost), {order[n]: c for n, c in before.items()})
    again = dict(other.nics)
    for nic, probability in where.nics:
        assert again[order[nic]] == pytest.approx(probability, abs=1e-9)
