# SPDX-License-Identifier: Apache-2.0
"""Compares ways to cut a group's traffic into operators: by silence, by volume, and by balance.

Every way is given its best chance: the silence rule each of several thresholds, the volume rule the true
size of an operator. The table counts the operators that each finds, beside the number that there were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from host_ctl.pipeline import analyze_paths
from host_ctl.reconstruct.jobs import GroupTimeline
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start

SILENCES_MS = (5.0, 20.0, 50.0, 100.0, 200.0)


def silence_cuts(start: NDArray[np.int64], end: NDArray[np.int64], longer_than_ns: float) -> int:
    """Operators that a silence threshold alone finds."""
    busy_until = np.maximum.accumulate(end)
    return 1 + int((start[1:] - busy_until[:-1] > longer_than_ns).sum())


def volume_cuts(
    sizes: NDArray[np.uint64], operator_bytes: int, start: NDArray[np.int64], end: NDArray[np.int64]
) -> int:
    """Operators that volume finds: closed at the first silence once the bytes have been moved."""
    busy_until = np.maximum.accumulate(end)
    quiet = np.r_[start[1:] > busy_until[:-1], True]
    found, moved = 0, 0
    for size, silent in zip(sizes.tolist(), quiet.tolist(), strict=True):
        moved += size
        if silent and moved >= operator_bytes:
            found, moved = found + 1, 0
    return found + (moved > 0)


def compare(traffic: Traffic, timeline: GroupTimeline) -> dict[str, int]:
    """The number of operators that each rule finds in one group."""
    rows = np.concatenate([o.rows for o in timeline.operators])
    t = traffic.transfers[rows]
    order = np.argsort(send_start(t), kind="stable")
    start, end, sizes = send_start(t)[order], arrival(t)[order], t["bytes"][order]
    values, counts = np.unique([o.bytes for o in timeline.operators], return_counts=True)
    found = {f"silence > {ms:g} ms": silence_cuts(start, end, ms * 1e6) for ms in SILENCES_MS}
    found["volume"] = volume_cuts(sizes, int(values[np.argmax(counts)]), start, end)
    found["balance"] = len(timeline.operators)
    return found


def report_segmentation(folders: Sequence[Path], *, as_json: bool) -> int:
    """Print the table for folders of captures; 0 = done."""
    table = []
    for folder in folders:
        analysis = analyze_paths(sorted(folder.glob("*.pcap*")))
        for one in analysis.jobs:
            for timeline in one.job.timelines:
                row: dict[str, object] = {"capture": folder.name, "group": timeline.group.id}
                row |= {"algorithm": timeline.group.algorithm, **compare(analysis.traffic, timeline)}
                table.append(row)
    if as_json:
        print(json.dumps(table, indent=1))
        return 0
    for number, row in enumerate(table):
        if not number:
            print(" | ".join(row))
        print(" | ".join(str(v) for v in row.values()))
    return 0
