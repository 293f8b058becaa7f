# SPDX-License-Identifier: Apache-2.0
"""What the network part of a collective library counts: requests handed to the NIC and their completions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sim.output.records import NEVER, OperationTimes, Records
from sim.planning.plan import Table
from sim.planning.world import World


@dataclass(frozen=True, slots=True)
class Sent:
    """What one operation of one rank sends to one peer (a rank).

    ``bytes`` were asked for. Each slot that was posted is a request; it completes when the peer's NIC has
    acknowledged all of it. ``busy_ns`` is the time during which any completed request was under way.
    """

    peer: int
    bytes: int
    requests: int
    completions: int
    completed_bytes: int
    busy_ns: int


def work_requests(world: World, records: Records) -> dict[int, dict[int, list[Sent]]]:
    """By sending rank, then by the time at which it entered the operation."""
    parts = _slots_of_operations(world, records)
    found: dict[int, dict[int, list[Sent]]] = {}
    for rank, steps in records.steps.items():
        found[rank] = {
            operation.enter_ns: [
                _sent(peer, expected, parts.get((rank, operation.enter_ns, peer), []))
                for peer, expected in sorted(operation.expected.items())
            ]
            for step in steps
            for operation in step.operations
        }
    return found


def _slots_of_operations(world: World, records: Records) -> dict[tuple[int, int, int], list[Table]]:
    """Slots by sending rank, entry of the operation, and receiving rank; one table per lane."""
    entered = _entries(records)
    slots = records.slots
    parts: dict[tuple[int, int, int], list[Table]] = {}
    changes = (np.diff(slots["lane"]) != 0) | (np.diff(slots["tag"].astype(np.int64)) != 0)
    starts = np.flatnonzero(np.r_[len(slots) > 0, changes]).tolist()
    for first, end in pairwise([*starts, len(slots)]):
        part = slots[first:end]
        lane = world.lanes[int(part["lane"][0])]
        entries = entered.get((lane.sender, int(part["tag"][0])))
        if entries is None:
            continue
        # Point-to-point operations share a tag; a slot belongs to the one that was entered last.
        place = np.searchsorted(entries, part["staged_ns"], side="right") - 1
        for one in np.unique(place[place >= 0]).tolist():
            key = lane.sender, int(entries[one]), lane.receiver
            parts.setdefault(key, []).append(part[place == one])
    return parts


def _entries(records: Records) -> dict[tuple[int, int], np.ndarray]:
    """When each rank entered its operations, by rank and tag, ascending."""
    found: dict[tuple[int, int], list[int]] = {}
    for rank, steps in records.steps.items():
        operations: list[OperationTimes] = [o for step in steps for o in step.operations]
        for operation in operations:
            found.setdefault((rank, operation.tag), []).append(operation.enter_ns)
    return {key: np.array(sorted(times), dtype=np.int64) for key, times in found.items()}


def _sent(peer: int, expected: int, lanes: list[Table]) -> Sent:
    if not lanes:
        return Sent(peer, expected, 0, 0, 0, 0)
    slots = np.concatenate(lanes)
    done = slots[(slots["posted_ns"] != NEVER) & (slots["acknowledged_ns"] != NEVER)]
    return Sent(
        peer,
        expected,
        int(np.count_nonzero(slots["posted_ns"] != NEVER)),
        len(done),
        int(done["bytes"].sum()),
        _covered_ns(done["posted_ns"], done["acknowledged_ns"]),
    )


def _covered_ns(begin: np.ndarray, end: np.ndarray) -> int:
    """Length of the union of intervals."""
    if not len(begin):
        return 0
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(begin[1:] - end[:-1], 0)
    return int(end[-1] - begin[0] - gaps.sum())
