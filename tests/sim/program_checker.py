# SPDX-License-Identifier: Apache-2.0
"""Runs a set of programs without a network: transfers take no time, and need both ends."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from sim.planning.collectives import Operation
from sim.planning.commands import Begin, Compute, Couple, End, Program, Start, Wait
from sim.replay.model import Layout, ModelSpec, Scaling
from sim.replay.programs import programs
from sim.replay.trace_file import Trace
from sim.spec import StackSpec


@dataclass
class Rank:
    program: Program
    now_ns: int = 0
    running: Operation | None = None
    coupled: tuple[int, ...] = ()
    steps: list[tuple[int, int]] = field(default_factory=list)
    pauses_ns: int = 0
    done: bool = False


class Checker:
    """Runs all programs against each other; ``stuck`` holds the ranks that wait for ever."""

    def __init__(self, trace: Trace, model: ModelSpec, layout: Layout, steps: int, scaling: Scaling) -> None:
        self.lanes: list[tuple[int, int, str, int]] = []
        made = programs(trace, model, StackSpec(), self._new_lane, layout, scaling, steps)
        self.layout = layout
        self.ranks = {number: Rank(program) for number, program in made.items()}
        self.bytes_sent: Counter[tuple[int, int, str]] = Counter()
        self.edges: dict[tuple[int, str], list[Operation]] = defaultdict(list)
        self._waiting: dict[tuple[int, str], deque[tuple[int, Operation]]] = defaultdict(deque)
        self._open: dict[int, int] = {}
        self._collectives: dict[Any, dict[int, Operation]] = defaultdict(dict)
        ready = deque(self.ranks)
        while ready:
            number = ready.popleft()
            ready += self._advance(number)
        self.stuck = [number for number, rank in self.ranks.items() if not rank.done]

    def _new_lane(self, *ends: Any) -> int:
        self.lanes.append(ends)
        return len(self.lanes) - 1

    def _advance(self, number: int) -> list[int]:
        """Run a rank to its next wait; the ranks that can go on because of that."""
        rank = self.ranks[number]
        for command in rank.program:
            match command:
                case Begin():
                    rank.steps.append((rank.now_ns, -1))
                case End():
                    rank.steps[-1] = (rank.steps[-1][0], rank.now_ns)
                case Compute(duration_ns):
                    rank.now_ns += duration_ns
                    rank.pauses_ns += duration_ns
                case Start(operation):
                    rank.running = operation
                case Wait():
                    assert rank.running is not None
                    return self._start(number, rank.running)
                case Couple(members) if members:
                    return self._couple(number, members)
                case Couple():
                    first = number // self.layout.rails * self.layout.rails
                    return self._couple(number, tuple(range(first, first + self.layout.rails)))
        rank.done = True
        return []

    def _couple(self, number: int, members: tuple[int, ...]) -> list[int]:
        self.ranks[number].coupled = members
        if any(self.ranks[member].coupled != members for member in members):
            return []
        for member in members:
            self.ranks[member].coupled = ()
        return self._meet(members)

    def _meet(self, members: Any) -> list[int]:
        latest = max(self.ranks[member].now_ns for member in members)
        for member in members:
            self.ranks[member].now_ns = latest
            self.ranks[member].running = None
        return list(members)

    def _start(self, number: int, operation: Operation) -> list[int]:
        for lane, size in _sent(operation).items():
            sender, receiver = self.lanes[lane][:2]
            self.bytes_sent[sender, receiver, operation.kind] += size
        if operation.kind != "send_recv":
            started = self._collectives[operation.tag]
            started[number] = operation
            lanes = {lane for op in started.values() for lane in (*_sent(op), *_taken(op))}
            ends = {end for lane in lanes for end in self.lanes[lane][:2]}
            return self._meet(sorted(started)) if ends == set(started) else []
        return self._exchange(number, operation)

    def _exchange(self, number: int, operation: Operation) -> list[int]:
        """An exchange is over when each of its transfers has met its other end, in order per edge."""
        ends = [(lane, "send") for lane in _sent(operation)]
        ends += [(lane, "receive") for lane in _taken(operation)]
        self._open[number] = len(ends)
        free: list[int] = []
        for lane, side in ends:
            self.edges[lane, side].append(operation)
            other = self._waiting[lane, "receive" if side == "send" else "send"]
            if not other:
                self._waiting[lane, side].append((number, operation))
                continue
            peer, theirs = other.popleft()
            sender, receiver = (operation, theirs) if side == "send" else (theirs, operation)
            assert _given(sender)[lane] == _taken(receiver)[lane]
            later = max(self.ranks[number].now_ns, self.ranks[peer].now_ns)
            for end in (number, peer):
                self.ranks[end].now_ns = later
                self._open[end] -= 1
                free += [end] if not self._open[end] else []
        return free


def _sent(operation: Operation) -> Counter[int]:
    """Bytes by lane."""
    sizes: Counter[int] = Counter()
    for thread in operation.threads:
        for step in thread:
            for lane in step.send:
                sizes[lane] += step.size
    return sizes


def _taken(operation: Operation) -> Counter[int]:
    """Slots by lane."""
    return Counter(lane for thread in operation.threads for step in thread for lane in step.receive)


def _given(operation: Operation) -> Counter[int]:
    return Counter(lane for thread in operation.threads for step in thread for lane in step.send)
