# SPDX-License-Identifier: Apache-2.0
"""Packets that travel in trains arrive as they would alone, but for what a train holds up."""

from __future__ import annotations

import numpy as np
import pytest

from pulse_native._sim import ActionKind
from sim.spec import (
    Algorithm,
    CreditPolicy,
    CreditStyle,
    FaultKind,
    FaultSpec,
    JobSpec,
    NetworkSpec,
    StackSpec,
    TransportSpec,
    Workload,
)
from tests.sim.bench import Bench, data_of
from tests.sim.watching import Watched, ran, watch

MS = 1_000_000
_MACHINES = (0, 1, 2, 3)
_JOBS = {
    "dp": JobSpec(_MACHINES, steps=6, collective_bytes=1 << 23, compute_ns=20 * MS),
    "fsdp": JobSpec(_MACHINES, Workload.FSDP, 6, 1 << 23, 20 * MS, layers=2),
    "pp": JobSpec(
        _MACHINES, Workload.PP, 6, 1 << 22, 40 * MS, stages=4, micro_batches=6, activation_bytes=1 << 20
    ),
    "moe": JobSpec(_MACHINES, Workload.MOE, 6, 1 << 23, 40 * MS, layers=2, uneven=True),
    "tree": JobSpec(
        _MACHINES, steps=6, collective_bytes=1 << 23, compute_ns=20 * MS, algorithm=Algorithm.DOUBLE_TREE
    ),
}
# Draws per packet in one mode are draws per train in the other.
_EVEN = TransportSpec(fetch_jitter_ns=0)


def _pair(small, train: int, **fields: object) -> tuple[Watched, Watched]:
    fields = {"transport": _EVEN, **fields}
    return ran(small(**fields)), ran(small(train_packets=train, **fields))


@pytest.mark.parametrize("train", [32, 64])
@pytest.mark.parametrize("name", _JOBS)
def test_iterations_last_as_long_in_trains_as_packet_by_packet(small, name: str, train: int) -> None:
    single, trains = _pair(small, train, jobs=(_JOBS[name],))
    # Small differences decide who is served first, and single iterations feel them more than the sum.
    assert trains.iterations_ms == pytest.approx(single.iterations_ms, rel=0.02)
    assert sum(trains.iterations_ms) == pytest.approx(sum(single.iterations_ms), rel=0.01)


@pytest.mark.parametrize("rate_gbps", [100.0, 400.0])
def test_iterations_agree_on_fast_links_too(small, rate_gbps: float) -> None:
    job = JobSpec(_MACHINES, steps=6, collective_bytes=1 << 24, compute_ns=400_000)
    network = NetworkSpec(rate_gbps=rate_gbps, pause_bytes=1 << 20)
    single, trains = _pair(small, 32, jobs=(job,), network=network)
    assert sum(trains.iterations_ms) == pytest.approx(sum(single.iterations_ms), rel=0.01)


@pytest.mark.parametrize("name", _JOBS)
def test_every_lane_carries_the_same_slots_in_the_same_order(small, name: str) -> None:
    single, trains = _pair(small, 32, jobs=(_JOBS[name],))
    for lane in single.world.lanes:
        one, other = single.slots(lane), trains.slots(lane)
        assert one["bytes"].tolist() == other["bytes"].tolist()
        assert (np.diff(other["delivered_ns"]) >= 0).all()


@pytest.mark.parametrize("name", ["dp", "moe"])
def test_every_queue_pair_sends_the_same_packets_in_the_same_order(small, name: str) -> None:
    fields = {"jobs": (JobSpec(_MACHINES, _JOBS[name].workload, 2, 1 << 20, 4 * MS),), "transport": _EVEN}
    single, trains = (watch(small(train_packets=train, **fields)) for train in (1, 32))
    for nic in range(4):
        one, other = (data_of(run.sent(nic)) for run in (single, trains))
        for qpn in np.unique(one["dest_qpn"]):
            for field in ("opcode", "psn", "payload_bytes", "ack_req", "dma_bytes", "immediate"):
                mine, theirs = (p[p["dest_qpn"] == qpn][field].tolist() for p in (one, other))
                assert mine == theirs


