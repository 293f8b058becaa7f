# SPDX-License-Identifier: Apache-2.0
"""The C++ meter and the naive one in Python see the same in any traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from numpy.typing import NDArray

from dpu_app.wire import records
from dpu_app.wire.pieces import spread_pieces
from pulse_native import Meter, decode_series, histogram_cell
from tests.meter.reference import Flow, ReferenceMeter
from tests.meter.traffic import traffic

WINDOW_NS = 8_000
BURST_GAP_NS = 50_000
COUNTS = (
    "packets", "wire_bytes", "data_packets", "data_bytes", "repeat_packets", "repeat_bytes", "gap_psns",
    "late_packets", "messages", "controls", "read_requests", "acks", "duplicate_acks", "nak_sequence",
    "nak_other", "rnr", "cnp", "ecn_ce",
)  # fmt: skip


def reference_of(packets: NDArray[np.void]) -> ReferenceMeter:
    meter = ReferenceMeter(WINDOW_NS)
    for record in packets:
        row = {name: record[name].item() for name in records.PACKET.names or () if name not in ("src", "dst")}
        meter.take(row | {"src": record["src"].tobytes(), "dst": record["dst"].tobytes()})
    meter.finish()
    return meter


def rows(table: NDArray[np.void]) -> list[tuple[Any, ...]]:
    return sorted(table.tolist())


def bursts_of(number: int, flow: Flow, packets: NDArray[np.void]) -> list[tuple[int, ...]]:
    result: list[list[int]] = []
    for ns in flow.data_ns:
        if not result or ns - result[-1][1] > BURST_GAP_NS:
            result.append([ns, ns, number, 0, 0])
        burst = result[-1]
        burst[4] = max(burst[4], ns - burst[1])
        burst[1], burst[3] = ns, burst[3] + 1
    return [tuple(burst) for burst in result]


@settings(max_examples=300)
@given(traffic())
def test_the_meter_agrees_with_the_naive_one(packets: NDArray[np.void]) -> None:
    meter = Meter(window_ns=WINDOW_NS, burst_gap_ns=BURST_GAP_NS)
    meter.update_records(packets)
    begin, end = int(packets["ns"][0]), int(packets["ns"][-1]) + 1
    interval = meter.finish(begin, end)
    reference = reference_of(packets)
    flows = list(reference.flows.values())

    assert interval.flows["flow"].tolist() == [flow.number for flow in flows]
    for record, flow in zip(interval.flows, flows, strict=True):
        assert {name: record[name] for name in COUNTS} == {name: flow.counts[name] for name in COUNTS}
        assert record["lives"] == flow.lives
        assert record["seen"] == (flow.requests.next is not None) + 2 * (flow.acked is not None)
        if flow.requests.next is not None:
            assert record["psn_first"] == flow.requests.first % (1 << 24)
            assert record["psn_next"] == flow.requests.next % (1 << 24)
        if flow.acked is not None:
            assert record["psn_acked"] == flow.acked
    assert rows(interval.messages) == sorted(reference.messages)
    assert rows(interval.controls) == sorted(reference.controls)
    assert rows(interval.markers) == sorted(reference.markers)
    assert spread_pieces(decode_series(interval.series, WINDOW_NS), WINDOW_NS).tolist() == [
        (index * WINDOW_NS, flow.number, flow.windows[index], flow.window_packets[index], 0)
        for flow in flows
        for index in sorted(flow.windows)
    ]
    assert rows(interval.bursts[["first_ns", "last_ns", "flow", "packets", "longest_gap_ns"]]) == sorted(
        burst for flow in flows for burst in bursts_of(flow.number, flow, packets)
    )
    gaps = interval.histograms[interval.histograms["kind"] == records.HistogramKind.GAP_NS]
    expected: dict[tuple[int, int], int] = {}
    for flow in flows:
        for gap in np.diff(flow.data_ns).tolist():
            cell = (flow.number, histogram_cell(gap))
            expected[cell] = expected.get(cell, 0) + 1
    assert {(cell["flow"], cell["cell"]): cell["count"] for cell in gaps} == expected
