# SPDX-License-Identifier: Apache-2.0
"""What a simulation is made of: frozen descriptions of network, stack, jobs, clocks and fault.

Times are integer nanoseconds, rates are Gbit/s (one bit per nanosecond), sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from sim.limits import SimulationError as SimulationError
from sim.limits import check_scenario


class Workload(StrEnum):
    """Shape of one training iteration."""

    DP = "dp"
    FSDP = "fsdp"
    MOE = "moe"
    PP = "pp"
    CP = "cp"
    REPLAY = "replay"
    NONE = "none"


class Algorithm(StrEnum):
    """How an AllReduce moves its data."""

    RING = "ring"
    TREE = "tree"
    DOUBLE_TREE = "double_tree"
    NVLS = "nvls"  # the GPUs of a machine reduce among themselves, one tree joins the machines


class Dispatch(StrEnum):
    """How tokens reach experts of other machines.

    ``rail``: experts are spread along each rail. ``pxn``: over all GPUs; data for a GPU of another machine
    goes through the local GPU on that rail, which sends what the whole machine has for it. ``direct``: over
    all GPUs, each sends by its own NIC; this needs a spine.
    """

    RAIL = "rail"
    PXN = "pxn"
    DIRECT = "direct"


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
    POWER_CAP = "power_cap"
    SLOW_MEMORY = "slow_memory"
    SLOW_NVLINK = "slow_nvlink"
    SLOW_PCIE = "slow_pcie"
    MEMORY_PRESSURE = "memory_pressure"
    CLOCK_ERROR = "clock_error"


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
        FaultKind.CLOCK_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """Links and switches; every rail has ``leaves`` of its own, and rails meet only if there is a ``spine``.

    ``interleaved`` plugs neighbouring machines into different leaves, so that rings cross uplinks. A queue
    marks data at random from ``mark_from_bytes`` on and always from ``mark_all_bytes`` on (0 = no marks). A
    link whose packets fill ``pause_bytes`` of a switch or NIC is paused (0 = never); a queue drops what
    exceeds ``queue_bytes`` (0 = nothing).
    """

    rate_gbps: float = 2.0
    propagation_ns: int = 800
    switch_ns: int = 600
    switch_jitter_ns: int = 0
    leaves: int = 1
    spine: bool = False
    interleaved: bool = False
    uplinks: int = 2
    uplink_rate_gbps: float = 8.0
    mark_from_bytes: int = 0
    mark_all_bytes: int = 0
    mark_probability: float = 0.1
    pause_bytes: int = 262_144
    queue_bytes: int = 0
    ipv6: bool = False
    vlan: int | None = None
    tos: int = 0x02


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """Reliable-connection parameters; ``ack_every`` 0 acknowledges only at message ends.

    With ``coalesce_acks`` one ACK answers all that has come when it leaves, as NICs do; else every packet
    that asks gets its own, as in Soft-RoCE.

    The last five are DCQCN's N, K, T, B and R_AI as a share of the link rate (Zhu et al., SIGCOMM 2015).
    """

    mtu: int = 4096
    ack_every: int = 0
    coalesce_acks: bool = True
    ack_latency_ns: int = 2_000
    ack_jitter_ns: int = 1_000
    timeout_ns: int = 16_777_216
    retry_limit: int = 7
    quantum_packets: int = 8
    fetch_jitter_ns: int = 60
    zero_start_psn: bool = False
    cnp_interval_ns: int = 50_000
    alpha_timer_ns: int = 55_000
    increase_timer_ns: int = 300_000
    increase_bytes: int = 0
    additive_share: float = 0.01


@dataclass(frozen=True, slots=True)
class StackSpec:
    """The collective library: slots, credits, channels and the delays of its proxy thread.

    Operations of at most ``ll_bytes`` use the LL protocol (every 8 bytes travel with a flag: twice the
    bytes, slots of ``ll_slot_bytes``), of at most ``ll128_bytes`` LL128 (120 of 128 bytes are data).
    ``split_slots`` spreads each slot over all connections of a lane.
    """

    slot_bytes: int = 65_536
    p2p_slot_bytes: int = 0
    ll_bytes: int = 0
    ll128_bytes: int = 0
    ll_slot_bytes: int = 32_768
    split_slots: bool = False
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
    step_ns: int = 200
    couple_ns: int = 2_000


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One training job: which machines, what an iteration does, how long it computes.

    ``layers`` counts fsdp layers, moe blocks, attention layers or coupling points of a multi-GPU machine.
    ``prefetch`` gathers the next fsdp layer while one is computed. ``dense_bytes`` is the AllReduce beside
    the experts. ``activation_bytes`` is what a pipeline stage, or a hop of context parallelism, hands on.
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
    dispatch: Dispatch = Dispatch.RAIL
    dense_bytes: int = 0
    prefetch: bool = False
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
    """Bounds from which each NIC's clock error is drawn, and how packets are stamped.

    ``wander_ppm`` is how far the drift itself strays per second; ``step_ns`` the size of one step that
    half of the NICs make; ``tai_share`` the share of NICs whose clock shows TAI. With ``poll_ns`` stamps
    are made by software that polls so often.
    """

    offset_ns: int = 0
    drift_ppm: float = 0.0
    wander_ppm: float = 0.0
    step_ns: int = 0
    tai_share: float = 0.0
    jitter_ns: int = 0
    poll_ns: int = 0
    tx_stamp: TxStamp = TxStamp.WIRE
    copy_delay_ns: int = 2_000
    copy_jitter_ns: int = 500


class CaptureKind(StrEnum):
    """Which packets a tap takes."""

    ALL = "all"
    STEERED = "steered"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True)
class CaptureSpec:
    """What the tap of each NIC takes, keeps and loses; ``snap_bytes`` 0 keeps whole packets."""

    kind: CaptureKind = CaptureKind.ALL
    sample_shift: int = 0
    snap_bytes: int = 128
    loss_probability: float = 0.0
    mean_loss_packets: float = 1.0


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One fault or control. What ``factor``, ``probability`` and ``duration_ns`` mean depends on the kind.

    ``before_tap`` says on which side of the sender's tap a loss sits, and whether a rate cap is the NIC's
    (it fetches data slowly) or the port's (it sends slowly); ``ingress`` turns a loss to the receiving
    direction of the culprit's link, and makes a rate cap hold both ways. The fault ends with the step
    ``until_step`` - 1; 0 = it stays.
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
    until_step: int = 0

    def active(self, step: int) -> bool:
        """Whether the fault is there in ``step``."""
        return step >= self.onset_step and (self.until_step == 0 or step < self.until_step)


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
    capture: CaptureSpec = field(default_factory=CaptureSpec)
    fault: FaultSpec | None = None
    second_fault: FaultSpec | None = None
    storage: bool = False
    watch_ns: int = 400_000_000
    gpus_per_nic: int = 1
    train_packets: int = 1

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        """The faults to inject, the main one first."""
        return tuple(fault for fault in (self.fault, self.second_fault) if fault is not None)

    def __post_init__(self) -> None:
        check_scenario(self)


def stream(seed: int, *labels: str | int) -> np.random.Generator:
    """An independent random stream for one purpose, so that a fault never shifts another draw."""
    words = [
        label & 0xFFFF_FFFF_FFFF_FFFF if isinstance(label, int) else int.from_bytes(label.encode(), "little")
        for label in labels
    ]
    return np.random.default_rng([seed, *words])
