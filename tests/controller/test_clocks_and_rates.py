# SPDX-License-Identifier: Apache-2.0
"""Estimates of peers' clocks, times of frames on the controller's clock, and rates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dpu_app.wire.frame import ClockInfo, Frame, NicIdentity
from dpu_app.wire.tables import Tables
from dpu_app.wire.transport import Pong
from host_ctl.history.records import UNKNOWN_NS
from host_ctl.ingest.admission import key_of
from host_ctl.ingest.limits import Allowance
from host_ctl.ingest.peer_clock import ClockReading, PeerClock

SECOND = 10**9
NOW = 1_700_000_000 * SECOND


def answered(clock: PeerClock, at_ns: int, offset_ns: int, there_ns: int, back_ns: int) -> int:
    """Have a ping answered by a peer whose clock is ahead by an offset; return when the answer came."""
    arrived_ns = at_ns + there_ns
    clock.take(Pong(1, at_ns, arrived_ns + offset_ns, arrived_ns + offset_ns), arrived_ns + back_ns)
    return arrived_ns + back_ns


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=30),
)
def test_the_true_offset_lies_within_the_uncertainty_and_the_quickest_answer_decides(
    offset_ns: int, ways: list[tuple[int, int]]
) -> None:
    clock, now_ns = PeerClock(), NOW
    for there_ns, back_ns in ways:
        now_ns = answered(clock, now_ns, offset_ns, there_ns, back_ns)
    found = clock.estimate(now_ns)
    assert found is not None
    assert abs(found.offset_ns - offset_ns) <= found.uncertainty_ns
    quickest_ns = min(there_ns + back_ns for there_ns, back_ns in ways)
    aged_ns = (now_ns - NOW) // 20_000 + 3
    assert found.uncertainty_ns <= quickest_ns // 2 + aged_ns


def test_a_clock_that_was_set_is_believed_anew() -> None:
    clock = PeerClock()
    answered(clock, NOW, 5 * SECOND, 1000, 1000)
    answered(clock, NOW + SECOND, -3 * SECOND, 100_000, 100_000)
    found = clock.estimate(NOW + SECOND)
    assert found is not None
    assert abs(found.offset_ns + 3 * SECOND) <= found.uncertainty_ns < SECOND


def test_an_answer_that_cannot_be_true_is_passed_over() -> None:
    clock = PeerClock()
    clock.take(Pong(1, NOW, NOW + 10, NOW + 5), NOW + 20)
    clock.take(Pong(1, NOW, NOW + 10, NOW + 10), NOW - 1)
    assert clock.estimate(NOW) is None


def test_an_old_reading_is_less_sure() -> None:
    reading = ClockReading(NOW, 0, 100)
    assert reading.uncertainty_at(NOW) == 100
    assert reading.uncertainty_at(NOW + SECOND) == 100 + 50_000


def made(source: str, pairs: tuple[tuple[int, int], ...] = ()) -> Frame:
    """A frame of a clock that counts from the start of the NIC."""
    return Frame(
        NicIdentity("node1", "mlx5_0"), "life", 0, 7 * SECOND, 8 * SECOND, Tables({}),
        clock=ClockInfo(source), clock_pairs=pairs,
    )  # fmt: skip


def test_times_are_brought_to_the_controllers_clock_by_pairs_and_offset() -> None:
    key = key_of(made("free", ((0, 0), (8 * SECOND, NOW))), NOW + 5, ClockReading(NOW, 2 * SECOND, 33))
    assert (key.begin_ns, key.end_ns) == (NOW - 3 * SECOND, NOW - 2 * SECOND)
    assert (key.clock_offset_ns, key.clock_uncertainty_ns, key.received_ns) == (2 * SECOND, 33, NOW + 5)


def test_a_clock_of_which_nothing_is_known_is_put_at_the_receipt() -> None:
    key = key_of(made("free"), NOW, None)
    assert (key.begin_ns, key.end_ns, key.clock_uncertainty_ns) == (NOW - SECOND, NOW, UNKNOWN_NS)
    assert key_of(made("system"), NOW, None).begin_ns == 7 * SECOND


def test_times_beyond_64_bits_are_kept_at_their_bounds() -> None:
    key = key_of(made("free", ((-(2**63), 2**63 - 1),)), NOW, None)
    assert key.begin_ns == key.end_ns == 2**63 - 1


@given(st.floats(1, 1000), st.floats(1000, 1e8), st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_over_time_no_more_passes_than_the_rate_and_two_seconds_of_it(
    frames_per_s: float, bytes_per_s: float, sizes: list[int]
) -> None:
    allowance, now_s, passed = Allowance(frames_per_s, bytes_per_s), 100.0, 0
    for number, size in enumerate(sizes):
        passed += size
        pause_s = allowance.pause_s(size, now_s)
        now_s += pause_s
        past_s = now_s - 100.0
        assert number + 1 <= (past_s + 2) * frames_per_s * (1 + 1e-9) + 1e-3
        assert passed <= (past_s + 2) * bytes_per_s * (1 + 1e-9) + 1e-3


def test_a_nic_within_its_rate_never_waits() -> None:
    allowance = Allowance(10.0, 1000.0)
    assert all(allowance.pause_s(90, second / 10) == 0 for second in range(100))
