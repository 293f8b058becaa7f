# SPDX-License-Identifier: Apache-2.0
"""Keeps the quickest of every stretch of time: what waited least says most about two clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.align.markers import Matched, Times
from host_ctl.align.resets import Reset, without_resets

FEWEST_WINDOWS = 64
MOST_WINDOWS = 512
_WINDOW_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Transits:
    """The quickest events of a pair of NICs: stamps with resets taken out, and how many came before each.

    ``before_steps`` and ``after_steps`` tell of how many of the NIC's resets each stamp comes after, as one
    column per reset. ``spread_ns`` is by how much the usual event of a stretch is slower than its quickest.
    """

    before: int
    after: int
    acknowledged: bool
    before_ns: Times
    after_ns: Times
    before_steps: NDArray[np.bool_]
    after_steps: NDArray[np.bool_]
    spread_ns: float

    @property
    def transit_ns(self) -> Times:
        """The later stamp minus the earlier one, each on its own clock."""
        return np.asarray(self.after_ns - self.before_ns)


def windows_for(span_ns: int) -> int:
    """Into how many stretches a run is divided: enough to follow a drift that wanders."""
    return int(np.clip(span_ns // _WINDOW_NS, FEWEST_WINDOWS, MOST_WINDOWS))


def quickest(pair: Matched, resets: Sequence[Reset]) -> Transits | None:
    """The least transit of each stretch, with the drift between both clocks taken out; None without any."""
    mine = [r for r in resets if r.nic == pair.before]
    other = [r for r in resets if r.nic == pair.after]
    raw_before, raw_after = pair.before_ns, pair.after_ns
    before, after = without_resets(raw_before, mine), without_resets(raw_after, other)
    if mine or other:
        kept = np.ones(len(pair), np.bool_)
        for stamps, some in ((raw_before, mine), (raw_after, other)):
            for reset in some:
                kept &= ~reset.is_unclear(stamps)
        order = np.flatnonzero(kept)[np.argsort(before[kept], kind="stable")]
        raw_before, raw_after, before, after = (
            raw_before[order],
            raw_after[order],
            before[order],
            after[order],
        )
    if not len(before):
        return None
    transit = after - before
    since = before - before[0]
    count = windows_for(int(since[-1]))
    window = since * count // (int(since[-1]) + 1)
    starts = np.flatnonzero(np.r_[True, np.diff(window) != 0])
    least = np.minimum.reduceat(transit, starts)
    slope = 0.0
    if len(starts) > 2:
        slope = float(np.median(np.diff(least) / np.maximum(np.diff(window[starts]), 1))) * count
        slope /= int(since[-1]) + 1
    flat = (transit - transit[0]) - np.rint(slope * since).astype(np.int64)
    least = np.minimum.reduceat(flat, starts)
    lengths = np.diff(np.r_[starts, len(flat)])
    hits = np.flatnonzero(flat == np.repeat(least, lengths))
    chosen = hits[np.flatnonzero(np.r_[True, np.diff(window[hits]) != 0])]
    spread = float(np.median(np.add.reduceat(flat, starts) / lengths - least))
    return Transits(
        pair.before,
        pair.after,
        pair.acknowledged,
        before[chosen],
        after[chosen],
        _sides(raw_before[chosen], mine),
        _sides(raw_after[chosen], other),
        spread,
    )


def _sides(raw: Times, resets: Sequence[Reset]) -> NDArray[np.bool_]:
    columns = [reset.is_after(raw) for reset in resets]
    return np.stack(columns, axis=1) if columns else np.empty((len(raw), 0), np.bool_)
