# SPDX-License-Identifier: Apache-2.0
"""What really happened in a simulation, in true nanoseconds since its beginning; -1 = never."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sim.planning.collectives import Operation
from sim.planning.plan import PS_PER_NS, Table
from sim.planning.world import World
from sim.simulate import Outcome

NEVER = -1


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """One operation of one rank; one that was entered and never left has no end.

    ``group`` and ``number`` are those of its ``Operation``; ``expected`` are the bytes that it asks to be
    sent to each rank.
    """

    kind: str
    size: int
    tag: int
    enter_ns: int
    end_ns: int
    group: str = ""
    number: int = -1
    expected: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class StepTimes:
    """One step of one rank; compute and pause are what its program asked for."""

    step: int
    begin_ns: int
    first_operation_ns: int
    last_operation_ns: int
    end_ns: int
    compute_ns: int
    pause_ns: int
    operations: list[OperationTimes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Records:
    """The steps of every rank, and all slots and credits as tables with times in ns."""

    steps: dict[int, list[StepTimes]]
    slots: Table
    credits: Table


def records_of(outcome: Outcome) -> Records:
    """Collect what the engine has noted."""
    world, simulation = outcome.world, outcome.simulation
    steps: dict[int, list[StepTimes]] = {rank.number: [] for rank in world.ranks}
    current: dict[tuple[int, int], StepTimes] = {}
    asked: dict[int, dict[int, int]] = {}  # by the threads of operations, which the plan keeps alive
    for row in simulation.steps.tolist():
        rank, step, *times = row
        info = world.ranks[rank]
        begin, first, last, end = (_ns(time) for time in times)
        one = StepTimes(
            step, begin, first, last, end, info.compute_ns.get(step, 0), info.pause_ns.get(step, 0)
        )
        steps[rank].append(one)
        current[rank, step] = one
    for rank, step, number, _, enter, end in simulation.operations.tolist():
        operation = world.plan.operations[number]
        tag = world.plan.rows["operations"][number][1]
        expected = asked.setdefault(id(operation.threads), {})
        if not expected:
            expected.update(_bytes_by_receiver(world, operation))
        times = OperationTimes(
            operation.kind,
            operation.size,
            tag,
            _ns(enter),
            _ns(end),
            operation.group,
            operation.number,
            expected,
        )
        if (rank, step) in current:
            current[rank, step].operations.append(times)
    return Records(steps, _in_ns(simulation.slots), _in_ns(simulation.credits))


def _bytes_by_receiver(world: World, operation: Operation) -> dict[int, int]:
    found: dict[int, int] = {}
    for thread in operation.threads:
        for step in thread:
            for lane in step.send:
                receiver = world.lanes[lane].receiver
                found[receiver] = found.get(receiver, 0) + step.size
    return found


def _ns(time_ps: int) -> int:
    return NEVER if time_ps < 0 else time_ps // PS_PER_NS


def _in_ns(table: Table) -> Table:
    names = table.dtype.names or ()
    renamed = [
        (name.removesuffix("_ps") + "_ns" if name.endswith("_ps") else name, table.dtype[name])
        for name in names
    ]
    result = np.empty(len(table), dtype=renamed)
    for name, (new_name, _) in zip(names, renamed, strict=True):
        column = table[name]
        result[new_name] = np.where(column < 0, NEVER, column // PS_PER_NS) if name != new_name else column
    return result


def iteration_times_ms(records: Records, ranks: list[int]) -> list[float]:
    """Per completed step: from the last rank's start to the last rank's end, so that they add up."""
    times: list[float] = []
    for steps in zip(*(records.steps[rank] for rank in ranks), strict=False):
        if all(step.end_ns >= 0 for step in steps):
            begin = max(step.begin_ns for step in steps)
            times.append(round((max(step.end_ns for step in steps) - begin) / 1e6, 4))
    return times
