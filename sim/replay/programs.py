# SPDX-License-Identifier: Apache-2.0
"""Replay of recorded jobs: real compute times and order of operations, modelled bytes.

Communication times are not replayed, since they contain waiting: the simulated network makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sim.planning.collectives import Operation
from sim.planning.commands import Announce, Begin, Command, Compute, Couple, End, Program, Start, Wait
from sim.planning.communicators import Communicator, LaneMaker
from sim.replay.model import Layout, ModelSpec, Scaling, Seat
from sim.replay.schedule import Collective, Floors, Item, Source, Transfer, Work, floors_of, schedule
from sim.replay.trace_file import Trace
from sim.spec import SimulationError, StackSpec

_LOSS_BYTES = 64
_WARM_UP_BYTES = 131_072
# Within a machine data moves without packets. A sum needs all GPUs of the machine before it goes out;
# what comes in by one rail goes to all GPUs of the machine after.
_GATHER_BEFORE = (Collective.GRADIENTS, Collective.LOSS, Collective.NORM, Collective.WARM_UP)
_SPREAD_AFTER = (Collective.PARAMETERS, Collective.LOSS, Collective.NORM, Collective.WARM_UP)
_TENSOR_WORK = (Source.FORWARD, Source.BACKWARD)


class _Groups:
    """The communicators of a replay, made when first asked for.

    Rails never meet, so every group has members at equal places of their machines.
    """

    def __init__(self, layout: Layout, stack: StackSpec, make_lane: LaneMaker) -> None:
        self._layout = layout
        self._new: Callable[[str, list[int]], Communicator] = lambda name, members: Communicator(
            name, members, stack, make_lane
        )
        self._made: dict[str, Communicator] = {}

    def _group(self, name: str, members: list[int]) -> Communicator:
        if name not in self._made:
            self._made[name] = self._new(name, members)
        return self._made[name]

    def pipeline(self, seat: Seat) -> Communicator:
        """The stages of the seat's replica."""
        stages = range(self._layout.stages)
        members = [self._layout.seat((seat.replica, stage), seat.sister).rank for stage in stages]
        return self._group(f"pipeline{seat.replica}.{seat.sister}", members)

    def embedding(self, seat: Seat) -> Communicator:
        """The first and the last stage of the seat's replica."""
        members = self.pipeline(seat).members
        return self._group(f"embedding{seat.replica}.{seat.sister}", sorted({members[0], members[-1]}))

    def data(self, seat: Seat) -> Communicator:
        """The seat's stage along its rail."""
        count, rails = self._layout.machines_per_stage, self._layout.rails
        machines = range(seat.stage * count, (seat.stage + 1) * count)
        return self._group(f"data{seat.stage}.rail{seat.rail}", [m * rails + seat.rail for m in machines])

    def world(self, seat: Seat) -> Communicator:
        """All machines along the seat's rail."""
        rails = self._layout.rails
        members = [machine * rails + seat.rail for machine in range(self._layout.machines)]
        return self._group(f"world.rail{seat.rail}", members)


