# SPDX-License-Identifier: Apache-2.0
"""Ranks: a program of compute and collectives, driven by events.

A rank's program is a generator of commands. It goes on when the command is over: compute after
its time, a wait after the collective stream has run dry, coupling after the whole machine came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

from sim.collectives import Execution, Operation
from sim.events import EventLoop
from sim.lanes import HostThread
from sim.network import Nic
from sim.spec import CreditPolicy, StackSpec


@dataclass(frozen=True, slots=True)
class Begin:
    """A training step begins."""

    step: int


@dataclass(frozen=True, slots=True)
class End:
    """The training step is over on this rank."""

    step: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Be busy for ``base_ns`` as scaled by the rank's noise; ``first`` marks the step's first phase."""

    base_ns: int
    first: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Be idle, as in a checkpoint or an evaluation."""

    duration_ns: int


@dataclass(frozen=True, slots=True)
class Announce:
    """The host knows that this operation comes next; early credits may go out."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Start:
    """Put an operation on the collective stream and go on."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the collective stream is empty."""


@dataclass(frozen=True, slots=True)
class Couple:
    """Wait for the other ranks of the machine, as tensor parallelism does, without a packet."""


Command = Begin | End | Compute | Pause | Announce | Start | Wait | Couple
Program = Generator[Command, None, None]


@dataclass(slots=True)
class StepRecord:
    """True times of one step of one rank; -1 = never."""

    step: int
    compute_start_ns: int
    collective_start_ns: int = -1
    collective_end_ns: int = -1
    compute_ns: int = 0
    pause_ns: int = 0
    end_ns: int = -1
    operations: list[Operation] = field(default_factory=list)


class Coupling:
    """The GPUs of one machine that wait for each other."""

    def __init__(self, loop: EventLoop, members: int) -> None:
        self._loop = loop
        self._members = members
        self._waiting: list[Callable[[], None]] = []

    def arrive(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once all members have arrived."""
        self._waiting.append(resume)
        if len(self._waiting) == self._members:
            waiting, self._waiting = self._waiting, []
            for go in waiting:
                self._loop.after(2_000, go)


class Rank:
    """One GPU with its NIC, proxy thread and collective stream."""

    def __init__(
        self,
        loop: EventLoop,
        number: int,
        job: int,
        job_rank: int,
        nic: Nic,
        host: HostThread,
        stack: StackSpec,
    ) -> None:
        self.loop = loop
        self.number, self.job, self.job_rank = number, job, job_rank
        self.nic = nic
        self.host = host
        self.coupling = Coupling(loop, 1)
        self.alive = True
        self.finished = False
        self.errors: list[str] = []
        self.steps: list[StepRecord] = []
        self.warm_up: list[Operation] = []
        self.compute_time: Callable[[int, int, bool], int] = _as_given
        self.pause_time: Callable[[int], int] = _no_pause
        self.on_step: list[Callable[[int], None]] = []
        self.on_enter: list[Callable[[int, Operation], None]] = []
        self._stack = stack
        self._program: Program | None = None
        self._announced: deque[Operation] = deque()
        self._stream: deque[Operation] = deque()
        self._running: Operation | None = None
        self._waiting = False

    @property
    def step(self) -> int:
        """The step being run; -1 during the warm-up."""
        return self.steps[-1].step if self.steps else -1

    def begin(self, program: Program, at_ns: int) -> None:
        """Run ``program`` from ``at_ns`` on."""
        self._program = program
        self.loop.at(at_ns, self._advance)

    def stop(self) -> None:
        """The process stops for good: no compute, no posts, no credits. Its NIC lives on."""
        self.alive = False
        self.host.stopped = True

    def _advance(self) -> None:
        if self._program is None:
            return
        while self.alive:
            command = next(self._program, None)
            if command is None:
                self.finished = True
                return
            if not self._obey(command):
                return

    def _obey(self, command: Command) -> bool:
        """Carry out one command; False when the program has to wait for an event."""
        match command:
            case Begin(step):
                self.steps.append(StepRecord(step, self.loop.now))
                for hook in self.on_step:
                    hook(step)
            case End():
                self.steps[-1].end_ns = self.loop.now
            case Compute(base_ns, first):
                return self._compute(base_ns, first)
            case Pause(duration_ns):
                self.loop.after(duration_ns, self._advance)
                return False
            case Announce(operation):
                self._announced.append(operation)
                self._announce_next()
            case Start(operation):
                self._stream.append(operation)
                self._run_next()
            case Wait():
                if self._running is not None or self._stream:
                    self._waiting = True
                    return False
            case Couple():
                self.coupling.arrive(self._advance)
                return False
        return True

    def _compute(self, base_ns: int, first: bool) -> bool:
        duration = self.compute_time(self.step, base_ns, first)
        pause = self.pause_time(self.step) if first else 0
        if self.steps:
            self.steps[-1].compute_ns += duration
            self.steps[-1].pause_ns += pause
        self.loop.after(duration + pause, self._advance)
        return False

    def _announce_next(self) -> None:
        """Grant the next operation's first slots, once the stream is idle and the host runs ahead."""
        early = self._stack.credit_policy is CreditPolicy.EARLY
        if early and self._running is None and not self._stream and self._announced and self.alive:
            self._announced[0].announce()

    def _run_next(self) -> None:
        if self._running is not None or not self._stream or not self.alive:
            return
        operation = self._stream.popleft()
        if operation in self._announced:
            self._announced.remove(operation)
        for hook in self.on_enter:
            hook(self.step, operation)
        if not self._is_alive():  # a hook may have stopped this rank
            return
        self._running = operation
        operation.enter_ns = self.loop.now
        if self.steps:
            record = self.steps[-1]
            record.operations.append(operation)
            if record.collective_start_ns < 0:
                record.collective_start_ns = self.loop.now
        else:
            self.warm_up.append(operation)
        operation.announce()
        execution = Execution(
            self.loop,
            operation,
            self._stack.reduce_bytes_per_ns,
            partial(self._ended, operation),
            self._is_alive,
        )
        execution.start()

    def _is_alive(self) -> bool:
        return self.alive

    def _ended(self, operation: Operation) -> None:
        operation.end_ns = self.loop.now
        if self.steps:
            self.steps[-1].collective_end_ns = self.loop.now
        self._running = None
        self._announce_next()
        self._run_next()
        if self._waiting and self._running is None and not self._stream:
            self._waiting = False
            self.loop.after(500, self._advance)


def _as_given(step: int, base_ns: int, first: bool) -> int:
    return base_ns


def _no_pause(step: int) -> int:
    return 0
