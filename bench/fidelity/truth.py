# SPDX-License-Identifier: Apache-2.0
"""What a simulated job really did, in the terms of the analysis: groups, operators, and why slots waited.

A slot's true input follows from the program: its rank runs operations one after the other, and in each the
steps of its threads; a slot is sent once everything has come that these steps take up to its own. So
``input`` is the last delivery that held it up, whether or not the rank computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.output.records import NEVER, Records
from sim.output.wait_states import credit_times
from sim.planning.collectives import Operation
from sim.planning.plan import Table
from sim.planning.world import World
from sim.simulate import Outcome

SLOT = np.dtype(
    [
        ("lane", "<u4"),
        ("step", "<i4"),
        ("operator", "<i8"),
        ("input", "<i8"),
        ("staged", "<i8"),
        ("credit", "<i8"),
        ("posted", "<i8"),
        ("delivered", "<i8"),
    ]
)
"""One slot: when its last input came, its GPU had filled it, its credit was there, it was posted and
delivered (true ns since the simulation began); its training step (-1 = warm-up), its operator's number."""

OPERATOR = np.dtype([("begin", "<i8"), ("end", "<i8"), ("step", "<i4")])

DIMENSION_OF_KIND = {
    "ring": "dp",
    "tree_up": "dp",
    "tree_down": "dp",
    "alltoall": "ep",
    "kv": "cp",
    "forward": "pp",
    "backward": "pp",
}
ALGORITHM_OF_KIND = {
    "ring": "ring",
    "tree_up": "tree",
    "tree_down": "tree",
    "alltoall": "alltoall",
    "kv": "ring",
    "forward": "pairwise",
    "backward": "pairwise",
}
KIND_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "reduce_scatter_or_all_gather",
    "reduce_scatter": "reduce_scatter_or_all_gather",
    "all_to_all": "alltoall",
    "send_recv": "sendrecv",
}


@dataclass(frozen=True, slots=True)
class TrueGroup:
    """Lanes that one communicator uses for one purpose, as far as they touch each other.

    ``nics`` and ``lanes`` by number; ``kinds`` as reports name them; ``stages`` are the NICs of a pipeline
    in the order of its stages, empty elsewhere.
    """

    job: int
    dimension: str
    algorithm: str
    kinds: frozenset[str]
    lanes: frozenset[int]
    nics: frozenset[int]
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunTruth:
    """All slots, lane by lane in order, ``first`` of every lane, and the groups."""

    slots: Table
    first: np.ndarray[Any, np.dtype[np.int64]]
    groups: tuple[TrueGroup, ...]


def run_truth(outcome: Outcome, records: Records) -> RunTruth:
    """What really happened in a run that has ended."""
    walk = _Walk(outcome.world, records)
    by_rank: dict[int, list[tuple[int, int, int]]] = {}
    for rank, step, number, _, enter, _ in outcome.simulation.operations.tolist():
        by_rank.setdefault(rank, []).append((enter, step, number))
    for operations in by_rank.values():
        walk.rank(operations)
    return RunTruth(walk.slots, walk.first, tuple(_groups(outcome.world, walk)))


class _Walk:
    """Goes through the operations of every rank and notes what each slot belongs to and needs."""

    def __init__(self, world: World, records: Records) -> None:
        source = records.slots
        self.slots = np.zeros(len(source), SLOT)
        self.slots["lane"], self.slots["step"], self.slots["operator"] = source["lane"], NEVER, NEVER
        for name in ("staged", "posted", "delivered"):
            self.slots[name] = source[f"{name}_ns"]
        self.slots["credit"] = credit_times(records)
        self.first = np.searchsorted(source["lane"], np.arange(len(world.lanes) + 1)).astype(np.int64)
        self.use: dict[int, tuple[str, set[str]]] = {}
        self._world = world
        self._delivered = source["delivered_ns"].tolist()
        self._input = [NEVER] * len(source)
        self._sent = self.first.tolist()
        self._taken = self.first.tolist()
        self._operators: dict[Hashable, int] = {}

    def rank(self, operations: list[tuple[int, int, int]]) -> None:
        """All operations (entered, step, number) of one rank."""
        come, place, last_step = NEVER, 0, NEVER
        for entered, step, number in sorted(operations):
            if entered < 0:
                continue
            place = place + 1 if step == last_step else 0
            last_step = step
            come = self._operation(self._world.plan.operations[number], step, place, come)
        self.slots["input"] = self._input

    def _operation(self, operation: Operation, step: int, place: int, come: int) -> int:
        """Note one operation; gives when the last of what it takes had come."""
        last = come
        for thread in operation.threads:
            have = come
            for part in thread:
                for lane in part.receive:
                    row = self._taken[lane]
                    self._taken[lane] += 1
                    have = max(have, self._delivered[row] if row < self.first[lane + 1] else NEVER)
                for lane in part.send:
                    self._send(lane, operation, step, place, have)
            last = max(last, have)
        return last

    def _send(self, lane: int, operation: Operation, step: int, place: int, have: int) -> None:
        row = self._sent[lane]
        self._sent[lane] += 1
        if row >= self.first[lane + 1]:
            return
        key = _operator_key(operation, self._world.lanes[lane].kind, step, place)
        self._input[row] = have
        self.slots["step"][row] = step
        self.slots["operator"][row] = self._operators.setdefault(key, len(self._operators))
        if step >= 0:
            _, kinds = self.use.setdefault(lane, (_communicator(operation), set()))
            kinds.add(KIND_NAMES.get(operation.kind, operation.kind))


