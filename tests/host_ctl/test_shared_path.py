# SPDX-License-Identifier: Apache-2.0
"""Which edges are slow together tells whether flows collide or a switch is slow."""

from __future__ import annotations

from host_ctl.diagnose.shared_path import slow_both_ways


def test_flows_that_share_an_uplink_meet_at_no_nic() -> None:
    assert slow_both_ways([(0, 1), (4, 5)]) == ()


def test_all_ways_through_a_slow_switch_are_slow_for_every_nic_at_it() -> None:
    assert slow_both_ways([(0, 2), (2, 4), (3, 6), (6, 1)]) == (2, 6)


def test_one_nic_that_is_slow_both_ways_is_no_switch() -> None:
    assert slow_both_ways([(0, 2), (2, 4)]) == ()


def test_an_edge_that_ends_at_none_of_them_is_not_explained_by_their_switch() -> None:
    assert slow_both_ways([(0, 2), (2, 4), (3, 6), (6, 1), (5, 7)]) == ()
