# SPDX-License-Identifier: Apache-2.0
"""What faults do to compute; fixed before programs are compiled, so that others feel it by packets alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.planning.compute import Phase
from sim.planning.world import RankInfo, World
from sim.spec import FaultKind, FaultSpec, SimulationError, Workload, stream

_LIGHT_PHASE_SHARE = 0.35
_MEMORY_BOUND_SHARE = 0.25


def rng_of(world: World, fault: FaultSpec, *labels: str | int) -> np.random.Generator:
    """The random stream of one fault."""
    return stream(world.scenario.seed, "fault", fault.kind.value, *labels)


def culprit_of(world: World, fault: FaultSpec) -> RankInfo:
    """The rank that the fault hits. Raises SimulationError when there is none."""
    scenario = world.scenario
    if fault.machine is None:
        raise SimulationError(f"fault {fault.kind}: give the machine that it hits")
    if not 0 <= fault.machine < scenario.machines or not 0 <= fault.nic < scenario.nics_per_machine:
        raise SimulationError(
            f"fault {fault.kind}: no machine {fault.machine} with NIC {fault.nic}; there are "
            f"{scenario.machines} machines with {scenario.nics_per_machine} NICs each"
        )
    rank = world.ranks[fault.machine * world.gpus + fault.nic * scenario.gpus_per_nic]
    if rank.job < 0:
        raise SimulationError(f"fault {fault.kind}: machine {fault.machine} runs no job")
    return rank


def shape(world: World, fault: FaultSpec) -> None:
    """Tell the compute model and the workloads what the fault does to them."""
    change = _SHAPERS.get(fault.kind)
    if change is not None:
        change(world, fault)


def _slow_compute(world: World, fault: FaultSpec) -> None:
    culprit = culprit_of(world, fault)

    def factor(rank: int, phase: Phase) -> float:
        return fault.factor if rank == culprit.number and fault.active(phase.step) else 1.0

    world.compute.factors.append(factor)


def _input_stall(world: World, fault: FaultSpec) -> None:
    culprit = culprit_of(world, fault)
    rng = rng_of(world, fault)

    def extra(rank: int, step: int, first: bool) -> int:
        if rank != culprit.number or not fault.active(step) or not first:
            return 0
        return int(fault.duration_ns * rng.uniform(0.7, 1.3))

    world.compute.extras.append(extra)


def _power_cap(world: World, fault: FaultSpec) -> None:
    """Phases of large matrix products lose the most; every second phase stands for them."""
    _in_part(world, fault, lambda phase: 1.0 if phase.number % 2 == 0 else _LIGHT_PHASE_SHARE)


def _slow_memory(world: World, fault: FaultSpec) -> None:
    """Only what memory limits is slow: embedding and optimizer, the first and the last phase of a step."""
    alone = 1  # a step of a single phase holds both, and everything else

    def share(phase: Phase) -> float:
        if phase.of == alone:
            return _MEMORY_BOUND_SHARE
        return 1.0 if phase.at_edge else 0.0

    _in_part(world, fault, share)


def _in_part(world: World, fault: FaultSpec, share: Callable[[Phase], float]) -> None:
    """Slow the culprit's phases, each by its share of the factor."""
    culprit = culprit_of(world, fault)

    def factor(rank: int, phase: Phase) -> float:
        if rank != culprit.number or not fault.active(phase.step):
            return 1.0
        return 1.0 + (fault.factor - 1.0) * share(phase)

    world.compute.factors.append(factor)


def _slow_nvlink(world: World, fault: FaultSpec) -> None:
    """All GPUs of the machine wait for each other's slow links in every coupled phase."""
    machine = culprit_of(world, fault).machine
    if world.gpus < 2:
        raise SimulationError(
            "fault slow_nvlink: give machines of several GPUs, which tensor parallelism couples"
        )

    def factor(rank: int, phase: Phase) -> float:
        hit = world.ranks[rank].machine == machine and fault.active(phase.step)
        return fault.factor if hit else 1.0

    world.compute.factors.append(factor)


def growth_steps(fault: FaultSpec) -> int:
    """Steps from the onset of a growing fault to its full strength."""
    return max(1, fault.period_steps)


def growth(fault: FaultSpec, step: int) -> float:
    """The share of its strength that a growing fault has in ``step``; it rises in equal parts per step."""
    return min(1.0, max(0.0, (step - fault.onset_step + 1) / growth_steps(fault)))


def _cpu_contention(world: World, fault: FaultSpec) -> None:
    """Other processes take the CPU in turns: compute stretches irregularly (and the proxy runs late).

    Memory pressure does the same and grows.
    """
    machine = culprit_of(world, fault).machine
    rng = rng_of(world, fault, "compute")

    def factor(rank: int, phase: Phase) -> float:
        if world.ranks[rank].machine != machine or not fault.active(phase.step):
            return 1.0
        grown = growth(fault, phase.step) if fault.kind is FaultKind.MEMORY_PRESSURE else 1.0
        return 1.0 + (fault.factor - 1.0) * grown * float(rng.uniform(0.4, 1.6))

    world.compute.factors.append(factor)


def _op_mismatch(world: World, fault: FaultSpec) -> None:
    world.parts[culprit_of(world, fault).number].mismatch_step = fault.onset_step


def _random_pauses(world: World, fault: FaultSpec) -> None:
    """Pauses of random ranks in random steps; nobody is hit more often than chance has it."""

    def extra(rank: int, step: int, first: bool) -> int:
        if not fault.active(step) or not first:
            return 0
        hit, size = rng_of(world, fault, rank, step).random(2)
        return int(fault.duration_ns * (0.5 + size)) if hit < fault.probability else 0

    world.compute.extras.append(extra)


def _periodic_pause(world: World, fault: FaultSpec) -> None:
    """A checkpoint: every few steps all ranks stop, each a little differently long."""

    def extra(rank: int, step: int, first: bool) -> int:
        if not first or not fault.active(step) or step % fault.period_steps:
            return 0
        return int(fault.duration_ns * rng_of(world, fault, rank, step).uniform(0.9, 1.1))

    world.compute.extras.append(extra)


def _needs_stages(world: World, fault: FaultSpec) -> None:
    if not any(job.workload is Workload.PP and job.stage_factors for job in world.scenario.jobs):
        raise SimulationError("fault stage_imbalance: give a pp job with stage_factors")


def _needs_imbalance(world: World, fault: FaultSpec) -> None:
    if world.scenario.noise.imbalance <= 0:
        raise SimulationError("fault imbalance: give noise.imbalance > 0")


_SHAPERS: dict[FaultKind, Callable[[World, FaultSpec], None]] = {
    FaultKind.SLOW_COMPUTE: _slow_compute,
    FaultKind.POWER_CAP: _power_cap,
    FaultKind.SLOW_MEMORY: _slow_memory,
    FaultKind.SLOW_NVLINK: _slow_nvlink,
    FaultKind.MEMORY_PRESSURE: _cpu_contention,
    FaultKind.INPUT_STALL: _input_stall,
    FaultKind.CPU_CONTENTION: _cpu_contention,
    FaultKind.OP_MISMATCH: _op_mismatch,
    FaultKind.RANDOM_PAUSES: _random_pauses,
    FaultKind.PERIODIC_PAUSE: _periodic_pause,
    FaultKind.STAGE_IMBALANCE: _needs_stages,
    FaultKind.IMBALANCE: _needs_imbalance,
}
