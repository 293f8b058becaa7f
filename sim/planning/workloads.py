# SPDX-License-Identifier: Apache-2.0
"""What a rank does in one training iteration, as generators of commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from sim.planning.collectives import Operation
from sim.planning.commands import (
    Announce,
    Begin,
    Command,
    Compute,
    Couple,
    End,
    Pause,
    Program,
    Start,
    Wait,
    WaitFor,
)
from sim.planning.communicators import Communicator
from sim.spec import Algorithm, Dispatch, JobSpec, Workload, stream

SMALL_BYTES = 32_768
WARM_UP_BYTES = 131_072


@dataclass(slots=True)
class Part:
    """One rank's place in its job.

    ``position`` counts the machines of the job along one rail; ``rail_group`` joins them; ``world_group``
    joins all GPUs, machine-major. ``coupled`` ranks wait for their machine within compute. In
    ``mismatch_step`` the rank runs a collective of another size.
    """

    job: JobSpec
    seed: int
    position: int
    rail: int
    gpus: int
    rail_group: Communicator
    world_group: Communicator
    stage_group: Communicator | None
    coupled: bool
    mismatch_step: int = -1

    @property
    def ranks(self) -> int:
        """Ranks along this rail."""
        return len(self.job.machines)


def program(part: Part) -> Program:
    """The whole run of one rank: warm-up, steps, pauses."""
    yield from _run(part.rail_group.all_reduce(part.position, WARM_UP_BYTES, part.job.algorithm))
    body = _BODIES[part.job.workload]
    if part.job.workload is Workload.MOE:
        yield from _run(_all_to_all(part, -1, 0))
    for step in range(part.job.steps):
        yield Begin(step)
        yield from body(part, step)
        yield Wait()
        yield End(step)
        if part.job.pause_every and (step + 1) % part.job.pause_every == 0:
            yield Pause(part.job.pause_ns)


def _run(operation: Operation) -> Iterator[Command]:
    yield Start(operation)
    yield Wait()


def _base_ns(part: Part, step: int) -> int:
    """Compute of a whole step; the first steps of a run may take longer."""
    longer = 1.0 + 0.8 * (part.job.long_first_steps - step) if step < part.job.long_first_steps else 1.0
    return int(part.job.compute_ns * longer)


def _compute(part: Part, duration_ns: int, first: bool = False) -> Iterator[Command]:
    """Compute, cut by the points at which the GPUs of a machine wait for each other."""
    if not part.coupled:
        yield Compute(duration_ns, first)
        return
    layers = max(1, part.job.layers)
    for layer in range(layers):
        yield Compute(duration_ns // layers, first and layer == 0)
        yield Couple()


@cache
def bucket_sizes(job: JobSpec, seed: int) -> tuple[int, ...]:
    """Unequal gradient buckets that add up to the job's collective bytes; the same in every step."""
    if job.buckets <= 1:
        return (job.collective_bytes,)
    weights = stream(seed, "buckets").uniform(0.5, 1.5, job.buckets)
    return tuple(max(4096, int(job.collective_bytes * w) // 4096 * 4096) for w in weights / weights.sum())


def _dp(part: Part, step: int) -> Iterator[Command]:
    sizes = list(bucket_sizes(part.job, part.seed))
    if step == part.mismatch_step:
        sizes[0] = sizes[0] // 2 // 512 * 512 + 512
    operations = [part.rail_group.all_reduce(part.position, size, part.job.algorithm) for size in sizes]
    for operation in operations:
        yield Announce(operation)
    total = _base_ns(part, step)
    if part.job.overlap and len(operations) > 1:
        yield from _compute(part, total // 3, first=True)
        for operation in operations:
            yield from _compute(part, 2 * total // 3 // len(operations))
            yield from _start(part, operation)
    else:
        yield from _compute(part, total, first=True)
        for operation in operations:
            yield from _start(part, operation)
    yield Wait()


def _start(part: Part, operation: Operation) -> Iterator[Command]:
    """Start a collective; with NVLS the GPUs of a machine first add up what they have."""
    if part.job.algorithm is Algorithm.NVLS and part.coupled:
        yield Couple()
    yield Start(operation)


def _fsdp(part: Part, step: int) -> Iterator[Command]:
    if part.job.prefetch:
        yield from _fsdp_ahead(part, step)
    else:
        yield from _sequence(part, _fsdp_items(part, step))


def _fsdp_ahead(part: Part, step: int) -> Iterator[Command]:
    """Each layer is gathered while the one before it is computed; gradients leave behind the next gather."""
    layers = part.job.layers
    size = part.job.collective_bytes // layers
    if step == part.mismatch_step:
        size = size // 2 // 512 * 512 + 512
    unit = _base_ns(part, step) // (3 * layers)
    group, position = part.rail_group, part.position
    gathers = [group.all_gather(position, size) for _ in range(2 * layers)]
    yield Announce(gathers[0])
    yield Start(gathers[0])
    for place, gather in enumerate(gathers):
        yield WaitFor(gather)
        if place + 1 < len(gathers):
            yield Start(gathers[place + 1])
        backward = place >= layers
        yield from _compute(part, 2 * unit if backward else unit, first=place == 0)
        if backward:
            yield Start(group.reduce_scatter(position, size))
    yield Wait()


def _fsdp_items(part: Part, step: int) -> Iterator[Operation | int]:
    layers = part.job.layers
    size = part.job.collective_bytes // layers
    if step == part.mismatch_step:
        size = size // 2 // 512 * 512 + 512
    unit = _base_ns(part, step) // (3 * layers)
    group, position = part.rail_group, part.position
    for _ in range(layers):
        yield group.all_gather(position, size)
        yield unit
    for _ in range(layers):
        yield group.all_gather(position, size)
        yield 2 * unit
        yield group.reduce_scatter(position, size)


def _all_to_all(part: Part, step: int, number: int) -> Operation:
    job, ranks = part.job, part.ranks
    group, position = part.rail_group, part.position
    shares = 1
    if job.dispatch is Dispatch.DIRECT:
        group, position, ranks = part.world_group, part.position * part.gpus + part.rail, ranks * part.gpus
    elif job.dispatch is Dispatch.PXN:
        shares = part.gpus
    spread = 0.35 if job.uneven else 0.0
    rail = 0 if job.dispatch is Dispatch.DIRECT else part.rail
    sizes = _tokens(part.seed, step, number, rail, ranks, shares, spread)
    sizes = sizes * (job.collective_bytes / max(1, ranks * 2 * job.layers))
    if step == part.mismatch_step and step >= 0:
        sizes = sizes * 0.5
    whole = np.maximum(512, sizes // 512 * 512).astype(np.int64)
    if job.dispatch is Dispatch.DIRECT:  # neighbours within a machine need no NIC
        machine = np.arange(ranks) // part.gpus
        whole[machine[:, None] == machine[None, :]] = 0
    return group.all_to_all(position, whole)


@lru_cache(maxsize=256)
def _tokens(
    seed: int, step: int, number: int, rail: int, ranks: int, shares: int, spread: float
) -> np.ndarray:
    """What each pair exchanges, relative to the mean; each entry is the mean of ``shares`` draws."""
    if spread == 0.0:
        return np.ones((ranks, ranks))
    rng = stream(seed, "tokens", step + 1, number, rail)
    return np.asarray(rng.lognormal(0.0, spread, (shares, ranks, ranks)).mean(axis=0))


def _moe(part: Part, step: int) -> Iterator[Command]:
    yield from _sequence(part, _moe_items(part, step))


def _moe_items(part: Part, step: int) -> Iterator[Operation | int]:
    unit = _base_ns(part, step) // (2 * part.job.layers + 1)
    for block in range(part.job.layers):
        yield unit
        yield _all_to_all(part, step, 2 * block)
        yield unit
        yield _all_to_all(part, step, 2 * block + 1)
    yield unit
    yield part.rail_group.all_reduce(part.position, part.job.dense_bytes or SMALL_BYTES)


def _cp(part: Part, step: int) -> Iterator[Command]:
    """Keys and values go round the ring while attention is computed on those that are here; then gradients.

    Backward hops carry the gradients of keys and values as well.
    """
    job, group = part.job, part.rail_group
    hops = part.ranks - 1
    unit = _base_ns(part, step) // (3 * job.layers * (hops + 1))
    after, before = (part.position + 1) % part.ranks, (part.position - 1) % part.ranks
    for layer in range(2 * job.layers):
        backward = layer >= job.layers
        size = job.activation_bytes * (2 if backward else 1)
        for hop in range(hops):
            exchange = group.exchange(part.position, [(after, size, "kv")], [(before, size, "kv")])
            yield Start(exchange)
            yield from _compute(part, unit * (2 if backward else 1), first=layer == 0 and hop == 0)
            yield Wait()
        yield from _compute(part, unit * (2 if backward else 1))
    size = job.collective_bytes if step != part.mismatch_step else job.collective_bytes // 2
    yield from _run(group.all_reduce(part.position, size, job.algorithm))


def _pp(part: Part, step: int) -> Iterator[Command]:
    yield from _sequence(part, _one_f_one_b(part, step))


def _sequence(part: Part, items: Iterator[Operation | int]) -> Iterator[Command]:
    """Compute times and operations one after the other; the host knows each operation one phase ahead."""
    schedule = list(items)
    first = True
    for place, item in enumerate(schedule):
        if isinstance(item, Operation):
            if item.kind == "all_to_all" and part.job.dispatch is Dispatch.PXN and part.coupled:
                yield Couple()  # what goes through the local GPU must have come from all of the machine
            yield from _run(item)
            continue
        following = schedule[place + 1] if place + 1 < len(schedule) else None
        if isinstance(following, Operation):
            yield Announce(following)
        yield from _compute(part, item, first)
        first = False


def _one_f_one_b(part: Part, step: int) -> Iterator[Operation | int]:
    """Warm-up forwards, then one forward and one backward in turn, then cool-down backwards."""
    job = part.job
    replicas = part.ranks // job.stages
    stage = part.position // replicas
    factor = job.stage_factors[stage] if job.stage_factors else 1.0
    forward = int(_base_ns(part, step) * factor) // (3 * job.micro_batches)
    backward = 2 * forward
    size = job.activation_bytes
    before = [(part.position - replicas, size)] if stage > 0 else []
    after = [(part.position + replicas, size)] if stage < job.stages - 1 else []

    def move(
        send_forward: bool = False,
        send_back: bool = False,
        take_forward: bool = False,
        take_back: bool = False,
    ) -> Iterator[Operation]:
        sends = [(p, s, "forward") for p, s in after if send_forward] + [
            (p, s, "backward") for p, s in before if send_back
        ]
        takes = [(p, s, "forward") for p, s in before if take_forward] + [
            (p, s, "backward") for p, s in after if take_back
        ]
        if sends or takes:
            yield part.rail_group.exchange(part.position, sends, takes)

    warm = min(job.stages - stage - 1, job.micro_batches)
    steady = job.micro_batches - warm
    for _ in range(warm):
        yield from move(take_forward=True)
        yield forward
        yield from move(send_forward=True)
    if steady:
        yield from move(take_forward=True)
    for turn in range(steady):
        yield forward
        yield from move(send_forward=True, take_back=True)
        yield backward
        yield from move(send_back=True, take_forward=turn < steady - 1)
    for _ in range(warm):
        yield from move(take_back=True)
        yield backward
        yield from move(send_back=True)
    group = part.stage_group
    size = job.collective_bytes if step != part.mismatch_step else job.collective_bytes // 2
    if group is not None:
        yield group.all_reduce(group.members.index(part.rail_group.members[part.position]), size)


_BODIES = {
    Workload.DP: _dp,
    Workload.FSDP: _fsdp,
    Workload.MOE: _moe,
    Workload.PP: _pp,
    Workload.CP: _cp,
}
