# SPDX-License-Identifier: Apache-2.0
"""Remembers which frames are kept: sequences by machine, NIC and life of the sending process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

Life = tuple[str, str, str]
"""Machine, NIC, boot id."""

MAX_RUNS = 10_000
MAX_LIVES_PER_NIC = 4096


class SequenceSet:
    """Sequences as runs without a hole; of more than `MAX_RUNS` the lowest are given up, see `floor`."""

    __slots__ = ("_begins", "_ends", "floor")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []  # one past the last
        self.floor = 0
        """Below it nothing is known any more: what is there counts as too old."""

    def __contains__(self, sequence: int) -> bool:
        at = bisect_right(self._begins, sequence) - 1
        return at >= 0 and sequence < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the runs: first sequence, one past the last."""
        return iter(zip(self._begins, self._ends, strict=True))

    def add(self, sequence: int) -> bool:
        """Take a sequence; False when it was there."""
        at = bisect_right(self._begins, sequence)
        if at and sequence < self._ends[at - 1]:
            return False
        joins_before = at > 0 and self._ends[at - 1] == sequence
        joins_after = at < len(self._begins) and self._begins[at] == sequence + 1
        if joins_before and joins_after:
            self._ends[at - 1] = self._ends[at]
            del self._begins[at], self._ends[at]
        elif joins_before:
            self._ends[at - 1] += 1
        elif joins_after:
            self._begins[at] -= 1
        else:
            self._begins.insert(at, sequence)
            self._ends.insert(at, sequence + 1)
            if len(self._begins) > MAX_RUNS:
                self.floor = self._ends.pop(0)
                del self._begins[0]
        return True

    @property
    def highest(self) -> int:
        """The highest sequence, -1 when there is none."""
        return self._ends[-1] - 1 if self._ends else -1

    @property
    def first_run_end(self) -> int | None:
        """The last sequence before the first hole."""
        return self._ends[0] - 1 if self._ends else None

    @property
    def holes(self) -> int:
        """Sequences that are missing between the lowest and the highest."""
        between = zip(self._begins[1:], self._ends[:-1], strict=True)
        return sum(begin - end for begin, end in between)


class KnownFrames:
    """All lives of which frames are kept."""

    def __init__(self) -> None:
        self._lives: dict[Life, SequenceSet] = {}
        self._last_segment: dict[Life, int] = {}
        self._of_nic: dict[tuple[str, str], list[Life]] = {}

    def add(self, life: Life, sequence: int, segment: int) -> bool:
        """Take a frame that is kept in a segment; False when it was known."""
        known = self._lives.get(life)
        if known is None:
            known = self._lives[life] = SequenceSet()
            siblings = self._of_nic.setdefault(life[:2], [])
            siblings.append(life)
            if len(siblings) > MAX_LIVES_PER_NIC:
                self._forget(siblings[0])
        self._last_segment[life] = max(segment, self._last_segment.get(life, 0))
        return known.add(sequence)

    def of(self, life: Life) -> SequenceSet | None:
        """What is kept of a life."""
        return self._lives.get(life)

    def nics(self) -> Iterator[tuple[str, str]]:
        """Machines and NICs of which something is kept."""
        return iter(self._of_nic)

    def lives(self) -> Iterator[tuple[Life, SequenceSet]]:
        """All lives, with what is kept of each."""
        return iter(self._lives.items())

    def forget_until(self, segment: int) -> None:
        """Forget the lives whose frames were all in segments up to one, which are gone."""
        for life in [life for life, last in self._last_segment.items() if last <= segment]:
            self._forget(life)

    def _forget(self, life: Life) -> None:
        del self._lives[life], self._last_segment[life]
        siblings = self._of_nic[life[:2]]
        siblings.remove(life)
        if not siblings:
            del self._of_nic[life[:2]]
