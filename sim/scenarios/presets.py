# SPDX-License-Identifier: Apache-2.0
"""The default cluster, kinds of noise, and the cluster with a workload of ``sim/scenarios/preset_jobs.py``.

Fixed costs are not scaled: propagation, switches, proxy delays, DCQCN timers (50, 55, 300 us as on real
NICs). The retry timeout is: NCCL's default exponent of 20 means 4.3 s, a quarter of a real 17 s iteration;
at the default scale of 256 that is exponent 12, 16.8 ms.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sim.scenarios.cluster_file import ClusterSpec
from sim.scenarios.preset_jobs import PRESETS, Preset, Site
from sim.spec import (
    CaptureSpec,
    ClockSpec,
    CreditPolicy,
    CreditStyle,
    DataStyle,
    NetworkSpec,
    NoiseSpec,
    SimulationError,
    StackSpec,
    TransportSpec,
)

DEFAULT_STEPS = 20
DEFAULT_WORKLOAD = "dp"

# 1 % per step: a step of a machine has four phases, each of which varies by 2 %.
REALISTIC = NoiseSpec(
    jitter=0.02,
    static_spread=0.013,
    pause_probability=0.0005,
    pause_ns=2_000_000,
    launch_ns=5_000,
)
NOISES: Mapping[str, NoiseSpec] = MappingProxyType(
    {
        "realistic": REALISTIC,
        "imbalance": replace(REALISTIC, imbalance=0.11),
        "quiet": NoiseSpec(jitter=0.001, static_spread=0.0, launch_ns=1_000),
    }
)

DEFAULT_CLUSTER = ClusterSpec(
    machines=8,
    nics_per_machine=8,
    train_packets=8,
    network=NetworkSpec(
        rate_gbps=400.0,
        propagation_ns=500,
        switch_ns=600,
        uplink_rate_gbps=400.0,
        mark_from_bytes=1_000_000,
        mark_all_bytes=4_000_000,
        mark_probability=0.01,
        pause_bytes=3_000_000,
        tos=0x6A,
    ),
    transport=TransportSpec(
        mtu=4096,
        ack_latency_ns=1_000,
        ack_jitter_ns=500,
        timeout_ns=4_096 << 12,
        cnp_interval_ns=50_000,
        alpha_timer_ns=55_000,
        increase_timer_ns=300_000,
        increase_bytes=10 << 20,
        additive_share=0.01,
    ),
    stack=StackSpec(
        slot_bytes=512 << 10,
        p2p_slot_bytes=128 << 10,
        depth=8,
        channels=2,
        data_style=DataStyle.WRITE_THEN_IMM,  # as with adaptive routing
        credit_style=CreditStyle.WRITE,
        credit_policy=CreditPolicy.EARLY,
        credit_bytes=64,
        proxy_ns=1_000,
        proxy_jitter_ns=1_000,
        reduce_bytes_per_ns=200.0,
        step_ns=1_000,
    ),
    noise=REALISTIC,
    clocks=ClockSpec(offset_ns=50_000_000, drift_ppm=20.0, wander_ppm=0.1, jitter_ns=20),
    capture=CaptureSpec(snap_bytes=96),  # all headers, VLAN and IPv4 included
)


def preset_named(name: str) -> Preset:
    """The preset of a name. Raises SimulationError, with close names, when there is none."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(PRESETS)}"
        raise SimulationError(f"no workload {name!r}; {hint}")
    return PRESETS[name]


def with_workload(
    cluster: ClusterSpec, name: str, seed: int, steps: int = DEFAULT_STEPS, scale: float | None = None
) -> ClusterSpec:
    """The cluster with the jobs of a preset. Raises SimulationError when they do not fit."""
    preset = preset_named(name)
    most = preset.largest_scale(cluster.gpus)
    if scale is None:
        scale = float(min(preset.default_scale(cluster.gpus), most))
    if not 1 <= scale <= most:
        raise SimulationError(
            f"workload {name}: scale {scale:g} is impossible; give 1 to {most}, so that a bucket keeps 16 MiB"
        )
    if steps < 1:
        raise SimulationError(f"workload {name}: {steps} iterations; give at least 1")
    jobs = []
    for number, machines in enumerate(_shares(cluster.machines, preset)):
        jobs.append(preset.build(Site(machines, cluster.gpus, steps, scale, seed + 7919 * number)))
    return replace(cluster, jobs=tuple(jobs), storage=cluster.storage or preset.storage)


def _shares(machines: int, preset: Preset) -> list[tuple[int, ...]]:
    if not preset.several_jobs:
        return [tuple(range(machines))]
    if machines < 4:
        raise SimulationError(f"workload {preset.name}: {machines} machines; two jobs need at least 4")
    # In pairs, so that each job lies on both sides of the network, however machines are plugged in.
    return [tuple(m for m in range(machines) if m // 2 % 2 == job) for job in (0, 1)]
