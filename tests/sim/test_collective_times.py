# SPDX-License-Identifier: Apache-2.0
"""How long collectives last, against what their bytes take of a link and the latencies on the way."""

from __future__ import annotations

import numpy as np
import pytest

from sim.spec import (
    Algorithm,
    CreditPolicy,
    DataStyle,
    JobSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    StackSpec,
    TransportSpec,
    Workload,
)
from tests.sim.bench import RETH_BYTES, message_bytes, packet_bytes
from tests.sim.watching import Watched, ran

MS = 1_000_000
HOST_NS, STEP_NS, ACK_NS, LINK_NS = 300, 200, 1_000, 1_400
REDUCE_BYTES_PER_NS = 1_000.0
IMMEDIATE_BYTES, AETH_BYTES = 4, 4
STEPS = 3


def _still(
    ranks: int, job: JobSpec, rate_gbps: float, slot_bytes: int, depth: int,
    policy: CreditPolicy = CreditPolicy.ON_ENTRY,
) -> Watched:  # fmt: skip
    """A job without any noise on one switch."""
    scenario = Scenario(
        "still", 3, ranks, (job,),
        network=NetworkSpec(rate_gbps=rate_gbps, propagation_ns=800, switch_ns=600, pause_bytes=1 << 22),
        transport=TransportSpec(ack_latency_ns=ACK_NS, ack_jitter_ns=0, fetch_jitter_ns=0),
        stack=StackSpec(
            slot_bytes=slot_bytes, depth=depth, data_style=DataStyle.WRITE_IMM,
            credit_policy=policy, proxy_ns=HOST_NS, proxy_jitter_ns=0, step_ns=STEP_NS,
            reduce_bytes_per_ns=REDUCE_BYTES_PER_NS,
        ),
        noise=NoiseSpec(jitter=0.0, static_spread=0.0, launch_ns=1),
    )  # fmt: skip
    done = ran(scenario)
    assert done.finished
    return done


def _durations_ns(done: Watched, kind: str) -> np.ndarray:
    """From the last rank's entry to the last rank's end, for every operation within steps."""
    ranks = done.world.training_ranks
    times = [
        [o for step in done.records.steps[rank.number] for o in step.operations if o.kind == kind]
        for rank in ranks
    ]
    return np.array(
        [max(o.end_ns for o in same) - max(o.enter_ns for o in same) for same in zip(*times, strict=True)]
    )


def _slot_ns(slot_bytes: int, rate_gbps: float) -> float:
    """A slot on the link."""
    return (message_bytes(slot_bytes) + IMMEDIATE_BYTES) * 8 / rate_gbps


def _small_ns(rate_gbps: float) -> float:
    """What else leaves a NIC of a ring for each slot: a credit and two acknowledgements."""
    return (packet_bytes(64, RETH_BYTES) + 2 * packet_bytes(0, AETH_BYTES)) * 8 / rate_gbps


def _latency_ns(slot_bytes: int, rate_gbps: float) -> float:
    """All that is not bytes on one's own link, once: the first slot's staging and posting, two links, one
    packet's passage through the switch, and then the later of consumption and acknowledgement."""
    step_ns = STEP_NS + slot_bytes / REDUCE_BYTES_PER_NS
    switch_ns = packet_bytes(4_096) * 8 / rate_gbps
    consumed_ns = HOST_NS + step_ns
    freed_ns = ACK_NS + 2 * packet_bytes(0, AETH_BYTES) * 8 / rate_gbps + LINK_NS + 800 + HOST_NS
    return step_ns + HOST_NS + LINK_NS + 800 + switch_ns + max(consumed_ns, freed_ns)


