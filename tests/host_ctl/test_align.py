# SPDX-License-Identifier: Apache-2.0
"""Clocks from packets that two NICs saw: the residual is small, and the stated bounds hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from host_ctl.align.solve import align
from tests.host_ctl.made import Clocks, both_ways, captured, series


def clocks_of(offsets_ns: Sequence[int], drifts_ppm: Sequence[float]) -> Clocks:
    return Clocks(np.array(offsets_ns), np.array(drifts_ppm, dtype=np.float64))


offsets = st.integers(-50_000_000, 50_000_000)
drifts = st.floats(-50, 50)
seeds = st.integers(0, 2**31)


def wrong_clocks(n: int) -> st.SearchStrategy[Clocks]:
    """Clocks of n NICs, each off and drifting in its own way."""
    return st.builds(
        clocks_of, st.lists(offsets, min_size=n, max_size=n), st.lists(drifts, min_size=n, max_size=n)
    )


@settings(max_examples=25)
@given(st.data())
def test_equal_directions_leave_less_than_a_microsecond(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 5))
    clocks = clocks_of(
        data.draw(st.lists(offsets, min_size=n, max_size=n)),
        data.draw(st.lists(drifts, min_size=n, max_size=n)),
    )
    span = data.draw(st.sampled_from([1_000_000_000, 20_000_000_000]))
    alignment = align(captured(clocks, both_ways(n, 4000), seed=data.draw(seeds), span_ns=span))
    for nic in range(1, n):
        assert alignment.clocks[nic].basis == "measured"
        assert clocks.error_ns(alignment, nic, span) <= 1000


@settings(max_examples=25)
@given(st.data())
def test_unequal_directions_stay_inside_the_bound_and_mild_ones_inside_the_uncertainty(
    data: st.DataObject,
) -> None:
    n = data.draw(st.integers(2, 4))
    clocks = clocks_of(
        data.draw(st.lists(offsets, min_size=n, max_size=n)),
        data.draw(st.lists(drifts, min_size=n, max_size=n)),
    )
    base = data.draw(st.integers(1000, 20_000))
    # The assumed asymmetry is 20 % of the smallest round trip, at least 300 ns.
    most = max(300, int(0.2 * 2 * base)) // 2
    wild = data.draw(st.booleans())
    edges = {
        pair: base
        + data.draw(st.integers(-base + 200, 5 * base) if wild else st.integers(-most // 2, most // 2))
        for pair in both_ways(n, 0)
    }
    span = 2_000_000_000
    alignment = align(captured(clocks, edges, seed=data.draw(seeds), span_ns=span))
    # What queueing hides of the least delay, at the ends of the capture more than inside.
    slack = 500
    for nic in range(1, n):
        clock = alignment.clocks[nic]
        assert clock.bound_ns is not None
        assert clock.uncertainty_ns is not None
        error = clocks.error_ns(alignment, nic, span)
        assert error <= clock.bound_ns + slack
        if not wild:
            assert error <= clock.uncertainty_ns + slack


def test_a_ring_of_data_one_way_suffices() -> None:
    clocks = clocks_of([0, 31_000_000, -9_000_000], [0, 20, -35])
    ring = {(0, 1): 5000, (1, 2): 5000, (2, 0): 5000}
    alignment = align(captured(clocks, ring, seed=4, span_ns=3_000_000_000))
    assert {c.component for c in alignment.clocks} == {alignment.clocks[0].component}
    for nic in (1, 2):
        bound = alignment.clocks[nic].bound_ns
        assert bound is not None
        assert clocks.error_ns(alignment, nic, 3_000_000_000) <= 1000
        assert bound >= 5000


def test_one_way_without_a_way_back_ties_nothing() -> None:
    clocks = clocks_of([0, 1_000_000, 2_000_000], [0, 0, 0])
    alignment = align(captured(clocks, {(0, 1): 5000, (1, 2): 5000}, seed=4, span_ns=10**9))
    assert [c.basis for c in alignment.clocks] == ["none"] * 3
    assert len({c.component for c in alignment.clocks}) == 3


def test_nics_that_never_meet_have_clocks_of_their_own() -> None:
    clocks = clocks_of([0, 40_000_000, 7_000_000, -3_000_000, 5], [0, 10, 0, -10, 0])
    edges = {(0, 1): 4000, (1, 0): 4000, (2, 3): 4000, (3, 2): 4000}
    alignment = align(captured(clocks, edges, seed=1, span_ns=2_000_000_000))
    components = [c.component for c in alignment.clocks]
    assert components[0] == components[1]
    assert components[2] == components[3]
    assert len(set(components)) == 3
    lonely = alignment.clocks[4]
    assert (lonely.basis, lonely.uncertainty_ns, lonely.bound_ns) == ("none", None, None)


def test_a_capture_that_shares_no_packet_is_told() -> None:
    clocks = clocks_of([0, 0, 0], [0, 0, 0])
    seen = captured(clocks, {(0, 1): 4000, (1, 0): 4000, (2, 2): 4000}, seed=1, span_ns=10**9)
    warnings = align(seen).warnings
    assert len(warnings) == 1
    assert "node2" in warnings[0]


@pytest.mark.parametrize("offset_s", [4000, -86_400 * 365])
def test_clocks_may_be_hours_or_years_apart(offset_s: int) -> None:
    clocks = clocks_of([0, offset_s * 10**9], [0, 45])
    alignment = align(captured(clocks, both_ways(2, 4000), seed=9, span_ns=5_000_000_000))
    assert clocks.error_ns(alignment, 1, 5_000_000_000) <= 1000


def test_the_assumed_asymmetry_is_what_the_uncertainty_rests_on() -> None:
    clocks = clocks_of([0, 5_000_000], [0, 0])
    seen = captured(clocks, both_ways(2, 4000), seed=2, span_ns=10**9)
    by_default, told = align(seen).clocks[1], align(seen, asymmetry_ns=6000).clocks[1]
    assert by_default.uncertainty_ns == pytest.approx(0.2 * 8000 / 2, rel=0.1)
    assert told.uncertainty_ns == pytest.approx(3000, rel=0.01)
    assert told.bound_ns == by_default.bound_ns


def test_the_bound_holds_in_short_captures_of_drifting_clocks() -> None:
    clocks = clocks_of([0, 5_000_000], [-50, 50])
    span = 300_000_000
    alignment = align(captured(clocks, both_ways(2, 3000), seed=3, span_ns=span))
    assert clocks.error_ns(alignment, 1, span) <= (alignment.clocks[1].bound_ns or 0) + 500


def test_a_psn_that_came_round_again_does_not_mislead() -> None:
    clocks = clocks_of([0, 12_345_678], [0, 0])
    seen = captured(clocks, both_ways(2, 4000), seed=6, span_ns=4_000_000_000)
    # The same numbers a second time: a key seen twice at one end says nothing.
    twice = [series(i, list(s.flows[:, None]), [s.markers, again(s.markers)]) for i, s in enumerate(seen)]
    once = align(seen).clocks[1]
    assert align(seen).clocks[1].offset_ns == pytest.approx(12_345_678, abs=1000)
    assert once.basis == "measured"
    assert align(twice).clocks[1].basis == "none"


def again(markers: NDArray[np.void]) -> NDArray[np.void]:
    """The same keys half a minute later."""
    later = markers.copy()
    later["ns"] += 30_000_000_000
    return later
