# SPDX-License-Identifier: Apache-2.0
"""Recent frames of every NIC by life and sequence, still where they came from: opened only when needed."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from host_ctl.history.known import SequenceSet
from host_ctl.history.records import FrameKey

_LIVES = 64  # of one NIC, of which sequences are remembered

NicName = tuple[str, str]
"""Machine, NIC."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A durable frame: its key, its encoded size, and how to get its bytes (None when they are lost)."""

    key: FrameKey
    size: int
    read: Callable[[], bytes | None] = field(compare=False)


@dataclass(slots=True)
class IntakeCounts:
    """What came, and what was held against it; counts only grow."""

    frames: int = 0
    repeats: int = 0
    late: int = 0
    restarts: int = 0
    let_go: int = 0
    let_go_early: int = 0


@dataclass(slots=True)
class NicFrames:
    """The frames held of one NIC, by their begin on the controller's clock, and how far they reach."""

    name: NicName
    held: list[Arrived] = field(default_factory=list)
    lives: dict[str, SequenceSet] = field(default_factory=dict)
    reached_ns: int = -(2**63)
    received_ns: int = -(2**63)

    def overlapping(self, begin_ns: int, end_ns: int) -> list[Arrived]:
        """The held frames that touch [begin, end)."""
        return [each for each in self.held if each.key.end_ns > begin_ns and each.key.begin_ns < end_ns]

    def missing(self, frames: list[Arrived]) -> int:
        """How many sequences lie between these frames that have not come."""
        numbers: dict[str, list[int]] = {}
        for each in frames:
            numbers.setdefault(each.key.boot_id, []).append(each.key.sequence)
        return sum(max(n) - min(n) + 1 - len(n) for n in numbers.values())


def _begin(arrived: Arrived) -> tuple[int, int]:
    return arrived.key.begin_ns, arrived.key.sequence


class Intake:
    """Takes frames in any order; of all NICs together no more than ``most_bytes`` are held."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._nics: dict[NicName, NicFrames] = {}
        self.held_bytes = 0
        self.held_frames = 0
        self.counts = IntakeCounts()

    def __iter__(self) -> Iterator[NicFrames]:
        """Yield every NIC that is not forgotten."""
        return iter(self._nics.values())

    def take(self, arrived: Arrived) -> bool:
        """Hold a frame; False when it is a repeat."""
        key = arrived.key
        nic = self._nics.get((key.machine, key.nic))
        if nic is None:
            nic = self._nics[key.machine, key.nic] = NicFrames((key.machine, key.nic))
        new_life = key.boot_id not in nic.lives
        known = nic.lives.setdefault(key.boot_id, SequenceSet())
        if key.sequence < known.floor or not known.add(key.sequence):
            self.counts.repeats += 1
            return False
        self.counts.frames += 1
        self.counts.late += known.highest > key.sequence
        self.counts.restarts += new_life and len(nic.lives) > 1
        if len(nic.lives) > _LIVES:
            del nic.lives[next(iter(nic.lives))]
        insort(nic.held, arrived, key=_begin)
        nic.reached_ns = max(nic.reached_ns, key.end_ns)
        nic.received_ns = max(nic.received_ns, key.received_ns)
        self.held_bytes += arrived.size
        self.held_frames += 1
        self._bound()
        return True

    def let_go_before(self, ns: int) -> None:
        """Let frames go that end before a time of the controller's clock: no window will ask for them."""
        for nic in self._nics.values():
            while nic.held and nic.held[0].key.end_ns <= ns:
                self._let_go(nic)

    def forget_before(self, ns: int) -> list[NicName]:
        """Forget NICs of which nothing has come since a time; return them."""
        gone = [name for name, nic in self._nics.items() if nic.received_ns < ns]
        for name in gone:
            nic = self._nics[name]
            while nic.held:
                self._let_go(nic)
            del self._nics[name]
        return gone

    def _bound(self) -> None:
        while self.held_bytes > self._most_bytes:
            oldest = min(
                (nic for nic in self._nics.values() if nic.held), key=lambda nic: _begin(nic.held[0])
            )
            self._let_go(oldest)
            self.counts.let_go_early += 1

    def _let_go(self, nic: NicFrames) -> None:
        gone = nic.held.pop(0)
        self.held_bytes -= gone.size
        self.held_frames -= 1
        self.counts.let_go += 1