@pytest.mark.parametrize("slots", [8, 16])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(("rate_gbps", "slot_bytes"), [(2.0, 65_536), (400.0, 1 << 20)])
def test_a_ring_all_reduce_lasts_its_share_of_bytes_and_one_latency(
    rate_gbps: float, slot_bytes: int, ranks: int, slots: int
) -> None:
    size = ranks * slots * slot_bytes
    job = JobSpec(tuple(range(ranks)), steps=STEPS, collective_bytes=size, compute_ns=1 * MS)
    done = _still(ranks, job, rate_gbps, slot_bytes, depth=2 * slots)
    # 2 (n - 1) / n of the size leaves each NIC. A chunk of at least 8 slots keeps the link busy while one of
    # its slots is on its way to the next rank, so that latency counts once and not per hop.
    share_ns = 2 * (ranks - 1) * slots * _slot_ns(slot_bytes, rate_gbps)
    small_ns = 2 * (ranks - 1) * slots * _small_ns(rate_gbps)
    expected_ns = share_ns + small_ns + _latency_ns(slot_bytes, rate_gbps)
    durations = _durations_ns(done, "all_reduce")
    assert len(durations) == STEPS
    # Never faster than bytes allow; and no slower than all small packets in the way of data. A host that
    # posts the grants of a whole window first, and ranks that enter apart as they ended apart, cost a few us.
    assert durations.min() > share_ns
    assert durations == pytest.approx([expected_ns] * STEPS, rel=0.004, abs=6_000)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_half_of_a_ring_lasts_half_as_long(kind: str) -> None:
    ranks, slots, slot_bytes, rate_gbps = 4, 8, 65_536, 2.0
    job = JobSpec(tuple(range(ranks)), Workload.FSDP, STEPS, ranks * slots * slot_bytes, 3 * MS, layers=1)
    done = _still(ranks, job, rate_gbps, slot_bytes, depth=2 * slots)
    bytes_ns = (ranks - 1) * slots * (_slot_ns(slot_bytes, rate_gbps) + _small_ns(rate_gbps))
    durations = _durations_ns(done, kind)
    expected_ns = bytes_ns + _latency_ns(slot_bytes, rate_gbps)
    assert durations == pytest.approx([expected_ns] * len(durations), rel=0.004, abs=6_000)


def test_short_chunks_cost_a_latency_for_every_hop() -> None:
    ranks, slot_bytes, rate_gbps = 8, 4_096, 400.0
    job = JobSpec(tuple(range(ranks)), steps=STEPS, collective_bytes=ranks * slot_bytes, compute_ns=1 * MS)
    done = _still(ranks, job, rate_gbps, slot_bytes, 4, CreditPolicy.NONE)
    # One slot per chunk: each of 2 (n - 1) hops is staged, posted, sent, told and taken, one after the other.
    step_ns = STEP_NS + slot_bytes / REDUCE_BYTES_PER_NS
    hop_ns = step_ns + 2 * HOST_NS + 2 * _slot_ns(slot_bytes, rate_gbps) + LINK_NS + 800
    # The last one is staged by nobody, but its acknowledgement has to come: a host reaction and two links.
    durations = _durations_ns(done, "all_reduce")
    assert durations == pytest.approx(
        [2 * (ranks - 1) * hop_ns] * STEPS, rel=0.01, abs=2 * (HOST_NS + LINK_NS)
    )


def test_a_tree_moves_the_whole_size_up_and_down_in_a_pipeline() -> None:
    ranks, slots, slot_bytes, rate_gbps = 4, 40, 65_536, 2.0
    job = JobSpec(
        tuple(range(ranks)), steps=STEPS, collective_bytes=slots * slot_bytes, compute_ns=1 * MS,
        algorithm=Algorithm.TREE,
    )  # fmt: skip
    done = _still(ranks, job, rate_gbps, slot_bytes, depth=8)
    durations = _durations_ns(done, "all_reduce")
    # The root has two children: both send to it at once, over one port, and it sends to both: twice the size
    # each way, at the same time. Then the depth of the tree, two hops up and two down, once.
    bytes_ns = 2 * slots * _slot_ns(slot_bytes, rate_gbps)
    depth_ns = 4 * (_slot_ns(slot_bytes, rate_gbps) * 2 + _latency_ns(slot_bytes, rate_gbps))
    assert durations.min() > bytes_ns
    assert durations.max() < bytes_ns + 2 * slots * _small_ns(rate_gbps) + depth_ns


def test_an_all_to_all_lasts_as_long_as_the_busiest_port() -> None:
    ranks, slots, slot_bytes, rate_gbps = 4, 8, 65_536, 2.0
    size = slots * slot_bytes * ranks * 2  # one block, two exchanges: `slots` to each peer
    job = JobSpec(tuple(range(ranks)), Workload.MOE, STEPS, size, 9 * MS, layers=1)
    done = _still(ranks, job, rate_gbps, slot_bytes, depth=8)
    bytes_ns = (ranks - 1) * slots * _slot_ns(slot_bytes, rate_gbps)
    small_ns = (ranks - 1) * slots * _small_ns(rate_gbps)
    durations = _durations_ns(done, "all_to_all")
    assert durations.min() > bytes_ns
    # Peers are served in turn, eight packets each, so that all end together: a turn of three is left over.
    turn_ns = 3 * 8 * packet_bytes(4_096) * 8 / rate_gbps
    assert durations.max() < bytes_ns + small_ns + _latency_ns(slot_bytes, rate_gbps) + turn_ns
