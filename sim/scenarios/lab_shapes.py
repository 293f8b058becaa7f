# SPDX-License-Identifier: Apache-2.0
"""Workload shapes as drawn from a seed: machines, NICs, sizes and compute times that fit the links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sim.spec import Algorithm, JobSpec, Workload

STEPS = 25
_PACKETS_PER_STEP = 750  # data packets that a NIC sends per iteration; keeps a capture below 60 k packets


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload as drawn: how many machines and NICs, which jobs."""

    machines: int
    nics: int
    jobs: tuple[JobSpec, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """The random choices that shapes depend on."""

    rng: np.random.Generator
    rate_gbps: float
    mtu: int

    def pick(self, *options: int) -> int:
        """One of ``options``."""
        return int(self.rng.choice(options))

    def volume(self, packets: int = _PACKETS_PER_STEP) -> int:
        """Bytes that a NIC sends per iteration."""
        return int(packets * self.mtu * self.rng.uniform(0.5, 1.0))

    def compute_ns(self, sent_bytes: float) -> int:
        """Compute time that leaves communication 20 to 60 % of the iteration."""
        share = self.rng.uniform(0.2, 0.6)
        return int(sent_bytes * 8 / self.rate_gbps * (1 - share) / share)


def _dp(draw: Draw, machines: tuple[int, ...], packets: int = _PACKETS_PER_STEP) -> JobSpec:
    sent = draw.volume(packets)
    ranks = len(machines)
    size = int(sent * ranks / (2 * (ranks - 1)))
    return JobSpec(machines, Workload.DP, STEPS, size, draw.compute_ns(sent))


def _one_dp(draw: Draw) -> Shape:
    count = draw.pick(4, 4, 4, 5, 6, 8)
    return Shape(count, 1, (_dp(draw, tuple(range(count))),))


def _buckets(draw: Draw) -> Shape:
    shape = _one_dp(draw)
    return replace(shape, jobs=(replace(shape.jobs[0], buckets=draw.pick(2, 3, 4)),))


def _overlap(draw: Draw) -> Shape:
    shape = _buckets(draw)
    return replace(shape, jobs=(replace(shape.jobs[0], overlap=True),))


def _tree(draw: Draw) -> Shape:
    shape = _one_dp(draw)
    return replace(shape, jobs=(replace(shape.jobs[0], algorithm=Algorithm.DOUBLE_TREE),))


def _fsdp(draw: Draw) -> Shape:
    count, sent = draw.pick(4, 4, 5, 6), draw.volume()
    size = int(sent * count / (3 * (count - 1)))
    job = JobSpec(
        tuple(range(count)), Workload.FSDP, STEPS, size, draw.compute_ns(sent), layers=draw.pick(2, 3, 4)
    )
    return Shape(count, 1, (job,))


def _moe(draw: Draw) -> Shape:
    count, sent = draw.pick(4, 4, 5, 6, 8), draw.volume()
    size = int(sent * count / (count - 1))
    layers, uneven = draw.pick(1, 2), bool(draw.pick(0, 1))
    job = JobSpec(
        tuple(range(count)), Workload.MOE, STEPS, size, draw.compute_ns(sent), layers=layers, uneven=uneven
    )
    return Shape(count, 1, (job,))


def _pp(draw: Draw) -> Shape:
    stages, replicas = [(4, 1), (2, 2), (3, 2), (4, 2)][draw.pick(0, 1, 2, 3)]
    micro = draw.pick(4, 6, 8)
    activation = draw.volume() // (4 * micro) * 2 // 4096 * 4096 + 4096
    compute = draw.compute_ns(3.0 * micro * activation)
    job = JobSpec(
        tuple(range(stages * replicas)),
        Workload.PP,
        STEPS,
        collective_bytes=draw.pick(65_536, 262_144),
        compute_ns=compute,
        stages=stages,
        micro_batches=micro,
        activation_bytes=activation,
    )
    return Shape(stages * replicas, 1, (job,))


def _rails(draw: Draw) -> Shape:
    count, rails = draw.pick(3, 4, 4, 5), draw.pick(2, 2, 4)
    job = replace(_dp(draw, tuple(range(count))), layers=draw.pick(2, 4, 6), buckets=draw.pick(1, 1, 2))
    return Shape(count, rails, (job,))


def _rails64(draw: Draw) -> Shape:
    return Shape(8, 8, (_dp(draw, tuple(range(8)), packets=200),))


def _two_jobs(draw: Draw) -> Shape:
    order = draw.rng.permutation(6)
    first, second = sorted(order[:3].tolist()), sorted(order[3:].tolist())
    return Shape(6, 1, (_dp(draw, tuple(first)), _dp(draw, tuple(second))))


def _none(draw: Draw) -> Shape:
    return Shape(4, 1, (JobSpec(tuple(range(4)), Workload.NONE),))


SHAPES: dict[str, tuple[str, Callable[[Draw], Shape]]] = {
    "dp": ("compute, one ring AllReduce", _one_dp),
    "buckets": ("compute, 2 to 4 unequal ring AllReduces back to back", _buckets),
    "overlap": ("AllReduce buckets overlapped with backward compute", _overlap),
    "tree": ("compute, double binary tree AllReduce", _tree),
    "fsdp": ("per layer AllGather forward, AllGather and ReduceScatter backward", _fsdp),
    "moe": ("all-to-all before and after the experts, small AllReduce", _moe),
    "pp": ("1F1B pipeline, then an AllReduce per stage or over all", _pp),
    "rails": ("several coupled GPUs per machine, each rail its own ring", _rails),
    "rails64": ("8 machines x 8 NICs, coupled, each rail its own ring (slow)", _rails64),
    "two_jobs": ("two independent data-parallel jobs on six machines", _two_jobs),
    "none": ("bandwidth tests, no training", _none),
}
