# SPDX-License-Identifier: Apache-2.0
"""Finds clocks that were set, by what all pairs of a NIC see of it.

When a clock jumps, everything that comes to its NIC takes longer from then on, and what leaves it shorter,
all by the same amount. A queue does only one of it, and a jump of another clock shows in the pairs with that
one only. The floor of a pair is the least transit of each group of events, in the order of the other NIC's
time, which went on evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.align.markers import Matched, Times
from host_ctl.align.resets import Reset, divide, find_great_resets, without_resets

LEAST_STEP_NS = 10_000.0
_GROUPS = 256
_FEWEST_GROUPS = 16
_FEWEST_IN_GROUP = 4
_SIDE = 4
_NOISE_FACTOR = 10.0
_AGREE = 0.25
_MOST_PER_NIC = 4
_WANDER = 20e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Floor:
    """What one pair shows of a NIC's clock against the other NIC's: the events in the latter's time.

    ``ahead`` is by how much more the NIC's clock showed than the other's, up to a constant and the drift;
    ``rises`` tells by how much its edge jumps before each group, in the direction that the clock would.
    """

    time: Times
    raw: Times
    ahead: Floats
    starts: NDArray[np.int64]
    rises: Floats
    incoming: bool

    @property
    def noise(self) -> float:
        """The usual rise, which means nothing."""
        inner = self.rises[_SIDE : len(self.rises) - _SIDE + 1]
        return float(np.median(np.abs(inner))) if len(inner) else 0.0

    def rise_at(self, times: Times) -> Floats:
        """The greatest rise within a group of each time."""
        k = np.searchsorted(self.time[self.starts], times)
        near = np.stack([self.rises[np.clip(k + d, 0, len(self.rises) - 1)] for d in (-1, 0, 1)])
        return np.asarray(near[np.argmax(np.abs(near), axis=0), np.arange(len(times))])


def find_resets(matched: Sequence[Matched], nics: int) -> list[Reset]:
    """All jumps of clocks that the pairs of their NICs agree on, the great ones first."""
    sent = {(m.before, m.after) for m in matched if not m.acknowledged}
    pairs = [m for m in matched if not m.acknowledged or (m.before, m.after) not in sent]
    resets = find_great_resets(pairs, nics)
    if not resets and not any(_jumps(pair) for pair in pairs):
        return []
    known: dict[tuple[int, int], _Floor | None] = {}
    for _ in range(_MOST_PER_NIC * nics):
        found = _greatest(pairs, resets, nics, known)
        if found is None:
            break
        resets.append(found)
        for index, pair in enumerate(pairs):
            if found.nic in (pair.before, pair.after):
                known.pop((index, pair.before), None)
                known.pop((index, pair.after), None)
    return resets


def _jumps(pair: Matched) -> bool:
    """Whether a pair's floor jumps at all, as it does for one in a thousand where no clock is set."""
    floor = _floor(pair, pair.after, [])
    return floor is not None and float(np.abs(floor.rises).max()) > _threshold(floor)


def _threshold(floor: _Floor) -> float:
    return max(LEAST_STEP_NS, _NOISE_FACTOR * floor.noise)


def _greatest(
    pairs: Sequence[Matched],
    resets: Sequence[Reset],
    nics: int,
    known: dict[tuple[int, int], _Floor | None],
) -> Reset | None:
    """The greatest jump on which the pairs of one NIC agree."""
    shift = _shifts(pairs, resets, nics)
    best: tuple[float, int, int, list[_Floor]] | None = None
    for nic in reversed(range(nics)):  # of two that differ, the later one is said to have been set
        floors = []
        for index, pair in enumerate(pairs):
            if nic not in (pair.before, pair.after):
                continue
            if (index, nic) not in known:
                known[index, nic] = _floor(pair, nic, resets, shift)
            floor = known[index, nic]
            if floor is not None:
                floors.append(floor)
        if not floors:
            continue
        times = np.unique(np.concatenate([f.time[f.starts] for f in floors]))
        rises = np.stack([f.rise_at(times) for f in floors])
        agreed = np.maximum(np.quantile(rises, _AGREE, axis=0, method="lower"), 0.0)
        agreed += np.minimum(np.quantile(rises, 1 - _AGREE, axis=0, method="higher"), 0.0)
        k = int(np.argmax(np.abs(agreed)))
        limit = max(LEAST_STEP_NS, _NOISE_FACTOR * float(np.median([f.noise for f in floors])))
        if abs(agreed[k]) > limit and (best is None or abs(agreed[k]) > 1.01 * abs(best[0])):
            best = float(agreed[k]), nic, int(times[k]), floors
    return None if best is None else _locate(*best)


