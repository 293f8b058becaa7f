# SPDX-License-Identifier: Apache-2.0
"""The way of every slot, for judging who waited for whom: one row per slot and per credit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.world import World

SLOT = np.dtype(
    [
        ("lane", "<u4"),
        ("size", "<u4"),
        ("staged_ns", "<i8"),
        ("posted_ns", "<i8"),
        ("delivered_ns", "<i8"),
        ("consumed_ns", "<i8"),
        ("acknowledged_ns", "<i8"),
    ]
)
CREDIT = np.dtype([("lane", "<u4"), ("arrived_ns", "<i8")])
LANE = np.dtype([("sender", "<u4"), ("receiver", "<u4"), ("channel", "<u4"), ("kind", "U12")])
_TIMES = ("staged_ns", "posted_ns", "delivered_ns", "consumed_ns", "acknowledged_ns")


def write_slots(world: World, epoch_ns: int, path: Path) -> None:
    """Write ``lanes``, ``slots`` and ``credits`` as NumPy arrays; epoch ns of true time, -1 = never.

    ``sender`` and ``receiver`` index the ranks machine-major (machine x NICs + rail). A slot is staged
    when the sender's GPU has filled it, posted when its credit was there and the host handed it to the
    NIC, delivered when its last packet came, consumed when the receiver's GPU has read it.
    """
    lanes = np.array([(x.sender, x.receiver, x.channel, x.kind) for x in world.lanes], dtype=LANE)
    rows = [
        (number, r.size, r.staged_ns, r.posted_ns, r.delivered_ns, r.consumed_ns, r.acknowledged_ns)
        for number, lane in enumerate(world.lanes)
        for r in lane.records
    ]
    slots = np.array(rows, dtype=SLOT)
    for name in _TIMES:
        slots[name] = np.where(slots[name] < 0, -1, slots[name] + epoch_ns)
    arrivals = [
        (number, t + epoch_ns) for number, lane in enumerate(world.lanes) for t in lane.credit_times_ns
    ]
    np.savez(path, lanes=lanes, slots=slots, credits=np.array(arrivals, dtype=CREDIT))
