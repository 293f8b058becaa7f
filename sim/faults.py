# SPDX-License-Identifier: Apache-2.0
"""Faults and controls: each changes one physical property of the running world, at its onset step.

Nothing here touches a time that another rank sees; neighbours suffer through packets alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from sim.collectives import Operation
from sim.network import Nic
from sim.ranks import Rank
from sim.spec import FaultKind, FaultSpec, SimulationError, Workload, stream
from sim.traffic import collide, congest, lose_on_path, slow_leaf
from sim.world import World

STOPS_JOB = frozenset(
    {FaultKind.LINK_DOWN, FaultKind.NIC_DEAD, FaultKind.HANG, FaultKind.CRASH, FaultKind.OP_MISMATCH}
)


def install(world: World, fault: FaultSpec) -> None:
    """Arm ``fault`` in ``world``."""
    _INSTALLERS[fault.kind](world, fault)


def _rng(world: World, fault: FaultSpec, *labels: str | int) -> np.random.Generator:
    return stream(world.scenario.seed, "fault", fault.kind.value, *labels)


def _machine(fault: FaultSpec) -> int:
    if fault.machine is None:
        raise SimulationError(f"fault {fault.kind}: give the machine that it hits")
    return fault.machine


def _culprit(world: World, fault: FaultSpec) -> Rank:
    rank = world.ranks[_machine(fault) * world.scenario.nics_per_machine + fault.nic]
    if rank.job < 0:
        raise SimulationError(f"fault {fault.kind}: machine {fault.machine} runs no job")
    return rank


def _at_step(world: World, fault: FaultSpec, rank: Rank, action: Callable[[], None]) -> None:
    """Run ``action`` once, when ``rank`` begins the onset step."""

    def check(begun: int) -> None:
        if begun == fault.onset_step:
            world.mark_onset(fault.kind)
            action()

    rank.on_step.append(check)


def _at_collective(world: World, fault: FaultSpec, action: Callable[[Operation], None]) -> None:
    """Run ``action`` once, when the culprit enters a collective of the onset step, drawn among them."""
    rank = _culprit(world, fault)
    draw = float(_rng(world, fault, "which").random())
    entered = [0]

    def check(step: int, operation: Operation) -> None:
        if step == fault.onset_step:
            usual = len(rank.steps[-2].operations) if len(rank.steps) > 1 else 1
            if entered[0] == int(draw * usual):
                action(operation)
            entered[0] += 1

    rank.on_enter.append(check)


def _inside_collective(world: World, fault: FaultSpec, action: Callable[[], None]) -> None:
    """Run ``action`` some way into a collective of the onset step."""
    fraction = float(_rng(world, fault, "when").uniform(0.15, 0.6))

    def strike() -> None:
        world.mark_onset(fault.kind)
        action()

    def wait(operation: Operation) -> None:
        world.loop.after(int(fraction * operation.size * 8 / world.scenario.network.rate_gbps), strike)

    _at_collective(world, fault, wait)


# ---- compute


def _slow_compute(world: World, fault: FaultSpec) -> None:
    culprit = _culprit(world, fault)
    _at_step(world, fault, culprit, _nothing)

    def factor(rank: int, step: int) -> float:
        return fault.factor if rank == culprit.number and step >= fault.onset_step else 1.0

    world.compute.factors.append(factor)


def _input_stall(world: World, fault: FaultSpec) -> None:
    culprit = _culprit(world, fault)
    _at_step(world, fault, culprit, _nothing)
    rng = _rng(world, fault)

    def extra(rank: int, step: int, first: bool) -> int:
        if rank != culprit.number or step < fault.onset_step or not first:
            return 0
        return int(fault.duration_ns * rng.uniform(0.7, 1.3))

    world.compute.extras.append(extra)


def _cpu_contention(world: World, fault: FaultSpec) -> None:
    """Other processes take the CPU in turns: compute stretches irregularly and the proxy runs late."""
    rails = world.scenario.nics_per_machine
    machine = _machine(fault)
    _at_step(world, fault, _culprit(world, fault), _nothing)
    compute_rng = _rng(world, fault, "compute")

    def factor(rank: int, step: int) -> float:
        if rank // rails != machine or step < fault.onset_step:
            return 1.0
        return 1.0 + (fault.factor - 1.0) * float(compute_rng.uniform(0.4, 1.6))

    world.compute.factors.append(factor)
    for rail in range(rails):
        rank = world.ranks[machine * rails + rail]
        rng = _rng(world, fault, "proxy", rail)
        rank.host.hold_ns = partial(_time_slice, world, fault, rng)


def _time_slice(world: World, fault: FaultSpec, rng: np.random.Generator) -> int:
    if fault.kind not in world.onsets_ns or rng.random() >= fault.probability:
        return 0
    return int(rng.exponential(fault.duration_ns))


# ---- NIC and link


def _nic(world: World, fault: FaultSpec) -> Nic:
    return _culprit(world, fault).nic


def _slow_nic(world: World, fault: FaultSpec) -> None:
    nic = _nic(world, fault)

    def slow() -> None:
        if fault.ingress:
            world.fabrics[nic.address.rail].access_port(nic).ns_per_byte *= fault.factor
        if fault.before_tap:
            nic.ns_per_byte *= fault.factor
        else:
            nic.wire_ns_per_byte = nic.ns_per_byte * fault.factor
            nic.shaper_buffer_ns = int(65_536 * nic.wire_ns_per_byte)

    _at_step(world, fault, _culprit(world, fault), slow)


def _slow_receiver(world: World, fault: FaultSpec) -> None:
    nic = _nic(world, fault)
    port = world.fabrics[nic.address.rail].access_port(nic)

    def slow() -> None:
        nic.drain_ns_per_byte = nic.ns_per_byte * fault.factor
        nic.drain_buffer_ns = int(131_072 * nic.drain_ns_per_byte)
        port.paused_until = nic.drain_pause_until

    _at_step(world, fault, _culprit(world, fault), slow)


def _packet_loss(world: World, fault: FaultSpec) -> None:
    nic = _nic(world, fault)
    rng = _rng(world, fault)

    def lost() -> bool:
        return bool(rng.random() < fault.probability)

    def start() -> None:
        if fault.ingress:
            world.fabrics[nic.address.rail].access_port(nic).loss = lost
        elif fault.before_tap:
            nic.loss_before_tap = lost
        else:
            nic.loss_on_wire = lost

    _at_step(world, fault, _culprit(world, fault), start)


def _set_link(world: World, nic: Nic, up: bool) -> None:
    nic.port_off = not up
    world.fabrics[nic.address.rail].access_port(nic).off = not up


def _link_down(world: World, fault: FaultSpec) -> None:
    _inside_collective(world, fault, partial(_set_link, world, _nic(world, fault), False))


def _link_flap(world: World, fault: FaultSpec) -> None:
    nic = _nic(world, fault)

    def down() -> None:
        _set_link(world, nic, False)
        world.loop.after(fault.duration_ns, back)

    def back() -> None:
        world.recovery_ns = world.loop.now
        _set_link(world, nic, True)

    _inside_collective(world, fault, down)


def _nic_dead(world: World, fault: FaultSpec) -> None:
    nic = _nic(world, fault)

    def die() -> None:
        nic.dead = True

    _inside_collective(world, fault, die)


# ---- processes


def _hang(world: World, fault: FaultSpec) -> None:
    rank = _culprit(world, fault)

    def stop(operation: Operation) -> None:
        world.mark_onset(fault.kind)
        rank.stop()

    _at_collective(world, fault, stop)


def _crash(world: World, fault: FaultSpec) -> None:
    """The process is killed, inside a collective or while it computes; its queue pairs go with it."""
    rank = _culprit(world, fault)

    def die() -> None:
        rank.stop()
        for queue_pair in list(rank.nic.queue_pairs.values()):
            queue_pair.destroy()

    if _rng(world, fault, "where").random() < 0.5:
        _inside_collective(world, fault, die)
        return
    compute_ns = world.scenario.jobs[rank.job].compute_ns
    delay_ns = int(compute_ns * _rng(world, fault, "when").uniform(0.1, 0.8))

    def strike() -> None:
        world.mark_onset(fault.kind)
        die()

    def wait(step: int) -> None:
        if step == fault.onset_step:
            world.loop.after(delay_ns, strike)

    rank.on_step.append(wait)


def _op_mismatch(world: World, fault: FaultSpec) -> None:
    rank = _culprit(world, fault)
    world.parts[rank.number].mismatch_step = fault.onset_step
    _at_step(world, fault, rank, _nothing)


# ---- controls


def _random_pauses(world: World, fault: FaultSpec) -> None:
    """Pauses of random ranks in random steps; nobody is hit more often than chance has it."""

    def extra(rank: int, step: int, first: bool) -> int:
        if step < fault.onset_step or not first:
            return 0
        hit, size = _rng(world, fault, rank, step).random(2)
        return int(fault.duration_ns * (0.5 + size)) if hit < fault.probability else 0

    world.compute.extras.append(extra)


def _periodic_pause(world: World, fault: FaultSpec) -> None:
    """A checkpoint: every few steps all ranks stop, each a little differently long."""

    def extra(rank: int, step: int, first: bool) -> int:
        if not first or step < fault.onset_step or step % fault.period_steps:
            return 0
        return int(fault.duration_ns * _rng(world, fault, rank, step).uniform(0.9, 1.1))

    world.compute.extras.append(extra)


def _on_the_path(change: Callable[[World, FaultSpec], None]) -> Callable[[World, FaultSpec], None]:
    """An installer that changes the fabric at the onset step; no machine has a part in it."""

    def install_change(world: World, fault: FaultSpec) -> None:
        _at_step(world, fault, world.training_ranks[0], partial(change, world, fault))

    return install_change


def _described_elsewhere(world: World, fault: FaultSpec) -> None:
    """Imbalances are properties of the job and its noise, present from the first step on."""
    stages = any(job.workload is Workload.PP and job.stage_factors for job in world.scenario.jobs)
    if fault.kind is FaultKind.STAGE_IMBALANCE and not stages:
        raise SimulationError("fault stage_imbalance: give a pp job with stage_factors")
    if fault.kind is FaultKind.IMBALANCE and world.scenario.noise.imbalance <= 0:
        raise SimulationError("fault imbalance: give noise.imbalance > 0")


def _nothing() -> None:
    """The onset is only marked; the change itself is bound to step numbers."""


_INSTALLERS: dict[FaultKind, Callable[[World, FaultSpec], None]] = {
    FaultKind.SLOW_COMPUTE: _slow_compute,
    FaultKind.SLOW_NIC: _slow_nic,
    FaultKind.SLOW_RECEIVER: _slow_receiver,
    FaultKind.PACKET_LOSS: _packet_loss,
    FaultKind.LINK_DOWN: _link_down,
    FaultKind.LINK_FLAP: _link_flap,
    FaultKind.NIC_DEAD: _nic_dead,
    FaultKind.HANG: _hang,
    FaultKind.CRASH: _crash,
    FaultKind.CPU_CONTENTION: _cpu_contention,
    FaultKind.INPUT_STALL: _input_stall,
    FaultKind.OP_MISMATCH: _op_mismatch,
    FaultKind.RANDOM_PAUSES: _random_pauses,
    FaultKind.PERIODIC_PAUSE: _periodic_pause,
    FaultKind.CONGESTION: _on_the_path(congest),
    FaultKind.PATH_COLLISION: _on_the_path(collide),
    FaultKind.SWITCH_PORT: _on_the_path(slow_leaf),
    FaultKind.FABRIC_LOSS: _on_the_path(lose_on_path),
    FaultKind.IMBALANCE: _described_elsewhere,
    FaultKind.STAGE_IMBALANCE: _described_elsewhere,
}
