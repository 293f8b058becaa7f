# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds per packet, beside the floor of what any meter must do with it.

The floor reads one byte of each header and reads, changes and writes one cache line of the packet's flow,
with the flow's number known and each block's lines fetched ahead. Floor and meter take turns on the same
packets; headers lie in memory as a capture ring would have them, more than the caches hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from bench.measure.rows import Row
from pulse_native._bench import measure_path

GOAL_NS = 15.0
GOAL_RATIO = 2.5
GOAL_NS_FLOWS = 2000
FLOWS = (16, 256, 2000, 16_384)
RING_PACKETS = 1 << 18  # 32 MiB of headers
CACHED_PACKETS = 1 << 13  # 1 MiB


def path_rows(*, quick: bool) -> Iterator[Row]:
    """Yield a row per number of flows, order, MTU and capture mode, and a few with headers in the cache."""
    flows = (16, 2000) if quick else FLOWS
    for steered, mtu, count, train in product((False, True), (4096, 1024), flows, (1, 32)):
        if quick and (steered or mtu == 1024) and count != GOAL_NS_FLOWS:
            continue
        yield _row(count, mtu, train, steered=steered, ring=True, quick=quick)
    for count, train in product((16, 2000), (1, 32)):
        yield _row(count, 4096, train, steered=False, ring=False, quick=quick)


def _row(flows: int, mtu: int, train: int, *, steered: bool, ring: bool, quick: bool) -> Row:
    traffic: dict[str, Any] = {"flows": flows, "mtu": mtu, "train_packets": train, "steered": steered}
    packets = RING_PACKETS if ring else CACHED_PACKETS
    repetitions = (5 if quick else 11) * (1 if ring else 16)
    figures = measure_path(traffic, 8_000, packets, repetitions)
    ratio = figures["meter_ns"] / figures["floor_ns"]
    judged = ring
    met = ratio <= GOAL_RATIO and (flows != GOAL_NS_FLOWS or figures["meter_ns"] <= GOAL_NS)
    order = "random" if train == 1 else f"trains of {train}"
    place = "" if ring else ", headers cached"
    goal = f"<= {GOAL_NS:.0f} ns, " if flows == GOAL_NS_FLOWS else ""
    return Row(
        part="packet path, nanoseconds per packet of parse and update",
        case=f"{flows} flows, {order}, MTU {mtu}, {'steered' if steered else 'all'}{place}",
        goal=f"{goal}<= {GOAL_RATIO} x floor" if judged else "",
        measured=figures["meter_ns"],
        unit="ns",
        reference=f"floor {figures['floor_ns']:.1f} ns, ratio {ratio:.2f} ({figures['median_ratio']:.2f})",
        met=met if judged else None,
        details=traffic | figures | {"ratio": ratio, "batch_packets": packets},
    )