def _floor(pair: Matched, nic: int, resets: Sequence[Reset], shift: Times | None = None) -> _Floor | None:
    """A pair as it shows a NIC's clock; None where there is too little."""
    incoming = pair.after == nic
    before = without_resets(pair.before_ns, [r for r in resets if r.nic == pair.before])
    after = without_resets(pair.after_ns, [r for r in resets if r.nic == pair.after])
    raw = pair.after_ns if incoming else pair.before_ns
    time = before if incoming else after
    ahead = (after - before) if incoming else (before - after)
    if resets:
        clear = np.ones(len(pair), np.bool_)
        for reset in resets:
            if reset.nic in (pair.before, pair.after):
                clear &= ~reset.is_unclear(pair.before_ns if reset.nic == pair.before else pair.after_ns)
        raw, time, ahead = raw[clear], time[clear], ahead[clear]
    if not incoming or resets:
        order = np.argsort(time, kind="stable")
        raw, time, ahead = raw[order], time[order], ahead[order]
    groups = min(_GROUPS, len(time) // _FEWEST_IN_GROUP)
    if groups < _FEWEST_GROUPS:
        return None
    starts = np.arange(groups) * len(time) // groups
    edge = (np.minimum if incoming else np.maximum).reduceat(ahead, starts).astype(np.float64)
    at = (time[starts] - time[0]).astype(np.float64)
    slope = float(np.median(np.diff(edge) / np.maximum(np.diff(at), 1.0)))
    edge -= edge[0] + slope * at
    flat = (ahead - ahead[0]) - slope * (time - time[0])
    if shift is not None:
        time = time - shift[pair.before if incoming else pair.after]
    return _Floor(time, raw, flat, starts, _rises(edge, at, incoming), incoming)


def _rises(edge: Floats, at: Floats, incoming: bool) -> Floats:
    """By how much the edge of some groups exceeds that of those before, beyond what drifts may do."""
    blocks = np.lib.stride_tricks.sliding_window_view(edge, _SIDE)
    extreme = blocks.min(axis=1) if incoming else blocks.max(axis=1)
    out = np.zeros(len(edge))
    rise = extreme[_SIDE:] - extreme[:-_SIDE]
    span = np.r_[at[2 * _SIDE - 1 :], at[-1:]][: len(rise)] - at[: len(rise)]
    out[_SIDE : len(edge) - _SIDE + 1] = np.sign(rise) * np.maximum(np.abs(rise) - _WANDER * span, 0.0)
    return out


def _shifts(pairs: Sequence[Matched], resets: Sequence[Reset], nics: int) -> Times:
    """By what to shift each NIC's time, so that one time means the same on all to within delays."""
    shift: dict[int, int] = {}
    for start in range(nics):
        if start in shift:
            continue
        shift[start] = 0
        pending = True
        while pending:
            pending = False
            for pair in pairs:
                a, b = pair.before, pair.after
                if (a in shift) == (b in shift):
                    continue
                got = without_resets(pair.after_ns, [r for r in resets if r.nic == b])
                left = without_resets(pair.before_ns, [r for r in resets if r.nic == a])
                between, pending = int(np.median(got - left)), True
                shift |= {b: shift[a] + between} if a in shift else {a: shift[b] - between}
    return np.array([shift[i] for i in range(nics)], dtype=np.int64)


def _locate(size: float, nic: int, event: int, floors: Sequence[_Floor]) -> Reset | None:
    """Between which stamps a clock jumped.

    What arrives too soon for one side of the jump belongs to the other: where transits rise, the last quick
    event is surely before it, where they fall, the first quick one surely after it.
    """
    befores: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # by whether they are sure
    afters: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for floor in floors:
        k = int(np.searchsorted(floor.time[floor.starts], event))
        begin = int(floor.starts[max(0, k - _SIDE - 1)])
        end = int(floor.starts[k + _SIDE + 1]) if k + _SIDE + 1 < len(floor.starts) else len(floor.time)
        near = slice(begin, end)
        slow = floor.ahead[near] if floor.incoming else -floor.ahead[near]
        quick = np.flatnonzero(slow < slow.min() + abs(size) / 2)
        rises = (size > 0) == floor.incoming
        at = begin + int(quick[-1] if rises else quick[0])
        sure, other, step = (befores, afters, 1) if rises else (afters, befores, -1)
        sure[True].append((int(floor.time[at]), int(floor.raw[at])))
        if 0 <= at + step < len(floor.time):
            other[False].append((int(floor.time[at + step]), int(floor.raw[at + step])))
    before = max(befores[True] or befores[False], default=None)
    after = min(afters[True] or afters[False], default=None)
    if before is None or after is None:
        return None
    stamps = np.concatenate([floor.raw for floor in floors])
    return divide(nic, round(size), before[1], after[1], stamps)
