# SPDX-License-Identifier: Apache-2.0
"""Splits units that ran into each other, by counting messages.

A fault may leave no silence between iterations any more: the fast ranks begin the next one while the slow
edge still carries the last. Where every link moves the same number of messages in every unit, the numbers
go on telling where each link's unit ends, although no instant separates them for the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.groups import Group
from host_ctl.reconstruct.operators import Operator, operator_of, strand_counts
from host_ctl.reconstruct.rhythm import Rhythm
from host_ctl.reconstruct.transfers import Traffic, send_start

_AS_LONG = 0.5


def split_units(
    traffic: Traffic, group: Group, operators: Sequence[Operator], rhythm: Rhythm
) -> tuple[tuple[Operator, ...], Rhythm]:
    """The operators and the rhythm with every unit of several usual volumes split into as many.

    The parts of a split unit are operators of their own; their times may overlap.
    """
    bounds = [*rhythm.first.tolist(), len(operators)]
    rows_of_unit = [np.concatenate([o.rows for o in operators[a:b]]) for a, b in pairwise(bounds)]
    volume = _usual_volume(traffic, group, rows_of_unit)
    if volume is None:
        return tuple(operators), rhythm
    found: list[Operator] = []
    first: list[int] = []
    spans = np.diff(np.r_[rhythm.starts_ns, rhythm.ends_ns[-1]])
    for number, rows in enumerate(rows_of_unit):
        parts = _split(traffic, group, rows, volume)
        if spans[number] < _AS_LONG * len(parts) * np.median(spans):
            # A larger collective, at the start for example, not several iterations.
            parts = [rows]
        if len(parts) == 1:
            first.append(len(found))
            found.extend(operators[bounds[number] : bounds[number + 1]])
            continue
        whole = operators[bounds[number]]
        for part in parts:
            first.append(len(found))
            found.append(operator_of(traffic, whole.group, part, complete=whole.complete))
    starts = np.array([found[i].start_ns for i in first])
    ends = np.array([found[i - 1].end_ns for i in [*first[1:], len(found)]])
    return tuple(found), Rhythm(np.array(first), starts, ends)


def _usual_volume(
    traffic: Traffic, group: Group, rows_of_unit: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64] | None:
    """Messages per strand of the commonest unit; None when no two units are alike."""
    counts = np.stack([strand_counts(rows, traffic.transfers, group) for rows in rows_of_unit])
    kinds, times = np.unique(counts, axis=0, return_counts=True)
    usual = kinds[np.argmax(times)]
    return usual if times.max() >= 2 and usual.min() > 0 else None


def _split(
    traffic: Traffic, group: Group, rows: NDArray[np.int64], volume: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """One unit's rows in parts of the usual volume; what is left over is a part of its own."""
    strands = group.strand_of(traffic.transfers["link"][rows])
    times = np.bincount(strands, minlength=len(volume)) // volume
    if times.min() < 2:
        return [rows]
    part_of = np.empty(len(rows), dtype=np.int64)
    for strand in range(len(volume)):
        mine = np.flatnonzero(strands == strand)
        mine = mine[np.argsort(send_start(traffic.transfers[rows[mine]]), kind="stable")]
        part_of[mine] = np.arange(len(mine)) // volume[strand]
    return [rows[part_of == part] for part in range(int(part_of.max()) + 1)]
