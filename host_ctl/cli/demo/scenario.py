# SPDX-License-Identifier: Apache-2.0
"""The job of the demo: 64 NICs whose bytes and rates are scaled down alike, so that times are real ones."""

from __future__ import annotations

from dataclasses import replace

from sim.scenarios.catalogue import HEALTHY, Choice, Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER, with_workload
from sim.spec import Scenario

STEPS = 70
_ONSET = 0.4  # of the steps
_COMPUTE_NS = 250_000_000
_COLLECTIVE_BYTES = 4 << 20
_RATE_GBPS = 5.0
_TRAIN_PACKETS = 128


def demo_scenario(fault: str, seed: int) -> Scenario:
    """A data-parallel job on 8 machines with 8 NICs each. Raises SimulationError for an unknown fault."""
    cluster = with_workload(DEFAULT_CLUSTER, "dp", seed)
    job = replace(
        cluster.jobs[0], collective_bytes=_COLLECTIVE_BYTES, compute_ns=_COMPUTE_NS, buckets=2, steps=STEPS
    )
    network = replace(cluster.network, rate_gbps=_RATE_GBPS, uplink_rate_gbps=_RATE_GBPS)
    cluster = replace(cluster, jobs=(job,), network=network, train_packets=_TRAIN_PACKETS)
    choice = Choice() if fault == HEALTHY else Choice(onset_step=round(STEPS * _ONSET))
    return build(Order(fault, seed, cluster, choice=choice))
