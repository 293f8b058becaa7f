# SPDX-License-Identifier: Apache-2.0
"""Collectives as programs of slot steps, executed with their true dependencies.

A program is what one GPU thread block does: steps in order, each taking one slot from every lane it
receives from and handing one slot to every lane it sends to. A step runs only when its input is
there and its output buffers have room; nothing else delays or releases a collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from sim.events import Action, EventLoop
from sim.lanes import Lane, Slot


@dataclass(frozen=True, slots=True)
class Step:
    """Take one slot from each of ``receive``, give one of ``size`` bytes to each of ``send``."""

    receive: tuple[Lane, ...]
    send: tuple[Lane, ...]
    size: int


@dataclass(slots=True, eq=False)
class Operation:
    """One rank's part of a collective. ``tag`` is equal on all ranks that agree what they run."""

    kind: str
    size: int
    tag: Hashable
    programs: list[list[Step]]
    announced: bool = False
    enter_ns: int = -1
    end_ns: int = -1

    def receives(self) -> Counter[Lane]:
        """How many slots the operation takes from each lane."""
        return Counter(lane for program in self.programs for step in program for lane in step.receive)

    def announce(self) -> None:
        """Tell every incoming lane how many slots will be taken; done once, early or on entry."""
        if not self.announced:
            self.announced = True
            for lane, slots in self.receives().items():
                lane.expect(slots)


class Execution:
    """Runs the programs of one operation on one rank until all are done and all slots acknowledged."""

    def __init__(
        self,
        loop: EventLoop,
        operation: Operation,
        reduce_bytes_per_ns: float,
        finished: Action,
        gpu_alive: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._operation = operation
        self._rate = reduce_bytes_per_ns
        self._finished = finished
        self._alive = gpu_alive
        self._position = [0] * len(operation.programs)
        self._busy = [False] * len(operation.programs)
        self._open = True
        self._lanes = {lane for p in operation.programs for s in p for lane in (*s.receive, *s.send)}
        self._outgoing = {lane for p in operation.programs for s in p for lane in s.send}

    def start(self) -> None:
        """Enter the collective."""
        for program in self._operation.programs:
            for step in program:
                for lane in step.send:
                    lane.wake_sender = self.progress
                for lane in step.receive:
                    lane.wake_receiver = self.progress
        self.progress()

    def progress(self) -> None:
        """Start every step that can run now."""
        if not self._open or not self._alive():
            return
        for number, program in enumerate(self._operation.programs):
            if not self._busy[number] and self._position[number] < len(program):
                step = program[self._position[number]]
                if self._can_run(step):
                    self._busy[number] = True
                    self._loop.after(200 + int(step.size / self._rate), partial(self._done, number, step))
        self._check_end()

    def _can_run(self, step: Step) -> bool:
        for lane in step.receive:
            slot = lane.next_arrived()
            if slot is None or slot.tag != self._operation.tag:
                return False
        return all(lane.has_room for lane in step.send)

    def _done(self, number: int, step: Step) -> None:
        if not self._alive():
            return
        for lane in step.receive:
            lane.consume()
        for lane in step.send:
            lane.stage(Slot(step.size, self._operation.tag))
        self._busy[number] = False
        self._position[number] += 1
        self.progress()

    def _check_end(self) -> None:
        programs = self._operation.programs
        if any(position < len(program) for position, program in zip(self._position, programs, strict=True)):
            return
        if all(lane.unacknowledged == 0 for lane in self._outgoing):
            self._open = False
            self._finished()


def slots_of(size: int, slot_bytes: int) -> list[int]:
    """Cut ``size`` bytes into slots; the last may be shorter, none is empty."""
    whole, rest = divmod(size, slot_bytes)
    return [slot_bytes] * whole + ([rest] if rest else [])


def ring_program(
    send: Lane, receive: Lane, ranks: int, slots: Sequence[int], slots_per_round: int, passes: int
) -> list[Step]:
    """``passes`` times round the ring: 1 = ReduceScatter or AllGather, 2 = AllReduce.

    ``slots`` are those of one rank's chunk. They go round in rounds of ``slots_per_round``, which must
    not exceed the window: every rank sends its own before it takes any. The first hop of a round is
    the rank's own data; every later one is sent only after it came.
    """
    program: list[Step] = []
    for start in range(0, len(slots), slots_per_round):
        part = slots[start : start + slots_per_round]
        program += [Step((), (send,), size) for size in part]
        for _ in range(passes * (ranks - 1) - 1):
            program += [Step((receive,), (send,), size) for size in part]
        program += [Step((receive,), (), size) for size in part]
    return program


def tree_programs(
    up_to: Lane | None,
    up_from: Sequence[Lane],
    down_from: Lane | None,
    down_to: Sequence[Lane],
    size: int,
    slot_bytes: int,
) -> list[list[Step]]:
    """Reduce to the root and broadcast back, slot by slot; the root turns round what it has reduced."""
    slots = slots_of(size, slot_bytes)
    if up_to is None or down_from is None:
        return [[Step(tuple(up_from), tuple(down_to), part) for part in slots]]
    return [
        [Step(tuple(up_from), (up_to,), part) for part in slots],
        [Step((down_from,), tuple(down_to), part) for part in slots],
    ]


def exchange_programs(
    sends: Sequence[tuple[Lane, int]], receives: Sequence[tuple[Lane, int]], slot_bytes: int
) -> list[list[Step]]:
    """Independent transfers to and from peers: all-to-all, or the send/recv of a pipeline."""
    programs = [[Step((), (lane,), part) for part in slots_of(size, slot_bytes)] for lane, size in sends]
    programs += [[Step((lane,), (), part) for part in slots_of(size, slot_bytes)] for lane, size in receives]
    return [program for program in programs if program]


def double_tree_parents(ranks: int) -> list[list[int | None]]:
    """Parents of every rank in two binary trees; the second is the first, shifted by one rank."""
    first = _binary_tree(ranks)
    second: list[int | None] = [None] * ranks
    for child, parent in enumerate(first):
        second[(child + 1) % ranks] = None if parent is None else (parent + 1) % ranks
    return [first, second]


def _binary_tree(ranks: int) -> list[int | None]:
    """In-order binary tree over 0..ranks-1: odd-level nodes are inner, leaves have the lowest bit set."""
    parents: list[int | None] = [None] * ranks

    def build(low: int, high: int, parent: int | None) -> None:
        if low >= high:
            return
        middle = (low + high) // 2
        parents[middle] = parent
        build(low, middle, middle)
        build(middle + 1, high, middle)

    build(0, ranks, None)
    return parents
