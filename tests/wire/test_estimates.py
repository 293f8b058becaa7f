# SPDX-License-Identifier: Apache-2.0
"""What partial captures say of the whole: spread evenly, sums kept; unbiased, with errors that are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpu_app.wire import records
from dpu_app.wire.estimates import sampled_bytes, sampled_counts, steered_windows
from pulse_native import Meter

WINDOW_NS = 1_000


def messages(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """MESSAGE records of (flow, start, end, bytes), of two packets each."""
    table = np.zeros(len(rows), records.MESSAGE)
    for name, column in zip(("flow", "start_ns", "end_ns", "bytes"), zip(*rows, strict=True), strict=False):
        table[name] = column
    table["packets"] = 2
    return table


NO_CONTROLS = np.zeros(0, records.CONTROL)


def test_a_message_is_spread_evenly_between_its_start_and_end() -> None:
    windows = steered_windows(messages((3, 1_500, 3_500, 2_000)), NO_CONTROLS, WINDOW_NS)
    assert windows["start_ns"].tolist() == [1_000, 2_000, 3_000]
    assert windows["bytes"].tolist() == [500, 1_000, 500]
    assert windows["flow"].tolist() == [3, 3, 3]


def test_messages_and_controls_of_a_window_add_up() -> None:
    controls = np.zeros(1, records.CONTROL)
    controls["ns"], controls["bytes"] = 1_900, 64
    windows = steered_windows(messages((0, 1_000, 1_400, 100), (0, 1_500, 1_500, 7)), controls, WINDOW_NS)
    assert windows[["start_ns", "bytes", "packets"]].tolist() == [(1_000, 171, 5)]


def test_nothing_makes_no_windows() -> None:
    assert len(steered_windows(messages()[:0], NO_CONTROLS, WINDOW_NS)) == 0


def test_messages_that_cover_too_many_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1000 windows"):
        steered_windows(messages((0, 0, 2_000_000, 1)), NO_CONTROLS, WINDOW_NS, max_windows=1_000)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(-(10**6), 10**6), st.integers(0, 10**5), st.integers(0, 2**32 - 1)
        ),
        min_size=1,
        max_size=20,
    )
)
def test_spreading_keeps_the_sums_of_every_flow(rows: list[tuple[int, int, int, int]]) -> None:
    table = messages(*((flow, start, start + length, size) for flow, start, length, size in rows))
    windows = steered_windows(table, NO_CONTROLS, WINDOW_NS)
    for flow in range(4):
        sums = [int(one["bytes"][one["flow"] == flow].sum(dtype=np.uint64)) for one in (table, windows)]
        assert sums[0] == sums[1] or max(windows["bytes"].tolist()) == 2**32 - 1
    places = list(zip(windows["flow"].tolist(), windows["start_ns"].tolist(), strict=True))
    assert places == sorted(set(places))


@pytest.mark.parametrize("shift", range(1, 7))
def test_a_count_is_right_on_average_and_so_is_its_variance(shift: int) -> None:
    """Over all that can be drawn of 300 packets, each with its probability: nothing is left to chance."""
    packets, share = 300, 0.5**shift
    taken = np.arange(packets + 1)
    weight = np.array([math.comb(packets, n) * share**n * (1 - share) ** (packets - n) for n in taken])
    estimate = sampled_counts(taken, shift)
    assert (weight * estimate.value).sum() == pytest.approx(packets)
    variance = (weight * (estimate.value - packets) ** 2).sum()
    assert (weight * estimate.error**2).sum() == pytest.approx(variance)


def test_what_the_meter_counts_of_samples_is_unbiased_and_within_its_error_bars() -> None:
    """200 captures of the same packets with seeds that are fixed: what holds once holds always."""
    shift, packets, size = 3, 2_000, 1_024
    rows = np.zeros(packets, records.PACKET)
    rows["ns"], rows["psn"] = np.arange(packets) * 100, np.arange(packets)
    rows["opcode"], rows["payload_bytes"], rows["family"] = 0x07, size, 4
    counts, sums = [], []
    for seed in range(200):
        taken = rows[np.random.default_rng(seed).random(packets) < 0.5**shift]
        meter = Meter(sample_shift=shift)
        meter.update_records(taken)
        flow = meter.finish(0, packets * 100).flows[0]
        counts.append(int(flow["data_packets"]))
        sums.append(int(flow["data_bytes"]))
    for truth, estimate in (
        (packets, sampled_counts(np.array(counts), shift)),
        (packets * size, sampled_bytes(np.array(sums), size, shift)),
    ):
        standard_error = estimate.value.std() / math.sqrt(len(counts))
        assert abs(estimate.value.mean() - truth) < 3 * standard_error
        covered = (np.abs(estimate.value - truth) <= 2 * estimate.error).mean()
        assert 0.92 <= covered <= 0.99
