# SPDX-License-Identifier: Apache-2.0
"""The scoring functions: cuts against cuts, states against states, cost against cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CutScore:
    """Cuts between operators that were found, against those that can be seen.

    ``visible`` silences lie between true operators; ``found`` of them have a cut, ``false`` cuts lie in none.
    ``end_error_ns`` and ``begin_error_ns`` of those found: by how much the end of the operator before and
    the begin of the one after are off.
    """

    visible: int
    found: int
    false: int
    end_error_ns: Times
    begin_error_ns: Times


def score_cuts(true_begin: Times, true_end: Times, begin: Times, end: Times) -> CutScore:
    """Compare operators in order of begin, true and found, by the silences between them."""
    true_end, end = np.maximum.accumulate(true_end), np.maximum.accumulate(end)
    seen = true_begin[1:] > true_end[:-1]
    quiet_from, quiet_to = true_end[:-1][seen], true_begin[1:][seen]
    cut_from, cut_to = end[:-1], begin[1:]
    clear = cut_to > cut_from
    cut_from, cut_to = cut_from[clear], cut_to[clear]
    # The silence that a cut shares the most with is the last that began before the cut's middle.
    middle = (cut_from + cut_to) // 2
    at = np.searchsorted(quiet_from, middle, side="right") - 1
    inside = (at >= 0) & (middle < quiet_to[np.maximum(at, 0)]) if len(quiet_to) else np.zeros(len(at), bool)
    which, first = np.unique(at[inside], return_index=True)
    hit_from, hit_to = cut_from[inside][first], cut_to[inside][first]
    return CutScore(
        int(seen.sum()),
        len(which),
        int((~inside).sum()),
        np.abs(hit_from - quiet_from[which]),
        np.abs(hit_to - quiet_to[which]),
    )


def nearest_errors(true: Times, found: Times) -> Times:
    """For every true time how far the nearest of those found is (ns)."""
    if not len(found):
        return np.full(len(true), np.iinfo(np.int64).max)
    found = np.sort(found)
    return np.asarray(np.abs(true - found[_nearest(true, found)]))


def length_errors(true: Times, found: Times) -> NDArray[np.float64]:
    """By which share the length of every true iteration is off, between the found times nearest to its ends.

    An iteration that begins elsewhere in its round, but always there, has the right length.
    """
    if len(true) < 2 or len(found) < 2:
        return np.ones(max(len(true) - 1, 0))
    found = np.sort(found)
    shift = np.median(true - found[_nearest(true, found)]).astype(np.int64)
    moved = found + shift
    lengths = np.diff(moved[_nearest(true, moved)])
    return np.asarray(np.abs(lengths - np.diff(true)) / np.diff(true))


def _nearest(times: Times, among: Times) -> Times:
    """The index of the nearest of some sorted times, for each time."""
    at = np.clip(np.searchsorted(among, times), 1, max(1, len(among) - 1))
    nearer = times - among[at - 1] <= among[np.minimum(at, len(among) - 1)] - times
    return np.where(nearer, at - 1, np.minimum(at, len(among) - 1))


def confusion(
    true: tuple[Times, Times, Times], found: tuple[Times, Times, Times], states: int
) -> NDArray[np.int64]:
    """Time in every pair of states (true, found), from stretches (start, end, state) that do not overlap.

    Where either says nothing, nothing is counted.
    """
    out = np.zeros((states, states), dtype=np.int64)
    points = np.unique(np.concatenate([true[0], true[1], found[0], found[1]]))
    if len(points) < 2:
        return out
    length = np.diff(points)
    row, column = _state_at(points[:-1], *true), _state_at(points[:-1], *found)
    both = (row >= 0) & (column >= 0)
    np.add.at(out, (row[both], column[both]), length[both])
    return out


def _state_at(points: Times, start: Times, end: Times, state: Times) -> Times:
    """The state right after every point, -1 where there is none."""
    if not len(start):
        return np.full(len(points), -1)
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], points, side="right") - 1
    inside = (at >= 0) & (points < end[order][np.maximum(at, 0)])
    return np.where(inside, state[order][np.maximum(at, 0)].astype(np.int64), -1)


def cost_error(slowdown: float, true_slowdown: float) -> float:
    """By which share of the true cost (what the job takes longer) a stated cost is off."""
    return abs(slowdown - true_slowdown) / max(true_slowdown - 1.0, 1e-9)


def share(part: float, whole: float) -> float | None:
    """Part of a whole; None of nothing."""
    return part / whole if whole else None
