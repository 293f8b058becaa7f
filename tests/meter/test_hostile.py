# SPDX-License-Identifier: Apache-2.0
"""Traffic made to fill tables, and clocks that jump: memory stays bounded, and training flows stay."""

from __future__ import annotations

import numpy as np
import pytest

from dpu_app.wire import records
from pulse_native import Meter, decode_series

MIB = 1 << 20


def training(count: int, at_ns: int, psn: int) -> np.ndarray:
    """A packet of each of `count` flows that live long."""
    packets = np.zeros(count, records.PACKET)
    packets["src"][:, 10:12] = packets["dst"][:, 10:12] = 255
    packets["src"][:, 12], packets["dst"][:, 12] = 10, 11
    packets["family"], packets["opcode"], packets["payload_bytes"] = 4, 0x07, 4096
    packets["ns"], packets["psn"], packets["dest_qpn"] = at_ns, psn, np.arange(count)
    return packets


def scan(count: int, at_ns: int, seed: int) -> np.ndarray:
    """One packet of each of `count` flows that nobody has seen before."""
    rng = np.random.default_rng(seed)
    packets = training(count, at_ns, 0)
    packets["src"][:, 12:16] = rng.integers(0, 256, (count, 4))
    packets["dest_qpn"] = rng.integers(0, 1 << 24, count)
    packets["opcode"] = 0x0A
    return packets


def test_a_million_new_flows_stay_in_memory_and_leave_training_flows_alone() -> None:
    meter = Meter(max_flows=4096)
    lives = 500
    for number in range(250):
        meter.update_records(training(lives, number * 1_000_000, number))
        if number < 4:
            continue  # a flow of one packet is no better than a scan
        meter.update_records(scan(4000, number * 1_000_000 + 500, number))
        assert meter.memory_bytes < 44 * MIB  # 32 of records, 5 of windows, 4096 flows, and those evicted
    interval = meter.cut(0, 250_000_000)
    kept = interval.flows[interval.flows["packets"] == 250]
    assert len(kept) == lives
    assert meter.flow_count <= 4096
    assert interval.counters["flows_evicted"] > 900_000
    lost = interval.counters["packets_lost"]
    assert interval.flows["packets"].sum() + lost == 250 * lives + 246 * 4000
    assert interval.counters["records_lost"] > 0


@pytest.mark.parametrize("jump", [-(10**15), 10**15, -(2**62), 2**62])
def test_a_clock_that_jumps_loses_no_packet_and_stops_nothing(jump: int) -> None:
    meter = Meter()
    meter.update_records(training(10, 1000, 0))
    meter.update_records(training(10, 1000 + jump, 1))
    meter.update_records(training(10, 2000, 2))
    interval = meter.finish(0, 10**9)
    assert interval.flows["packets"].sum() == 30
    assert decode_series(interval.series, 8_000)["packets"].sum() == 30
    assert interval.bursts["packets"].sum() == 30
