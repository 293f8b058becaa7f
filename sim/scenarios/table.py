# SPDX-License-Identifier: Apache-2.0
"""The table of scenarios, in the order of the rows of the fault table."""

from __future__ import annotations

from sim.scenarios import effects
from sim.scenarios.effects import STOPPING, Entry, Severity
from sim.spec import FaultKind

_COMPUTE = "how many times as long compute takes"
_RATE = "what the rate is divided by"
_LOST = "the share of packets that get lost"
_OF_COMPUTE = "a share of an iteration's compute"


def _times(unit: str, low: float, high: float) -> Severity:
    return Severity(unit, low, high, 1.0, 1000.0)


_LOSS = Severity(_LOST, 3e-3, 1e-2, 1e-7, 0.5, logarithmic=True)
_K = FaultKind

ENTRIES = (
    Entry("healthy", 0, "nothing is wrong", None, effects.plain, has_culprit=False, onset=None, ends=False),
    Entry(
        "gpu_slow",
        1,
        "one GPU computes slowly: clock or thermal throttle",
        _K.SLOW_COMPUTE,
        effects.slower,
        _times(_COMPUTE, 1.25, 1.8),
    ),
    Entry(
        "gpu_power_cap",
        2,
        "one GPU at a power cap: phases of large matrix products suffer most",
        _K.POWER_CAP,
        effects.slower,
        _times(f"{_COMPUTE} where matrix products dominate", 1.3, 1.9),
    ),
    Entry(
        "hbm_slow",
        3,
        "slow memory of one GPU: embedding and optimizer (first and last phase) suffer",
        _K.SLOW_MEMORY,
        effects.slower,
        _times(f"{_COMPUTE} where memory limits it", 1.4, 2.2),
    ),
    Entry(
        "nvlink_slow",
        4,
        "slow links between the GPUs of one machine: all lag together",
        _K.SLOW_NVLINK,
        effects.slower,
        _times(f"{_COMPUTE} where the machine's GPUs work together", 1.2, 1.6),
        whole_machine=True,
    ),
    Entry(
        "pcie_slow",
        5,
        "one NIC fetches and delivers data slowly: PCIe downgrade",
        _K.SLOW_PCIE,
        effects.slower,
        _times(_RATE, 2.0, 5.0),
    ),
    Entry(
        "port_slow",
        6,
        "one port at a part of its rate, both ways: lanes lost",
        _K.SLOW_NIC,
        effects.slow_port,
        _times(_RATE, 2.0, 5.0),
    ),
    Entry(
        "rail_slow",
        6,
        "one NIC of one rail sends slowly; the machine's other rails wait for it",
        _K.SLOW_NIC,
        effects.slow_sender,
        _times(_RATE, 2.0, 5.0),
    ),
    Entry("link_loss", 7, "a NIC's cable loses packets, one way", _K.PACKET_LOSS, effects.loss, _LOSS),
    Entry(
        "fabric_loss",
        7,
        "a path inside the fabric loses packets of one pair",
        _K.FABRIC_LOSS,
        effects.fabric_loss,
        _LOSS,
        has_culprit=False,
        changes_switches=True,
    ),
    Entry(
        "link_flap",
        8,
        "a link goes down and comes back",
        _K.LINK_FLAP,
        effects.flap,
        Severity("ms without link", 5.0, 60.0, 0.001, 10_000.0, logarithmic=True),
        ends=False,
    ),
    Entry(
        "link_down", 8, "a link goes down for good", _K.LINK_DOWN, effects.plain, onset=STOPPING, ends=False
    ),
    Entry(
        "nic_dead", 9, "a NIC falls silent for good", _K.NIC_DEAD, effects.plain, onset=STOPPING, ends=False
    ),
    Entry(
        "congestion",
        10,
        "another tenant's bursts fill uplinks",
        _K.CONGESTION,
        effects.congestion,
        Severity("the share of the uplinks that others take", 0.7, 0.9, 0.01, 0.97),
        has_culprit=False,
        changes_switches=True,
    ),
    Entry(
        "slow_receiver",
        11,
        "a NIC takes received data slowly and pauses its switch",
        _K.SLOW_RECEIVER,
        effects.slower,
        _times(_RATE, 2.0, 5.0),
    ),
    Entry(
        "path_collision",
        12,
        "flows of two machines hash to one uplink",
        _K.PATH_COLLISION,
        effects.collision,
        _times("what the rate of the flows is divided by", 2.0, 4.0),
        has_culprit=False,
        changes_switches=True,
    ),
    Entry(
        "switch_port",
        13,
        "the uplinks of one leaf run at a part of their rate",
        _K.SWITCH_PORT,
        effects.slow_uplinks,
        _times("what the uplinks' rate is divided by", 8.0, 16.0),
        has_culprit=False,
        changes_switches=True,
    ),
    Entry(
        "cpu_contention",
        14,
        "other processes take the CPU: irregular compute, proxy threads run late",
        _K.CPU_CONTENTION,
        effects.cpu_taken,
        _times(f"{_COMPUTE}, on average", 1.2, 1.6),
        whole_machine=True,
    ),
    Entry(
        "gc_pauses",
        15,
        "pauses of random ranks in random iterations",
        _K.RANDOM_PAUSES,
        effects.random_pauses,
        Severity(_OF_COMPUTE, 0.2, 0.7, 0.0, 1000.0),
        has_culprit=False,
    ),
    Entry(
        "input_stall",
        16,
        "a data loader is late before iterations",
        _K.INPUT_STALL,
        effects.share_of_compute,
        Severity(_OF_COMPUTE, 0.25, 0.6, 0.0, 1000.0),
    ),
    Entry(
        "memory_pressure",
        17,
        "as cpu_contention, growing over iterations: swap, NUMA",
        _K.MEMORY_PRESSURE,
        effects.cpu_taken_ever_more,
        _times(f"{_COMPUTE} in the end", 1.3, 1.8),
        whole_machine=True,
    ),
    Entry(
        "checkpoint",
        18,
        "the whole job stops every few iterations",
        _K.PERIODIC_PAUSE,
        effects.checkpoint,
        Severity(_OF_COMPUTE, 1.0, 3.0, 0.0, 1000.0),
        onset=(0.0, 0.0),
        has_culprit=False,
    ),
    Entry("hang", 19, "a rank stops before a collective", _K.HANG, effects.plain, onset=STOPPING, ends=False),
    Entry(
        "op_mismatch",
        20,
        "a rank runs a collective of another size",
        _K.OP_MISMATCH,
        effects.plain,
        onset=STOPPING,
        ends=False,
    ),
    Entry("crash", 21, "a process dies", _K.CRASH, effects.plain, onset=STOPPING, ends=False),
    Entry(
        "imbalance",
        22,
        "ranks compute for unequal times, others in every iteration",
        _K.IMBALANCE,
        effects.imbalance,
        Severity("the spread (sigma) of a rank's compute per iteration", 0.08, 0.14, 0.001, 1.0),
        onset=None,
        has_culprit=False,
        ends=False,
    ),
    Entry(
        "stage_imbalance",
        23,
        "one pipeline stage has more to compute",
        _K.STAGE_IMBALANCE,
        effects.stage_imbalance,
        _times(_COMPUTE, 1.25, 1.6),
        onset=None,
        has_culprit=False,
        ends=False,
        workloads=("pp",),
    ),
    Entry(
        "clock_error",
        24,
        "NIC clocks are off and drift; nothing else is wrong",
        _K.CLOCK_ERROR,
        effects.clock_error,
        Severity("the largest offset in us", 10.0, 1000.0, 0.0, 1e9, logarithmic=True),
        onset=None,
        has_culprit=False,
        ends=False,
    ),
    Entry(
        "two_faults",
        25,
        "gpu_slow on one machine and port_slow on another; NAME+NAME for any two",
        _K.SLOW_COMPUTE,
        effects.slower,
    ),
)
