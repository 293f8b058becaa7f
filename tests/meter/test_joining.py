# SPDX-License-Identifier: Apache-2.0
"""Cutting and batching change nothing: intervals join to what one interval would have held."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpu_app.wire import records
from pulse_native import Interval, Meter, decode_series
from tests.meter.traffic import traffic

WINDOW_NS = 4_000
BURST_GAP_NS = 50_000
ADDING = ("packets", "wire_bytes", "data_packets", "data_bytes", "repeat_packets", "repeat_bytes", "gap_psns",
          "late_packets", "messages", "controls", "read_requests", "acks", "duplicate_acks", "nak_sequence",
          "nak_other", "rnr", "cnp", "ecn_ce")  # fmt: skip
LASTING = (
    "src",
    "dst",
    "dest_qpn",
    "lives",
    "psn_first",
    "psn_next",
    "psn_acked",
    "family",
    "transport",
    "seen",
)


def meter() -> Meter:
    return Meter(window_ns=WINDOW_NS, burst_gap_ns=BURST_GAP_NS, idle_ns=2**62)


def whole(packets: NDArray[np.void]) -> list[Interval]:
    one = meter()
    one.update_records(packets)
    return [one.finish(int(packets["ns"][0]), int(packets["ns"][-1]) + 1)]


def in_pieces(packets: NDArray[np.void], cuts: list[int]) -> list[Interval]:
    """Cut before the packets of these indices."""
    many, intervals = meter(), []
    edges = [0, *sorted(cut % len(packets) for cut in cuts), len(packets)]
    times = [int(packets["ns"][min(edge, len(packets) - 1)]) for edge in edges]
    for i in range(len(edges) - 1):
        many.update_records(packets[edges[i] : edges[i + 1]])
        end = many.finish if i == len(edges) - 2 else many.cut
        intervals.append(end(times[i], times[i + 1] + (i == len(edges) - 2)))
    return intervals


def joined(intervals: list[Interval]) -> dict[str, Any]:
    flows: dict[int, dict[str, Any]] = {}
    windows: Counter[tuple[int, int, str]] = Counter()
    cells: Counter[tuple[int, int, int]] = Counter()
    events: Counter[tuple[int, int]] = Counter()
    tables: dict[str, list[Any]] = {"messages": [], "controls": [], "markers": [], "bursts": []}
    for interval in intervals:
        for record in interval.flows:
            flow = flows.setdefault(
                int(record["flow"]), dict.fromkeys(ADDING, 0) | {"first_ns": record["first_ns"]}
            )
            for name in ADDING:
                flow[name] += record[name].item()
            flow |= {name: record[name].tolist() for name in LASTING} | {"last_ns": record["last_ns"]}
        for row in decode_series(interval.series, interval.window_ns):
            windows[row["flow"], row["start_ns"], "bytes"] += row["bytes"]
            windows[row["flow"], row["start_ns"], "packets"] += row["packets"]
        for cell in interval.histograms:
            if cell["kind"] != records.HistogramKind.ACK_NS:
                cells[cell["flow"], cell["kind"], cell["cell"]] += cell["count"]
        for event in interval.events:
            events[event["flow"], event["kind"]] += event["count"]
        for name, rows in tables.items():
            rows += getattr(interval, name).tolist()
    bursts = join_bursts(tables.pop("bursts"))
    return {"flows": flows, "windows": windows, "cells": cells, "events": events, "bursts": bursts} | {
        name: sorted(rows) for name, rows in tables.items()
    }


def join_bursts(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """A burst that was cut goes on when the silence in between is no longer than the burst gap."""
    result: dict[int, list[list[int]]] = {}
    for first, last, size, flow, packets, gap in sorted(rows):
        bursts = result.setdefault(flow, [])
        if bursts and first - bursts[-1][1] <= BURST_GAP_NS:
            burst = bursts[-1]
            burst[5] = max(burst[5], gap, first - burst[1])
            burst[1], burst[2], burst[4] = last, burst[2] + size, burst[4] + packets
        else:
            bursts.append([first, last, size, flow, packets, gap])
    return sorted(tuple(burst) for bursts in result.values() for burst in bursts)


@given(traffic(), st.lists(st.integers(0, 10**6), max_size=6))
def test_intervals_of_any_cuts_join_to_the_whole(packets: NDArray[np.void], cuts: list[int]) -> None:
    assert joined(in_pieces(packets, cuts)) == joined(whole(packets))


@given(traffic(), st.lists(st.integers(0, 10**6), max_size=6))
def test_the_size_of_batches_changes_nothing(packets: NDArray[np.void], cuts: list[int]) -> None:
    piecewise = meter()
    edges = [0, *sorted(cut % len(packets) for cut in cuts), len(packets)]
    for i in range(len(edges) - 1):
        piecewise.update_records(packets[edges[i] : edges[i + 1]])
    one, other = whole(packets)[0], piecewise.finish(int(packets["ns"][0]), int(packets["ns"][-1]) + 1)
    for name in ("flows", "messages", "controls", "bursts", "markers", "events", "histograms"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert one.series == other.series
    assert one.counters == other.counters


@given(traffic(), traffic())
def test_histograms_of_two_meters_merge_by_addition(a: NDArray[np.void], b: NDArray[np.void]) -> None:
    def cells(*captures: NDArray[np.void]) -> Counter[tuple[int, int]]:
        result: Counter[tuple[int, int]] = Counter()
        for packets in captures:
            for cell in whole(packets)[0].histograms:
                if cell["kind"] == records.HistogramKind.MESSAGE_BYTES:
                    result[cell["kind"], cell["cell"]] += cell["count"]
        return result

    # As many flows again, on queue pairs of their own, in one meter.
    moved = b.copy()
    moved["dest_qpn"] += 1000
    both = np.concatenate([a, moved])
    assert cells(both[np.argsort(both["ns"], kind="stable")]) == cells(a, b)
