# SPDX-License-Identifier: Apache-2.0
"""Wait states by NIC: their sums over a time, and what a NIC's sends were in at every instant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.states import WaitState
from host_ctl.ingest.series import Table
from host_ctl.present.attribution import Attribution

NOTHING = -1
"""No operator under way: the time between operators."""


@dataclass(frozen=True, slots=True)
class StateTable:
    """``ns[row, state]``: how long the sends of every endpoint were in which state, all edges together."""

    endpoints: tuple[int, ...]
    ns: NDArray[np.int64]


def state_sums(
    found: Attribution, stretches: tuple[Table, ...], endpoints: list[int], begin_ns: int, end_ns: int
) -> StateTable:
    """States of the sends of some endpoints between two times."""
    ns = np.zeros((len(endpoints), len(WaitState)), dtype=np.int64)
    for row, endpoint in enumerate(endpoints):
        for lane in found.program.lanes_of.get(endpoint, ()):
            part = stretches[lane]
            length = np.minimum(part["end"], end_ns) - np.maximum(part["start"], begin_ns)
            np.add.at(ns[row], part["state"][length > 0], length[length > 0])
    return StateTable(tuple(endpoints), ns)


def states_over_time(
    found: Attribution, stretches: tuple[Table, ...], endpoint: int, begin_ns: int, end_ns: int, columns: int
) -> list[tuple[int, int, int]]:
    """Runs (first column, last column + 1, state) of what most of a NIC's sends were in, NOTHING left out.

    A column in which no send has an operator under way, or all are done with theirs, belongs to no run.
    """
    share = np.zeros((len(WaitState), columns))
    width = max(1.0, (end_ns - begin_ns) / columns)
    for lane in found.program.lanes_of.get(endpoint, ()):
        part = stretches[lane]
        part = part[
            (part["end"] > begin_ns) & (part["start"] < end_ns) & (part["state"] != WaitState.COMPLETE)
        ]
        for state in np.unique(part["state"]):
            mine = part[part["state"] == state]
            share[state] += _coverage(
                (mine["start"] - begin_ns) / width, (mine["end"] - begin_ns) / width, columns
            )
    busiest = np.where(share.max(axis=0) > 0, share.argmax(axis=0), NOTHING)
    edges = np.flatnonzero(np.r_[True, busiest[1:] != busiest[:-1], True])
    runs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [(a, b, int(busiest[a])) for a, b in runs if busiest[a] != NOTHING]


def _coverage(start: NDArray[np.float64], end: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """How much of every column some stretches cover, by differences of their cumulated lengths."""
    at = np.arange(columns + 1, dtype=np.float64)
    start, end = np.sort(np.clip(start, 0, columns)), np.sort(np.clip(end, 0, columns))

    def passed(points: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.r_[0.0, np.cumsum(points)]
        before = np.searchsorted(points, at, side="right")
        return np.asarray(at * before - sums[before])

    return np.asarray(np.diff(passed(start) - passed(end)))