def test_packets_of_a_train_pass_a_tap_at_the_pace_of_the_link() -> None:
    bench = Bench().tune("network", train_packets=32, quantum_packets=32)
    bench.inject(bench.connect(1, 0), 4_096 * 32)
    alone = Bench()
    alone.inject(alone.connect(1, 0), 4_096 * 32)
    for nic in (0, 1):
        trained, single = (data_of(b.run(10 * MS).packets[nic])["ns"] for b in (bench, alone))
        # Packets of a train are evenly spaced, though its first one has 16 bytes more: 128 ns here.
        assert trained.tolist() == pytest.approx(single.tolist(), abs=130)


@pytest.mark.parametrize("jitter_ns", [0, 20_000])
@pytest.mark.parametrize("slow", [False, True])
def test_trains_overtake_each_other_on_no_way(small, jitter_ns: int, slow: bool) -> None:
    fault = FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=1, factor=4.0) if slow else None
    networks = (
        NetworkSpec(switch_jitter_ns=jitter_ns),
        NetworkSpec(leaves=2, interleaved=True, uplinks=8, uplink_rate_gbps=8.0, switch_jitter_ns=jitter_ns),
        NetworkSpec(leaves=2, interleaved=True, uplinks=8, uplink_rate_gbps=1.0, switch_jitter_ns=jitter_ns),
    )
    for network in networks:
        done = ran(small(fault, network=network, train_packets=32, transport=_EVEN))
        assert done.finished
        assert done.outcome.simulation.counters["retransmitted"] == 0


def test_a_short_message_behind_a_slow_train_does_not_overtake_it() -> None:
    bench = Bench(3).tune("network", train_packets=32, quantum_packets=32)
    bench.act(ActionKind.WIRE_RATE, 1, 10.0)
    end = bench.connect(1, 0)
    for size in (4_096 * 32, 0, 4_096 * 32, 4):
        bench.inject(end, size)
    ran_ = bench.run(100 * MS)
    assert ran_.simulation.counters["retransmitted"] == 0
    assert (np.diff(data_of(ran_.received(0))["psn"].astype(int)) == 1).all()


@pytest.mark.parametrize("train", [32, 64])
def test_trains_share_a_port_as_packets_do(train: int) -> None:
    bench = Bench(4).tune("network", train_packets=train, quantum_packets=train)
    bench.tune("network", pause_bytes=1 << 20, resume_bytes=3 << 18)
    for sender in (1, 2, 3):
        bench.inject(bench.connect(sender, 0), 1 << 18, 1_000, depth=8)
    done = bench.run(400 * MS)
    # Of a window of 300 ms at most two trains of 64 packets, 2 ms each, are cut off.
    shares = [done.gbps(0, sender, 100 * MS, 400 * MS) for sender in (1, 2, 3)]
    assert shares == pytest.approx([1 / 3] * 3, rel=0.015)


@pytest.mark.parametrize("place", [ActionKind.LOSS_BEFORE_TAP, ActionKind.LOSS_ON_WIRE, ActionKind.PORT_LOSS])
def test_single_packets_of_a_train_get_lost_as_often_as_packets_alone(place: ActionKind) -> None:
    found = []
    for train in (1, 32):
        bench = Bench(seed=4).tune("network", train_packets=train, quantum_packets=max(8, train))
        bench.tune("transport", timeout_ps=10**10, retry_limit=10**6)
        bench.inject(bench.connect(1, 0), 1 << 17, 10**6, depth=4)
        bench.act(place, 0 if place == ActionKind.PORT_LOSS else 1, 0.002)
        counters = bench.start(tapped=False)
        counters.advance(10_000 * MS)
        found.append(counters.counters["packets_lost"])
    # 300 000 packets at 0.002: about 600 losses, sqrt of which is 25.
    assert found[1] == pytest.approx(found[0], abs=4 * 2**0.5 * 25)


@pytest.mark.parametrize("train", [32, 64])
def test_without_credits_an_even_all_to_all_agrees_within_a_thousandth(small, train: int) -> None:
    job = JobSpec(_MACHINES, Workload.MOE, 6, 1 << 23, 40 * MS, layers=2)
    stack = StackSpec(credit_policy=CreditPolicy.NONE, credit_style=CreditStyle.NONE)
    single, trains = _pair(small, train, jobs=(job,), stack=stack)
    # Nothing small can be held up by a train, so that only the order in which peers are served differs.
    assert sum(trains.iterations_ms) == pytest.approx(sum(single.iterations_ms), rel=0.001)
