# SPDX-License-Identifier: Apache-2.0
"""The plan of a simulation: everything that the engine needs, as tables of numbers, before it begins.

The tables are those of ``native/sim/plan.hpp``; their dtypes come from the compiled module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from pulse_native import _sim
from sim.planning.collectives import Operation, Step, Thread
from sim.planning.commands import Announce, Begin, Command, Compute, Couple, End, Pause, Start, Wait, WaitFor

PS_PER_NS = 1_000
NOBODY: int = _sim.NOBODY
_MAX_HOPS = 4

Table = np.ndarray[Any, np.dtype[Any]]
Row = tuple[Any, ...]


class PlanBuilder:
    """Collects the rows of a plan; every ``add_`` gives the number of what it added."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {name: [] for name in _sim.plan_dtypes()}
        self.operations: list[Operation] = []
        self._paths: list[Row] = []
        self._spare_paths: list[Row] = []
        self._forms: dict[int, tuple[int, tuple[Thread, ...]]] = {}
        self._form_ids: dict[tuple[Thread, ...], int] = {}
        self._tags: dict[Hashable, int] = {}
        self._meetings: dict[tuple[int, ...], int] = {}

    def add(self, table: str, *row: Any) -> int:
        """Append one row."""
        self.rows[table].append(row)
        return len(self.rows[table]) - 1

    def add_path(self, ports: Iterable[int]) -> None:
        """The path of the next end."""
        self._paths.append(_path_row(ports))

    def add_spare_path(self, ports: Iterable[int]) -> int:
        """A path that an action may give to an end; add it after all connections."""
        self._spare_paths.append(_path_row(ports))
        return len(self._paths) + len(self._spare_paths) - 1

    def path_of(self, end: int) -> tuple[list[int], int]:
        """Ports (padded) and how many of them count."""
        ports, hops = self._paths[end]
        return ports, hops

    def add_program(self, nic: int, begin_ns: int, commands: list[tuple[int, int]]) -> int:
        """A rank with its compiled program."""
        first = len(self.rows["commands"])
        self.rows["commands"] += [(value, kind) for kind, value in commands]
        return self.add("ranks", nic, begin_ns * PS_PER_NS, first, len(commands))

    def meeting(self, members: tuple[int, ...]) -> int:
        """The number under which these ranks wait for each other."""
        number = self._meetings.setdefault(members, len(self._meetings))
        if number == len(self.rows["meetings"]):
            self.rows["meetings"].append(len(members))
        return number

    def add_operation(self, operation: Operation) -> int:
        """An operation; those with the same threads share one template."""
        tag = self._tags.setdefault(operation.tag, len(self._tags))
        self.operations.append(operation)
        return self.add("operations", self._form(operation.threads), tag, operation.stream)

    def _form(self, threads: tuple[Thread, ...]) -> int:
        known = self._forms.get(id(threads))
        if known is not None:
            return known[0]
        number = self._form_ids.get(threads)
        if number is None:
            number = self._add_form(threads)
            self._form_ids[threads] = number
        self._forms[id(threads)] = number, threads  # keeps `threads` alive, so that its id stays its own
        return number

    def _add_form(self, threads: tuple[Thread, ...]) -> int:
        first = len(self.rows["threads"])
        for thread in threads:
            self.add("threads", len(self.rows["steps"]), len(thread))
            for step in thread:
                self._add_step(step)
        return self.add("templates", first, len(threads))

    def _add_step(self, step: Step) -> None:
        lanes = self.rows["step_lanes"]
        self.add("steps", len(lanes), len(step.receive), len(step.send), step.size)
        lanes += (*step.receive, *step.send)

    def tables(self) -> dict[str, Table]:
        """All tables, ready for the engine."""
        rows = self.rows | {"paths": [*self._paths, *self._spare_paths]}
        return {
            name: np.array(rows[name], dtype=dtype) if rows[name] else np.zeros(0, dtype=dtype)
            for name, dtype in _sim.plan_dtypes().items()
        }


def _path_row(ports: Iterable[int]) -> Row:
    hops = list(ports)
    return hops + [0] * (_MAX_HOPS - len(hops)), len(hops)


class ProgramCompiler:
    """Turns the commands of ranks into rows; ``machine_of`` gives the ranks of a rank's machine."""

    def __init__(self, plan: PlanBuilder, machine_of: Callable[[int], tuple[int, ...]]) -> None:
        self._plan = plan
        self._machine_of = machine_of
        self._numbers: dict[int, tuple[int, Operation]] = {}

    def compile(self, rank: int, commands: Iterable[Command]) -> list[tuple[int, int]]:
        """Rows (kind, value) of a program whose compute commands carry exact times."""
        return [self._row(rank, command) for command in commands]

    def _row(self, rank: int, command: Command) -> tuple[int, int]:
        kinds = _sim.CommandKind
        match command:
            case Begin(step):
                return kinds.BEGIN_STEP, step
            case End(step):
                return kinds.END_STEP, step
            case Compute(duration_ns) | Pause(duration_ns):
                return kinds.COMPUTE, duration_ns * PS_PER_NS
            case Announce(operation):
                return kinds.ANNOUNCE, self._number(operation)
            case Start(operation):
                return kinds.START, self._number(operation)
            case Wait(stream):
                return kinds.WAIT, stream
            case WaitFor(operation):
                return kinds.WAIT_FOR, self._number(operation)
            case Couple(members):
                return kinds.COUPLE, self._plan.meeting(members or self._machine_of(rank))

    def _number(self, operation: Operation) -> int:
        known = self._numbers.get(id(operation))
        if known is None:
            known = self._plan.add_operation(operation), operation
            self._numbers[id(operation)] = known
        return known[0]
