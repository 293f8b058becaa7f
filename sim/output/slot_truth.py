# SPDX-License-Identifier: Apache-2.0
"""The way of every slot, for judging who waited for whom: one row per slot and per credit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.output.records import NEVER, Records
from sim.planning.plan import Table
from sim.planning.world import World

LANE = np.dtype(
    [
        ("sender", "<u4"),
        ("receiver", "<u4"),
        ("channel", "<u4"),
        ("sender_nic", "<u4"),
        ("receiver_nic", "<u4"),
        ("kind", "U12"),
    ]
)


def write_slots(world: World, records: Records, epoch_ns: int, path: Path) -> None:
    """Write ``lanes``, ``slots`` and ``credits`` as NumPy arrays; epoch ns of true time, -1 = never.

    ``sender`` and ``receiver`` of a lane are ranks (machine x GPUs + GPU). A slot is staged when the
    sender's GPU has filled it, posted when its credit was there and the host handed it to the NIC,
    delivered when its last packet came, consumed when the receiver's GPU has read it.
    """
    rows = [
        (x.sender, x.receiver, x.channel, world.ranks[x.sender].nic, world.ranks[x.receiver].nic, x.kind)
        for x in world.lanes
    ]
    np.savez(
        path,
        lanes=np.array(rows, dtype=LANE),
        slots=_at_epoch(records.slots, epoch_ns),
        credits=_at_epoch(records.credits, epoch_ns),
    )


def _at_epoch(table: Table, epoch_ns: int) -> Table:
    shifted = table.copy()
    for name in table.dtype.names or ():
        if name.endswith("_ns"):
            shifted[name] = np.where(table[name] < 0, NEVER, table[name] + epoch_ns)
    return shifted
