# SPDX-License-Identifier: Apache-2.0
"""Which address is a capture's own, when nothing says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_ctl.ingest.local import address_text, learn_local, packed_address
from tests.host_ctl.made import Clocks, address, both_ways, captured, flow, series

SPAN_NS = 2_000_000_000


def clocks(offsets: Sequence[int], drifts: Sequence[float]) -> Clocks:
    return Clocks(np.array(offsets), np.array(drifts, dtype=np.float64))


@given(st.ip_addresses())
def test_an_address_packed_and_shown_is_itself(given_address) -> None:
    mapped = getattr(given_address, "ipv4_mapped", None)
    assert ip_address(address_text(packed_address(str(given_address)))) == (mapped or given_address)


def test_the_address_in_every_packet_is_the_captures_own() -> None:
    seen = captured(clocks([0] * 4, [0] * 4), both_ways(4, 3000), seed=1, span_ns=SPAN_NS, own_address=False)
    learned, remarks = learn_local(seen)
    assert [one.addresses for one in learned] == [(address(n),) for n in range(4)]
    assert remarks == []


def test_a_few_foreign_packets_do_not_confuse() -> None:
    flows = [flow(0, 0, 1, 7, packets=5000), flow(1, 2, 0, 8, packets=5000), flow(2, 4, 5, 9, packets=3)]
    learned, _ = learn_local([series(0, flows, addresses=())])
    assert learned[0].addresses == (address(0),)


def test_a_capture_of_two_nics_owns_both() -> None:
    flows = [
        flow(0, 0, 2, 7, packets=5000),
        flow(1, 3, 0, 8, packets=5000),
        flow(2, 1, 4, 9, packets=5000),
        flow(3, 5, 1, 9, packets=5000),
    ]
    learned, _ = learn_local([series(0, flows, addresses=())])
    assert learned[0].addresses == (address(0), address(1))


@settings(max_examples=40)
@given(
    offset=st.integers(-3_000_000_000, 3_000_000_000),
    drift=st.floats(-50, 50),
    seed=st.integers(0, 2**31),
    swapped=st.booleans(),
)
def test_two_machines_are_told_apart_by_the_way_that_packets_take(
    offset: int, drift: float, seed: int, swapped: bool
) -> None:
    seen = captured(
        clocks([0, offset], [0, drift]), both_ways(2, 5000), seed=seed, span_ns=SPAN_NS, own_address=False
    )
    learned, remarks = learn_local(seen[::-1] if swapped else seen)
    found = {one.machine: one.addresses for one in learned}
    assert found == {"node0": (address(0),), "node1": (address(1),)}
    assert remarks == []


def test_what_is_known_of_one_decides_the_other() -> None:
    flows = [flow(0, 0, 1, 7, packets=50), flow(1, 1, 0, 8, packets=50)]
    learned, remarks = learn_local([series(0, flows), series(1, flows, addresses=())])
    assert [one.addresses for one in learned] == [(address(0),), (address(1),)]
    assert remarks == []


@pytest.mark.parametrize("own", [0, 1])
def test_one_capture_of_two_machines_is_told_by_the_time_to_the_acknowledgement(own: int) -> None:
    """Data to the own NIC is acknowledged at once, data from it after a round trip."""
    flows = [flow(0, 0, 1, 7, packets=50), flow(1, 1, 0, 8, packets=50)]
    near, far = (1, 0) if own == 0 else (0, 1)
    cells = [(near, 20, 10), (near, 21, 5), (far, 40, 3), (far, 41, 12), (near, 60, 2)]
    learned, remarks = learn_local([series(own, flows, addresses=(), ack_cells=cells)])
    assert learned[0].addresses == (address(own),)
    assert remarks == []


@pytest.mark.parametrize("cells", [[], [(0, 20, 10), (1, 20, 10)], [(0, 20, 10)]])
def test_what_cannot_be_told_is_said_with_the_remedy(cells: list[tuple[int, int, int]]) -> None:
    flows = [flow(0, 0, 1, 7, packets=50), flow(1, 1, 0, 8, packets=50)]
    learned, remarks = learn_local([series(0, flows, addresses=(), ack_cells=cells)])
    assert learned[0].addresses == ()
    assert len(remarks) == 1
    assert "node0" in remarks[0]
    assert "pulse.toml" in remarks[0]


def test_a_second_view_of_a_nic_is_left_out() -> None:
    flows = [flow(0, 0, 1, 7, packets=50), flow(1, 2, 0, 8, packets=50)]
    copy = replace(series(0, flows), machine="copy")
    learned, remarks = learn_local([series(0, flows), copy])
    assert [one.machine for one in learned] == ["node0"]
    assert len(remarks) == 1
    assert "copy" in remarks[0]
    assert "node0" in remarks[0]


def test_an_address_that_is_surely_anothers_is_taken_from_a_guess_of_several() -> None:
    several = series(0, [flow(0, 0, 1, 7, packets=9)], addresses=(address(0), address(1)))
    learned, remarks = learn_local([several, series(1, [flow(0, 0, 1, 7, packets=9)])])
    assert [one.addresses for one in learned] == [(address(0),), (address(1),)]
    assert remarks == []