def _operator_key(operation: Operation, lane_kind: str, step: int, place: int) -> Hashable:
    """Collectives have tags of their own; a hop round a ring is one operator, a pipeline's step is one."""
    if operation.kind != "send_recv":
        return operation.tag
    name = _communicator(operation)
    return (name, "kv", step, place) if lane_kind == "kv" else (name, "pp", step)


def _communicator(operation: Operation) -> str:
    """The name of the communicator, which every tag begins with."""
    tag = operation.tag
    return str(tag[0]) if isinstance(tag, tuple) else str(tag)


def _groups(world: World, walk: _Walk) -> Iterable[TrueGroup]:
    uses: dict[tuple[str, str], list[int]] = {}
    for lane, (name, _) in walk.use.items():
        kind = world.lanes[lane].kind
        uses.setdefault((name, DIMENSION_OF_KIND.get(kind, "unknown")), []).append(lane)
    for (_, dimension), lanes in uses.items():
        for part in _touching(world, lanes):
            kinds = frozenset().union(*(walk.use[lane][1] for lane in part))
            kind = world.lanes[part[0]].kind
            ends = {r for lane in part for r in (world.lanes[lane].sender, world.lanes[lane].receiver)}
            job = world.ranks[min(ends)].job
            yield TrueGroup(
                job,
                dimension if _joins_replicas(world, job, dimension) else "unknown",
                ALGORITHM_OF_KIND.get(kind, "unknown"),
                kinds,
                frozenset(part),
                frozenset(world.ranks[r].nic for r in ends),
                _stages(world, part) if dimension == "pp" else (),
            )


def _joins_replicas(world: World, job: int, dimension: str) -> bool:
    """A single pipeline has no replicas: what joins its stages is no data parallelism."""
    spec = world.scenario.jobs[job]
    return dimension != "dp" or not 1 < spec.stages == len(spec.machines)


def _touching(world: World, lanes: list[int]) -> list[list[int]]:
    """The connected parts of some lanes."""
    root: dict[int, int] = {}

    def find(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            rank = root[rank]
        return rank

    for lane in lanes:
        root[find(world.lanes[lane].sender)] = find(world.lanes[lane].receiver)
    parts: dict[int, list[int]] = {}
    for lane in sorted(lanes):
        parts.setdefault(find(world.lanes[lane].sender), []).append(lane)
    return list(parts.values())


def _stages(world: World, lanes: list[int]) -> tuple[int, ...]:
    """The NICs of a pipeline, the first stage first: along the lanes that carry activations forward."""
    onward = {
        world.lanes[lane].sender: world.lanes[lane].receiver
        for lane in lanes
        if world.lanes[lane].kind == "forward"
    }
    at = next(rank for rank in onward if rank not in onward.values())
    order = [at]
    while at in onward:
        at = onward[at]
        order.append(at)
    return tuple(world.ranks[rank].nic for rank in order)


def true_operators(truth: RunTruth, group: TrueGroup) -> Table:
    """The operators of a group in order of time (OPERATOR), the warm-up on its lanes included."""
    rows = np.concatenate([np.arange(*truth.first[lane : lane + 2]) for lane in sorted(group.lanes)])
    slots = truth.slots[rows]
    slots = slots[(slots["operator"] != NEVER) & (slots["delivered"] != NEVER)]
    numbers, which = np.unique(slots["operator"], return_inverse=True)
    out = np.zeros(len(numbers), OPERATOR)
    out["begin"] = np.iinfo(np.int64).max
    np.minimum.at(out["begin"], which, slots["posted"])
    np.maximum.at(out["end"], which, slots["delivered"])
    out["step"][which] = slots["step"]
    return out[np.argsort(out["begin"], kind="stable")]