class _Replay:
    """Everything that the programs of one replay share."""

    def __init__(
        self, trace: Trace, model: ModelSpec, groups: _Groups, scaling: Scaling, layout: Layout
    ) -> None:
        self._trace = trace
        self._model = model
        self._groups = groups
        self._scaling = scaling
        self._layout = layout
        self._floors: dict[int, Floors] = {}

    def _schedule(self, seat: Seat, step: int) -> list[Item]:
        if step not in self._floors:
            self._floors[step] = floors_of(self._trace, step)
        return schedule(self._trace, step, (seat.replica, seat.stage), self._floors[step])

    def program(self, seat: Seat, steps: tuple[int, ...]) -> Program:
        """The whole run of one rank: a warm-up, then the steps back to back."""
        yield from self._items(seat, [Collective.WARM_UP])
        for number, step in enumerate(steps):
            yield Begin(number)
            yield from self._items(seat, self._schedule(seat, step))
            yield End(number)

    def _items(self, seat: Seat, items: list[Item]) -> Iterator[Command]:
        """One item after the other: no two recorded operations of a worker overlap.

        The host knows an operation while the compute before it runs, and may grant credits early.
        """
        operation: Operation | None = None
        for place, item in enumerate(items):
            if isinstance(item, Work):
                following = items[place + 1] if place + 1 < len(items) else None
                operation = None if following is None else self._operation(seat, following)
                yield from self._work(seat, item, operation)
            else:
                operation = operation or self._operation(seat, item)
                yield from self._communicate(seat, item, operation)
                operation = None

    def _work(self, seat: Seat, work: Work, following: Operation | None) -> Iterator[Command]:
        if work.source in _TENSOR_WORK:
            yield from self._couple_worker(seat)
        if following is not None:
            yield Announce(following)
        yield Compute(self._scaling.duration_ns(work.duration_s))

    def _communicate(self, seat: Seat, item: Item, operation: Operation | None) -> Iterator[Command]:
        if item is Collective.LAYERNORM:
            yield from self._couple_worker(seat)
        if item in _GATHER_BEFORE:
            yield from self._couple_machine()
        if operation is not None:
            yield Start(operation)
            yield Wait(operation.stream)
        if item in _SPREAD_AFTER:
            yield from self._couple_machine()

    def _couple_machine(self) -> Iterator[Command]:
        if self._layout.rails > 1:
            yield Couple()

    def _couple_worker(self, seat: Seat) -> Iterator[Command]:
        layout = self._layout
        if layout.sisters == 1:
            return
        worker = (seat.replica, seat.stage)
        members = tuple(layout.seat(worker, sister).rank for sister in range(layout.sisters))
        yield Couple() if layout.rails == layout.sisters else Couple(members)

    def _operation(self, seat: Seat, item: Item) -> Operation | None:
        """The rank's part of an item; None when it sends no packets."""
        if isinstance(item, Work) or item is Collective.LAYERNORM:
            return None
        if isinstance(item, Transfer):
            size = self._scaling.size_bytes(self._model.activation_bytes)
            return self._groups.pipeline(seat).exchange(
                seat.stage,
                [(peer, size, lane) for peer, lane in item.sends],
                [(peer, size, lane) for peer, lane in item.receives],
            )
        group = self._group_of(seat, item)
        if len(group.members) == 1:
            return None
        position, size = group.members.index(seat.rank), self._size(seat, item)
        if item is Collective.PARAMETERS:
            return group.all_gather(position, size)
        if item is Collective.GRADIENTS:
            return group.reduce_scatter(position, size)
        return group.all_reduce(position, size)

    def _group_of(self, seat: Seat, item: Collective) -> Communicator:
        match item:
            case Collective.EMBEDDING:
                return self._groups.embedding(seat)
            case Collective.REPORT:
                return self._groups.pipeline(seat)
            case Collective.NORM | Collective.WARM_UP:
                return self._groups.world(seat)
            case _:
                return self._groups.data(seat)

    def _size(self, seat: Seat, item: Collective) -> int:
        """Bytes along the rank's rail: GPUs of a machine with equal parameters share the work."""
        model, layout = self._model, self._layout
        copies = layout.gpus_per_machine // model.tensor_split
        match item:
            case Collective.PARAMETERS:
                whole = model.parameters(seat.stage, layout.stages) * model.element_bytes
                return self._scaling.size_bytes(whole // copies)
            case Collective.GRADIENTS:
                whole = model.parameters(seat.stage, layout.stages) * model.gradient_bytes
                return self._scaling.size_bytes(whole // copies)
            case Collective.EMBEDDING:
                return self._scaling.size_bytes(model.embedding_parameters * model.gradient_bytes)
            case Collective.WARM_UP:
                return _WARM_UP_BYTES
            case _:
                return _LOSS_BYTES * len(self._group_of(seat, item).members)


def programs(
    trace: Trace,
    model: ModelSpec,
    stack: StackSpec,
    make_lane: LaneMaker,
    layout: Layout,
    scaling: Scaling | None = None,
    steps: int | None = None,
) -> dict[int, Program]:
    """The program of every simulated rank, by rank number (machine x NICs + rail).

    ``steps`` takes the first recorded steps only.
    """
    if trace.width % model.tensor_split or trace.width % model.sequence_split:
        raise SimulationError(
            f"workers have {trace.width} GPUs: tensor_split {model.tensor_split} and "
            f"sequence_split {model.sequence_split} must divide that"
        )
    model.parameters(0, trace.stages)  # complains now, not in the middle of a run
    groups = _Groups(layout, stack, make_lane)
    replay = _Replay(trace, model, groups, scaling or Scaling(), layout)
    chosen = trace.first_steps(steps)
    return {seat.rank: replay.program(seat, chosen) for seat in layout.seats()}
