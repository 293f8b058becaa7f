# SPDX-License-Identifier: Apache-2.0
"""What a simulation is made of: frozen descriptions of network, stack, jobs, clocks and fault.

Times are integer nanoseconds, rates are Gbit/s (one bit per nanosecond), sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np


class SimulationError(ValueError):
    """A scenario that cannot be simulated; the message says which field and what is allowed."""


class Workload(StrEnum):
    """Shape of one training iteration."""

    DP = "dp"
    FSDP = "fsdp"
    MOE = "moe"
    PP = "pp"
    NONE = "none"


class Algorithm(StrEnum):
    """How an AllReduce moves its data."""

    RING = "ring"
    TREE = "tree"
    DOUBLE_TREE = "double_tree"


class CreditStyle(StrEnum):
    """Which verb carries a receiver's grant of a slot."""

    WRITE = "write"
    SEND = "send"
    ATOMIC = "atomic"
    NONE = "none"


class CreditPolicy(StrEnum):
    """When the first slots of a collective are granted."""

    ON_ENTRY = "on_entry"
    EARLY = "early"
    NONE = "none"


class DataStyle(StrEnum):
    """How a slot travels: one write with immediate, or a write and an empty write with immediate."""

    WRITE_IMM = "write_imm"
    WRITE_THEN_IMM = "write_then_imm"


class TxStamp(StrEnum):
    """Where stamps of sent packets come from; ``none`` means that the tap sees received packets only."""

    WIRE = "wire"
    COPY = "copy"
    NONE = "none"


class FaultKind(StrEnum):
    """Injected faults (a machine is guilty) and controls (no machine is)."""

    SLOW_COMPUTE = "slow_compute"
    SLOW_NIC = "slow_nic"
    SLOW_RECEIVER = "slow_receiver"
    PACKET_LOSS = "packet_loss"
    LINK_DOWN = "link_down"
    LINK_FLAP = "link_flap"
    NIC_DEAD = "nic_dead"
    HANG = "hang_process"
    CRASH = "crash"
    CPU_CONTENTION = "cpu_contention"
    INPUT_STALL = "input_stall"
    OP_MISMATCH = "op_mismatch"
    RANDOM_PAUSES = "random_pauses"
    IMBALANCE = "imbalance"
    STAGE_IMBALANCE = "stage_imbalance"
    CONGESTION = "congestion"
    PERIODIC_PAUSE = "periodic_pause"
    PATH_COLLISION = "path_collision"
    SWITCH_PORT = "switch_port"
    FABRIC_LOSS = "fabric_loss"


CONTROLS = frozenset(
    {
        FaultKind.RANDOM_PAUSES,
        FaultKind.IMBALANCE,
        FaultKind.STAGE_IMBALANCE,
        FaultKind.CONGESTION,
        FaultKind.PERIODIC_PAUSE,
        FaultKind.PATH_COLLISION,
        FaultKind.SWITCH_PORT,
        FaultKind.FABRIC_LOSS,
    }
)


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """Links and switches of one rail; all rails are alike and never meet.

    ``interleaved`` plugs neighbouring machines into different leaves, so that rings cross uplinks.
    """

    rate_gbps: float = 2.0
    propagation_ns: int = 800
    switch_ns: int = 600
    leaves: int = 1
    interleaved: bool = False
    uplinks: int = 2
    uplink_rate_gbps: float = 8.0
    ecn_threshold_bytes: int = 0
    ipv6: bool = False
    vlan: int | None = None
    tos: int = 0x02


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """Reliable-connection parameters; ``ack_every`` 0 acknowledges only at message ends."""

    mtu: int = 4096
    ack_every: int = 0
    ack_latency_ns: int = 2_000
    ack_jitter_ns: int = 1_000
    timeout_ns: int = 16_777_216
    retry_limit: int = 7
    quantum_packets: int = 8
    fetch_jitter_ns: int = 60
    zero_start_psn: bool = False
    cnp_interval_ns: int = 50_000
    rate_cut: float = 0.6
    rate_recovery_ns: int = 3_000_000


