# SPDX-License-Identifier: Apache-2.0
"""Clocks that were set: where their stamps divide into before and after, and by how much they jumped.

Here are the great jumps, of a second and more, which are no delay: between two NICs events then lie in
blocks, each at a level of its own. Where one block follows another, the NIC on whose clock they join went
on, and the other one was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from host_ctl.align.markers import Matched, Times

_GREAT_NS = 1_000_000_000
_FEWEST = 8
_MARGIN_NS = 200_000
_EDGE = 32


@dataclass(frozen=True, slots=True)
class Reset:
    """A NIC's clock jumped by ``size_ns``, about.

    Stamps from ``split_ns`` on are those after it or, when ``turned``, those before it: a clock set back by
    more than the capture is long. What lies from ``low_ns`` to ``high_ns`` can be either.
    """

    nic: int
    size_ns: int
    split_ns: int
    low_ns: int
    high_ns: int
    last_before_ns: int
    turned: bool = False

    def is_after(self, ns: Times) -> NDArray[np.bool_]:
        """Which stamps were made after the jump."""
        return np.asarray((ns < self.split_ns) if self.turned else (ns >= self.split_ns))

    def is_unclear(self, ns: Times) -> NDArray[np.bool_]:
        """Which stamps can be of before or after."""
        return np.asarray((ns >= self.low_ns) & (ns <= self.high_ns))


def without_resets(ns: Times, resets: Sequence[Reset]) -> Times:
    """A NIC's stamps as if its clock had not been set."""
    out = ns
    for reset in resets:
        out = out - reset.size_ns * reset.is_after(ns)
    return np.asarray(out)


def divide(nic: int, size_ns: int, last_before: int, first_after: int, stamps: Times) -> Reset:
    """The reset between two stamps of a NIC, of which the first is the last known to be before it."""
    low, high = sorted((last_before, first_after))
    if size_ns < 0 and first_after <= last_before:
        inside = np.unique(stamps[(stamps >= first_after) & (stamps <= last_before)])
        holes = np.diff(inside)
        if len(holes) and holes.max() > _GREAT_NS and holes.max() > 0.5 * -size_ns:
            at = int(np.argmax(holes))
            low, high = int(inside[at]), int(inside[at + 1])
            return Reset(nic, size_ns, (low + high) // 2, low, high, last_before, turned=True)
    margin = _MARGIN_NS if size_ns < 0 else 0  # stamps repeat, and one on the wrong side spoils a floor
    return Reset(nic, size_ns, (low + high) // 2, low - margin, high + margin, last_before)


@dataclass(frozen=True, slots=True)
class _Block:
    """Events that follow closely at both NICs: first and last stamp at each; transits at begin and end."""

    before: tuple[int, int]
    after: tuple[int, int]
    begin_level: int
    end_level: int


@dataclass(frozen=True, slots=True)
class _Vote:
    nic: int
    size_ns: int
    last_before: int
    first_after: int


def find_great_resets(matched: Sequence[Matched], nics: int) -> list[Reset]:
    """Jumps of a second and more that most of a NIC's pairs agree on."""
    votes: list[_Vote] = []
    pairs = np.zeros(nics, np.int64)
    for one in matched:
        pairs[[one.before, one.after]] += 1
        transit = one.after_ns - one.before_ns
        if len(transit) and int(transit.max() - transit.min()) > _GREAT_NS:
            votes += _votes(one, _blocks(one))
    found: list[Reset] = []
    for nic in sorted({v.nic for v in votes}):
        own = sorted((v for v in votes if v.nic == nic), key=lambda v: v.last_before)
        stamps = [m.before_ns for m in matched if m.before == nic] + [
            m.after_ns for m in matched if m.after == nic
        ]
        while own:
            like = [
                v for v in own
                if abs(v.size_ns - own[0].size_ns) < _GREAT_NS
                and abs(v.last_before - own[0].last_before) < _GREAT_NS
            ]  # fmt: skip
            own = [v for v in own if v not in like]
            if 2 * len(like) < pairs[nic]:
                continue
            size = int(np.median([v.size_ns for v in like]))
            last, first = max(v.last_before for v in like), min(v.first_after for v in like)
            found.append(divide(nic, size, last, first, np.concatenate(stamps)))
    return found


def _blocks(one: Matched) -> list[_Block]:
    transit = one.after_ns - one.before_ns
    cut = (np.abs(np.diff(transit)) > _GREAT_NS) | (np.diff(one.before_ns) > _GREAT_NS)
    edges = np.flatnonzero(np.r_[True, cut, True])
    found = []
    for begin, end in pairwise(edges.tolist()):
        if end - begin >= _FEWEST:
            b, a, level = one.before_ns[begin:end], one.after_ns[begin:end], transit[begin:end]
            found.append(
                _Block(
                    before=(int(b.min()), int(b.max())),
                    after=(int(a.min()), int(a.max())),
                    begin_level=int(level[:_EDGE].min()),
                    end_level=int(level[-_EDGE:].min()),
                )
            )
    return found


def _votes(one: Matched, blocks: Sequence[_Block]) -> list[_Vote]:
    found = []
    for x in blocks:
        for y in blocks:
            jump = y.begin_level - x.end_level
            if abs(jump) < _GREAT_NS:
                continue
            gap_before, gap_after = y.before[0] - x.before[1], y.after[0] - x.after[1]
            if 0 <= gap_before < _GREAT_NS <= abs(gap_after - gap_before):
                found.append(_Vote(one.after, jump, x.after[1], y.after[0]))
            elif 0 <= gap_after < _GREAT_NS <= abs(gap_after - gap_before):
                found.append(_Vote(one.before, -jump, x.before[1], y.before[0]))
    return found
