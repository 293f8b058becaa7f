# SPDX-License-Identifier: Apache-2.0
"""Named scenarios: fault or control x workload x credit policy, everything else drawn from the seed.

The world of a name and seed is drawn before and apart from its fault: equal seeds give the same
machines, sizes and noise under every fault.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from sim.scenarios.lab_shapes import SHAPES, Draw
from sim.spec import (
    CONTROLS,
    ClockSpec,
    CreditPolicy,
    CreditStyle,
    DataStyle,
    FaultKind,
    FaultSpec,
    JobSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    SimulationError,
    StackSpec,
    TransportSpec,
    TxStamp,
    stream,
)

_TIMEOUT_UNIT_NS = 4_096
_WINDOWS_PER_TIMEOUT = 12
_TWO_FAULTS = "two_faults"
_TRAINING = tuple(name for name in SHAPES if name not in ("none", "rails64"))
_RINGS = ("dp", "buckets", "overlap", "fsdp")
_WORKLOADS_OF = {
    FaultKind.STAGE_IMBALANCE: ("pp",),
    FaultKind.PATH_COLLISION: ("dp", "buckets", "moe"),
    FaultKind.CONGESTION: (*_RINGS, "tree", "moe"),
    FaultKind.SWITCH_PORT: (*_RINGS, "tree", "moe"),
    FaultKind.FABRIC_LOSS: _RINGS,
    FaultKind.SLOW_COMPUTE: (*_TRAINING, "rails64"),
    # These have names in the catalogue only.
    FaultKind.POWER_CAP: (),
    FaultKind.SLOW_MEMORY: (),
    FaultKind.SLOW_NVLINK: (),
    FaultKind.SLOW_PCIE: (),
    FaultKind.MEMORY_PRESSURE: (),
    FaultKind.CLOCK_ERROR: (),
}


def names() -> list[str]:
    """All scenario names, ``FAULT-WORKLOAD-POLICY``."""
    policies = [policy.value for policy in CreditPolicy]
    found = [f"healthy-{shape}-{policy}" for shape in SHAPES for policy in policies if shape != "none"]
    found.append("healthy-none-none")
    for kind in FaultKind:
        for shape in _WORKLOADS_OF.get(kind, _TRAINING):
            found += [f"{kind.value}-{shape}-{policy}" for policy in policies]
    found += [f"{_TWO_FAULTS}-{shape}-{policy}" for shape in _RINGS for policy in policies]
    return found


@cache
def _known() -> frozenset[str]:
    return frozenset(names())


def build(name: str, seed: int) -> Scenario:
    """The scenario ``name`` as drawn from ``seed``."""
    if name not in _known():
        raise SimulationError(f"no scenario {name!r}; `python -m sim list` shows all names")
    fault_name, shape_name, policy_name = name.split("-")
    scenario = _healthy(name, shape_name, CreditPolicy(policy_name), seed)
    if fault_name == "healthy":
        return scenario
    rng = stream(seed, "draw fault", fault_name)
    if fault_name == _TWO_FAULTS:
        return _with_two_faults(scenario, rng)
    return _with_fault(scenario, FaultKind(fault_name), rng)


def _healthy(name: str, shape_name: str, policy: CreditPolicy, seed: int) -> Scenario:
    rng = stream(seed, "draw", shape_name, policy.value)
    mtu = int(rng.choice([1024, 4096, 4096]))
    draw = Draw(rng, float(rng.choice([0.5, 1.0, 1.0, 2.0, 4.0])) * (mtu / 4096) ** 0.5, mtu)
    shape = SHAPES[shape_name][1](draw)
    jobs = tuple(_with_habits(job, rng) for job in shape.jobs)
    marks = int(rng.choice([0, 131_072, 262_144]))
    stack = _stack(rng, policy, mtu)
    transport = _transport(rng, mtu, stack.depth * stack.slot_bytes * 8 / draw.rate_gbps)
    return Scenario(
        name,
        seed,
        shape.machines,
        jobs,
        shape.nics,
        NetworkSpec(
            rate_gbps=draw.rate_gbps,
            propagation_ns=int(rng.integers(300, 2_000)),
            switch_ns=int(rng.integers(300, 1_500)),
            ipv6=bool(rng.random() < 0.1),
            vlan=int(rng.integers(2, 4000)) if rng.random() < 0.15 else None,
            mark_from_bytes=marks,
            mark_all_bytes=4 * marks,
            tos=int(rng.choice([0x02, 0x6A] if marks else [0x02, 0x6A, 0x68])),
        ),
        transport,
        stack,
        NoiseSpec(jitter=float(rng.uniform(0.004, 0.02)), static_spread=float(rng.uniform(0.005, 0.015))),
        _clock(rng),
        storage=bool(rng.random() < 0.2) and shape_name != "none",
        watch_ns=max(6 * transport.timeout_ns, 16 * max(job.compute_ns for job in jobs)),
    )


def _with_habits(job: JobSpec, rng: np.random.Generator) -> JobSpec:
    """Longer first iterations and evaluation pauses, in some runs."""
    longer, evaluates = int(rng.choice([0, 0, 1, 2])), bool(rng.random() < 0.2)
    return replace(
        job,
        long_first_steps=longer,
        pause_every=int(rng.integers(7, 12)) if evaluates else 0,
        pause_ns=int(job.compute_ns * rng.uniform(1.0, 3.0)) if evaluates else 0,
    )


def _transport(rng: np.random.Generator, mtu: int, window_ns: float) -> TransportSpec:
    """``window_ns`` is the time of one connection's slots at link rate.

    Real retry timeouts are far longer than the queues of even a slow receiver, so these are too.
    """
    shift = max(12, int(np.ceil(np.log2(_WINDOWS_PER_TIMEOUT * window_ns / _TIMEOUT_UNIT_NS))))
    return TransportSpec(
        mtu=mtu,
        ack_every=int(rng.choice([0, 0, 8, 16])),
        ack_latency_ns=int(rng.integers(600, 3_000)),
        ack_jitter_ns=int(rng.integers(200, 2_000)),
        timeout_ns=_TIMEOUT_UNIT_NS << shift + int(rng.choice([0, 1])),
        quantum_packets=int(rng.choice([2, 4, 8, 16])),
        zero_start_psn=bool(rng.random() < 0.4),
        cnp_interval_ns=int(window_ns / 8),
        alpha_timer_ns=int(window_ns / 7),
        increase_timer_ns=int(window_ns / 2),
    )


def _stack(rng: np.random.Generator, policy: CreditPolicy, mtu: int) -> StackSpec:
    styles = [CreditStyle.WRITE, CreditStyle.WRITE, CreditStyle.WRITE, CreditStyle.SEND, CreditStyle.ATOMIC]
    style = styles[int(rng.integers(0, len(styles)))]
    return StackSpec(
        slot_bytes=(65_536 if mtu == 4096 else 32_768) * int(rng.choice([1, 1, 2])),
        depth=int(rng.choice([4, 8, 8])),
        channels=int(rng.choice([1, 1, 2])),
        qps_per_lane=int(rng.choice([1, 1, 1, 2])),
        data_style=DataStyle.WRITE_IMM if rng.random() < 0.5 else DataStyle.WRITE_THEN_IMM,
        credit_style=CreditStyle.NONE if policy is CreditPolicy.NONE else style,
        credit_policy=policy,
        credit_bytes=int(rng.choice([32, 64, 64, 128])),
        proxy_ns=int(rng.integers(1_000, 5_000)),
        proxy_jitter_ns=int(rng.integers(300, 3_000)),
    )


def _clock(rng: np.random.Generator) -> ClockSpec:
    return ClockSpec(
        offset_ns=int(rng.choice([0, 200_000, 50_000_000, 50_000_000, 3_000_000_000])),
        drift_ppm=float(rng.choice([0.0, 5.0, 20.0, 50.0])),
        jitter_ns=int(rng.choice([0, 20, 100, 300])),
        tx_stamp=TxStamp.COPY if rng.random() < 0.3 else TxStamp.WIRE,
        copy_delay_ns=int(rng.integers(500, 4_000)),
        copy_jitter_ns=int(rng.integers(100, 1_500)),
    )


# ---- faults


def _with_fault(scenario: Scenario, kind: FaultKind, rng: np.random.Generator) -> Scenario:
    job = scenario.jobs[int(rng.integers(0, len(scenario.jobs)))]
    machine = int(rng.choice(job.machines))
    late = kind in (
        FaultKind.HANG,
        FaultKind.CRASH,
        FaultKind.LINK_DOWN,
        FaultKind.NIC_DEAD,
        FaultKind.OP_MISMATCH,
    )
    fault = FaultSpec(
        kind,
        None if kind in CONTROLS else machine,
        int(rng.integers(0, scenario.nics_per_machine)),
        int(rng.integers(12, 18) if late else rng.integers(8, 12)),
        before_tap=bool(rng.random() < 0.5),
        ingress=bool(rng.random() < 0.3),
    )
    if kind in CONTROLS:
        return _with_control(scenario, job, fault, rng)
    return replace(scenario, fault=_with_strength(scenario, job, fault, rng))


def _with_two_faults(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """A slow GPU on one machine and a slow NIC on another."""
    compute = _with_fault(scenario, FaultKind.SLOW_COMPUTE, rng).fault
    nic = _with_fault(scenario, FaultKind.SLOW_NIC, rng).fault
    if compute is None or compute.machine is None or nic is None:
        raise SimulationError(f"scenario {scenario.name}: both faults need a machine")
    others = [machine for machine in scenario.jobs[0].machines if machine != compute.machine]
    return replace(scenario, fault=compute, second_fault=replace(nic, machine=int(rng.choice(others))))


def _with_strength(scenario: Scenario, job: JobSpec, fault: FaultSpec, rng: np.random.Generator) -> FaultSpec:
    step_ns = 2 * job.compute_ns
    match fault.kind:
        case FaultKind.SLOW_COMPUTE:
            return replace(fault, factor=float(rng.uniform(1.25, 1.8)))
        case FaultKind.SLOW_NIC | FaultKind.SLOW_RECEIVER:
            return replace(fault, factor=float(rng.uniform(2.0, 5.0)))
        case FaultKind.PACKET_LOSS:
            return replace(fault, probability=float(rng.uniform(0.004, 0.015)))
        case FaultKind.LINK_FLAP:
            return replace(fault, duration_ns=int(scenario.transport.timeout_ns * rng.uniform(1.5, 5.0)))
        case FaultKind.CPU_CONTENTION:
            return replace(
                fault,
                factor=float(rng.uniform(1.3, 1.8)),
                probability=float(rng.uniform(0.02, 0.06)),
                duration_ns=int(step_ns * rng.uniform(0.01, 0.04)),
            )
        case FaultKind.INPUT_STALL:
            return replace(fault, duration_ns=int(job.compute_ns * rng.uniform(0.25, 0.6)))
        case _:
            return fault


def _with_control(scenario: Scenario, job: JobSpec, fault: FaultSpec, rng: np.random.Generator) -> Scenario:
    network = scenario.network
    match fault.kind:
        case FaultKind.RANDOM_PAUSES:
            pause = int(job.compute_ns * rng.uniform(0.2, 0.7))
            return replace(scenario, fault=replace(fault, onset_step=0, probability=0.08, duration_ns=pause))
        case FaultKind.IMBALANCE:
            return replace(
                scenario, fault=replace(fault, onset_step=0), noise=replace(scenario.noise, imbalance=0.11)
            )
        case FaultKind.STAGE_IMBALANCE:
            factors = np.ones(job.stages)
            factors[rng.integers(0, job.stages)] = rng.uniform(1.25, 1.6)
            long_stage = replace(job, stage_factors=tuple(factors.tolist()))
            return replace(scenario, fault=replace(fault, onset_step=0), jobs=(long_stage,))
        case FaultKind.PERIODIC_PAUSE:
            pause = int(job.compute_ns * rng.uniform(1.0, 3.0))
            period = int(rng.integers(4, 8))
            return replace(
                scenario, fault=replace(fault, onset_step=0, period_steps=period, duration_ns=pause)
            )
        case FaultKind.CONGESTION:
            leaves = replace(
                _two_leaves(network, uplinks=1, speed=2.0), mark_from_bytes=65_536, mark_all_bytes=262_144
            )
            return replace(
                scenario, network=leaves, fault=replace(fault, factor=float(rng.uniform(0.7, 0.9)))
            )
        case FaultKind.SWITCH_PORT:
            leaves = _two_leaves(network, uplinks=1, speed=float(scenario.machines))
            slower = 2.0 * scenario.machines * float(rng.uniform(1.0, 2.0))
            return replace(scenario, network=leaves, fault=replace(fault, factor=slower))
        case FaultKind.FABRIC_LOSS:
            leaves = replace(
                _two_leaves(network, uplinks=16 * scenario.machines, speed=1.0), interleaved=True
            )
            lossy = replace(fault, probability=float(rng.uniform(0.01, 0.03)))
            return replace(scenario, network=leaves, fault=lossy)
        case _:
            leaves = replace(_two_leaves(network, uplinks=4 * scenario.machines, speed=1.0), interleaved=True)
            slower = float(rng.uniform(1.0, 1.5))
            return replace(scenario, network=leaves, fault=replace(fault, factor=slower))


def _two_leaves(network: NetworkSpec, uplinks: int, speed: float) -> NetworkSpec:
    """Two leaves whose uplinks have ``speed`` times the rate of an access link."""
    return replace(
        network,
        leaves=2,
        uplinks=uplinks,
        uplink_rate_gbps=speed * network.rate_gbps,
        mark_from_bytes=131_072,
        mark_all_bytes=524_288,
        tos=0x6A,
    )