@dataclass(frozen=True, slots=True)
class StackSpec:
    """The collective library: slots, credits, channels and the delays of its proxy thread."""

    slot_bytes: int = 65_536
    depth: int = 8
    channels: int = 1
    qps_per_lane: int = 1
    data_style: DataStyle = DataStyle.WRITE_THEN_IMM
    credit_style: CreditStyle = CreditStyle.WRITE
    credit_policy: CreditPolicy = CreditPolicy.ON_ENTRY
    credit_bytes: int = 64
    proxy_ns: int = 3_000
    proxy_jitter_ns: int = 2_000
    reduce_bytes_per_ns: float = 20.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One training job: which machines, what an iteration does, how long it computes.

    ``layers`` counts fsdp layers, moe blocks or coupling points of a multi-GPU machine.
    ``stages`` > 1 makes a pipeline; the machines are then ``stages`` x replicas, stage-major.
    """

    machines: tuple[int, ...]
    workload: Workload = Workload.DP
    steps: int = 25
    collective_bytes: int = 2 << 20
    compute_ns: int = 40_000_000
    algorithm: Algorithm = Algorithm.RING
    buckets: int = 1
    overlap: bool = False
    layers: int = 4
    stages: int = 1
    micro_batches: int = 6
    activation_bytes: int = 131_072
    uneven: bool = False
    long_first_steps: int = 0
    pause_every: int = 0
    pause_ns: int = 0
    stage_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NoiseSpec:
    """Healthy variation of compute: per phase, per machine, per step and rank, and rare pauses."""

    jitter: float = 0.01
    static_spread: float = 0.012
    imbalance: float = 0.0
    pause_probability: float = 0.0
    pause_ns: int = 0
    launch_ns: int = 30_000


@dataclass(frozen=True, slots=True)
class ClockSpec:
    """Bounds from which each NIC's clock error is drawn, and how sent packets are stamped."""

    offset_ns: int = 0
    drift_ppm: float = 0.0
    jitter_ns: int = 0
    tx_stamp: TxStamp = TxStamp.WIRE
    copy_delay_ns: int = 2_000
    copy_jitter_ns: int = 500


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One fault or control. What ``factor``, ``probability`` and ``duration_ns`` mean depends on the kind.

    ``before_tap`` says on which side of the sender's tap a rate cap or a loss sits; ``ingress``
    turns a loss to the receiving direction of the culprit's link, and makes a rate cap hold both ways.
    """

    kind: FaultKind
    machine: int | None = None
    nic: int = 0
    onset_step: int = 10
    factor: float = 1.0
    probability: float = 0.0
    duration_ns: int = 0
    period_steps: int = 0
    before_tap: bool = True
    ingress: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that ``run_scenario`` needs; equal scenarios give equal bytes."""

    name: str
    seed: int
    machines: int
    jobs: tuple[JobSpec, ...]
    nics_per_machine: int = 1
    network: NetworkSpec = field(default_factory=NetworkSpec)
    transport: TransportSpec = field(default_factory=TransportSpec)
    stack: StackSpec = field(default_factory=StackSpec)
    noise: NoiseSpec = field(default_factory=NoiseSpec)
    clock: ClockSpec = field(default_factory=ClockSpec)
    fault: FaultSpec | None = None
    second_fault: FaultSpec | None = None
    storage: bool = False
    watch_ns: int = 400_000_000

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        """The faults to inject, the main one first."""
        return tuple(fault for fault in (self.fault, self.second_fault) if fault is not None)

    def __post_init__(self) -> None:
        if not 2 <= self.machines <= 64:
            raise SimulationError(f"scenario {self.name}: {self.machines} machines; give 2 to 64")
        if not 1 <= self.nics_per_machine <= 8:
            raise SimulationError(
                f"scenario {self.name}: {self.nics_per_machine} NICs per machine; give 1 to 8"
            )
        placed = [machine for job in self.jobs for machine in job.machines]
        if len(placed) != len(set(placed)) or any(not 0 <= m < self.machines for m in placed):
            raise SimulationError(
                f"scenario {self.name}: jobs overlap or name machines beyond {self.machines - 1}"
            )
        for job in self.jobs:
            if job.stages > 1 and len(job.machines) % job.stages:
                raise SimulationError(
                    f"scenario {self.name}: {len(job.machines)} machines are not {job.stages} equal stages"
                )
        if self.stack.slot_bytes < 1 or self.stack.depth < 1 or self.transport.mtu < 256:
            raise SimulationError(
                f"scenario {self.name}: slot bytes, depth and MTU must be positive (MTU >= 256)"
            )


def stream(seed: int, *labels: str | int) -> np.random.Generator:
    """An independent random stream for one purpose, so that a fault never shifts another draw."""
    words = [
        label & 0xFFFF_FFFF_FFFF_FFFF if isinstance(label, int) else int.from_bytes(label.encode(), "little")
        for label in labels
    ]
    return np.random.default_rng([seed, *words])
