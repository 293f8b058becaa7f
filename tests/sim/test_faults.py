# SPDX-License-Identifier: Apache-2.0
"""Each fault changes what it should, from its onset on, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from pulse_native._sim import ActionKind
from sim.scenarios.lab import build, names
from sim.spec import (
    ClockSpec,
    FaultKind,
    FaultSpec,
    JobSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    SimulationError,
    TxStamp,
)
from tests.sim.bench import Bench
from tests.sim.watching import Watched, ran, watch

_SLOWING = [
    FaultSpec(FaultKind.SLOW_COMPUTE, 1, onset_step=3, factor=1.6),
    FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=3, factor=4.0),
    FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=3, factor=4.0, before_tap=False),
    FaultSpec(FaultKind.SLOW_RECEIVER, 1, onset_step=3, factor=4.0),
    FaultSpec(FaultKind.CPU_CONTENTION, 1, onset_step=3, factor=1.5, probability=0.1, duration_ns=300_000),
    FaultSpec(FaultKind.INPUT_STALL, 1, onset_step=3, duration_ns=4_000_000),
]
_STOPPING = [
    FaultSpec(kind, 1, onset_step=3)
    for kind in (
        FaultKind.HANG,
        FaultKind.CRASH,
        FaultKind.LINK_DOWN,
        FaultKind.NIC_DEAD,
        FaultKind.OP_MISMATCH,
    )
]


def _kind(fault: FaultSpec) -> str:
    return f"{fault.kind}-{fault.before_tap}"


_ACK, _CNP, _WRITE_MIDDLE = 0x11, 0x81, 0x07


def _late_median(done: Watched) -> float:
    return median(done.iterations_ms[3:])


@pytest.mark.parametrize("fault", _SLOWING, ids=_kind)
def test_a_slowing_fault_costs_iteration_time_from_its_onset(small, fault: FaultSpec) -> None:
    healthy, done = ran(small()), ran(small(fault))
    assert done.iterations_ms[:3] == healthy.iterations_ms[:3]
    assert _late_median(done) > 1.1 * _late_median(healthy)


@pytest.mark.parametrize("fault", _SLOWING, ids=_kind)
def test_a_fault_leaves_the_compute_of_all_others_alone(small, fault: FaultSpec) -> None:
    healthy, done = ran(small()), ran(small(fault))
    for rank in (0, 2, 3):
        assert done.compute(rank) == healthy.compute(rank)
    touched = fault.kind not in (FaultKind.SLOW_NIC, FaultKind.SLOW_RECEIVER)
    assert (done.compute(1) != healthy.compute(1)) == touched
    assert done.compute(1)[:3] == healthy.compute(1)[:3]


@pytest.mark.parametrize("fault", _STOPPING, ids=_kind)
def test_a_stopping_fault_stops_everyone_in_the_onset_step(small, fault: FaultSpec) -> None:
    done = ran(small(fault))
    assert done.outcome.end_ns >= done.onset_ns + done.world.scenario.watch_ns
    assert len(done.iterations_ms) in (3, 4)
    ended = [sum(step.end_ns >= 0 for step in done.records.steps[rank]) for rank in range(4)]
    assert max(ended) < 6


def test_a_hung_process_still_acknowledges_but_sends_nothing_new(small) -> None:
    done = watch(small(FaultSpec(FaultKind.HANG, 1, onset_step=3)))
    late = done.sent(1)
    late = late[late["ns"] > done.onset_ns + 100_000]
    assert (late["opcode"] == _ACK).all()
    assert not any(len(done.repeats(nic)) for nic in range(4))


def test_a_crashed_process_acknowledges_nothing(small) -> None:
    done = watch(small(FaultSpec(FaultKind.CRASH, 1, onset_step=3)))
    assert done.sent(1)["ns"].max() < done.onset_ns + 100_000
    assert any(len(done.repeats(nic)) for nic in range(4))


def test_a_dead_nic_sees_nothing_and_a_dead_link_only_its_own_repeats(small) -> None:
    dead = watch(small(FaultSpec(FaultKind.NIC_DEAD, 1, onset_step=3)))
    assert dead.packets[1]["ns"].max() <= dead.onset_ns
    cut = watch(small(FaultSpec(FaultKind.LINK_DOWN, 1, onset_step=3)))
    settled = cut.onset_ns + 100_000
    assert (cut.sent(1)["ns"] > settled).any()
    assert not (cut.received(1)["ns"] > settled).any()


def test_a_link_that_is_down_delivers_nothing_that_waited_in_front_of_it() -> None:
    bench = Bench(4)
    for sender in (1, 2, 3):
        bench.inject(bench.connect(sender, 0), 100_000)
    bench.act(ActionKind.LINK_DOWN, 0, at_ns=500_000)
    received = bench.run(10_000_000).received(0)
    # Up to one packet is on the cable: 33 us of sending, 1 us of way.
    assert received["ns"].max() < 500_000 + 33_456 + 1_000


def test_a_flap_is_survived(small) -> None:
    fault = FaultSpec(FaultKind.LINK_FLAP, 1, onset_step=3, duration_ns=30_000_000)
    done = ran(small(fault))
    times = done.iterations_ms
    assert len(times) == 6
    assert times[3] > 30 > 2 * max(times[4:])
    recovery = done.outcome.setting.armed[0][1].recovery_trigger
    assert recovery is not None
    assert done.outcome.simulation.trigger_times_ps[recovery] > done.onset_ns * 1_000


@pytest.mark.parametrize(("before_tap", "ingress"), [(True, False), (False, False), (False, True)])
def test_loss_is_repaired_and_seen_where_it_should_be(small, before_tap: bool, ingress: bool) -> None:
    fault = FaultSpec(
        FaultKind.PACKET_LOSS, 1, onset_step=2, probability=0.02, before_tap=before_tap, ingress=ingress
    )
    done = watch(small(fault))
    assert done.finished
    assert done.outcome.simulation.counters["packets_lost"] > 0
    source, target = (0, 1) if ingress else (1, 2)
    sent, came = (
        Counter(zip(p["dest_qpn"].tolist(), p["psn"].tolist(), p["opcode"].tolist(), strict=True))
        for p in (done.sent(source, target), done.received(target, source))
    )
    assert came <= sent
    assert (sent.total() > came.total()) == (not before_tap)
    # What is lost before the tap shows there once only, as does its repeat.
    assert len(done.repeats(source)) > 0 or (before_tap and done.outcome.simulation.counters["retransmitted"])


def test_a_rate_cap_before_the_tap_is_visible_there_and_one_behind_it_is_not(small) -> None:
    gaps = []
    for before_tap in (True, False):
        fault = FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=1, factor=4.0, before_tap=before_tap)
        done = watch(replace(small(fault), clock=ClockSpec(tx_stamp=TxStamp.COPY, copy_jitter_ns=0)))
        sent = done.sent(1)
        data = sent[(sent["opcode"] == _WRITE_MIDDLE) & (sent["ns"] > done.onset_ns)]
        gaps.append(np.diff(data["ns"]).min())
    assert gaps[0] > 3 * gaps[1]


def test_stamps_of_the_wire_show_a_slow_port_and_a_slow_nic_alike(small) -> None:
    gaps = []
    for before_tap in (True, False):
        fault = FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=1, factor=4.0, before_tap=before_tap)
        done = watch(small(fault))
        sent = done.sent(1)
        data = sent[(sent["opcode"] == _WRITE_MIDDLE) & (sent["ns"] > done.onset_ns)]
        gaps.append(np.diff(data["ns"]).min())
    assert gaps[0] == pytest.approx(gaps[1], rel=0.01)


@pytest.mark.parametrize("kind", [FaultKind.RANDOM_PAUSES, FaultKind.IMBALANCE])
def test_a_benign_disturbance_raises_nobody_for_long(small, kind: FaultKind) -> None:
    job = JobSpec((0, 1, 2, 3), steps=40, collective_bytes=1 << 16, compute_ns=6_000_000)
    fault = FaultSpec(kind, onset_step=0, probability=0.08, duration_ns=3_000_000)
    noise = NoiseSpec(imbalance=0.11 if kind is FaultKind.IMBALANCE else 0.0)
    done = ran(small(fault, jobs=(job,), noise=noise))
    table = [done.compute(rank) for rank in range(4)]
    middle = median(median(row) for row in table)
    for row in table:
        assert 0.9 < median(row) / middle < 1.1
    assert max(max(row) for row in table) > 1.2 * middle


def test_a_checkpoint_stops_all_ranks_in_the_same_steps(small) -> None:
    fault = FaultSpec(FaultKind.PERIODIC_PAUSE, onset_step=0, period_steps=3, duration_ns=20_000_000)
    done = ran(small(fault))
    for rank in range(4):
        assert [c > 20_000_000 for c in done.compute(rank)] == [True, False, False] * 2


def test_congestion_marks_packets_and_touches_no_compute(small) -> None:
    network = NetworkSpec(
        leaves=2, uplinks=1, uplink_rate_gbps=2.0, mark_from_bytes=40_000, mark_all_bytes=160_000
    )
    fault = FaultSpec(FaultKind.CONGESTION, onset_step=2, factor=0.8)
    healthy, done = ran(small(network=network)), watch(small(fault, network=network))
    assert any((done.packets[nic]["opcode"] == _CNP).any() for nic in range(4))
    assert [done.compute(r) for r in range(4)] == [healthy.compute(r) for r in range(4)]
    assert _late_median(done) > 1.1 * _late_median(healthy)


def test_a_path_collision_slows_a_ring_that_crosses_leaves(small) -> None:
    network = NetworkSpec(leaves=2, interleaved=True, uplinks=16, uplink_rate_gbps=2.0)
    healthy = ran(small(network=network))
    done = ran(small(FaultSpec(FaultKind.PATH_COLLISION, onset_step=2), network=network))
    assert _late_median(done) > 1.1 * _late_median(healthy)


def test_loss_inside_the_fabric_hits_one_pair_and_is_seen_at_its_sender(small) -> None:
    network = NetworkSpec(leaves=2, interleaved=True, uplinks=64, uplink_rate_gbps=2.0)
    done = watch(small(FaultSpec(FaultKind.FABRIC_LOSS, onset_step=1, probability=0.03), network=network))
    assert done.finished
    machine = {nic.ipv4.to_bytes(4, "big"): nic.machine for nic in done.world.nics}
    pairs = {
        (machine[bytes(p["src"][12:])], machine[bytes(p["dst"][12:])])
        for nic in range(4)
        for p in done.repeats(nic)
    }
    assert pairs == {done.outcome.setting.armed[0][1].candidates}


def test_a_slow_leaf_slows_all_that_cross_it(small) -> None:
    network = NetworkSpec(leaves=2, uplinks=1, uplink_rate_gbps=8.0)
    healthy = ran(small(network=network))
    done = ran(small(FaultSpec(FaultKind.SWITCH_PORT, onset_step=2, factor=16.0), network=network))
    assert _late_median(done) > 1.1 * _late_median(healthy)


def test_two_faults_cost_more_than_either(small) -> None:
    compute = FaultSpec(FaultKind.SLOW_COMPUTE, 0, onset_step=2, factor=2.5)
    nic = FaultSpec(FaultKind.SLOW_NIC, 2, onset_step=3, factor=4.0)
    cost = [
        _late_median(ran(small(first, second_fault=second)))
        for first, second in ((compute, None), (nic, None), (compute, nic))
    ]
    assert cost[2] > 1.1 * max(cost[:2])


@pytest.mark.parametrize("kind", [FaultKind.SLOW_NIC, FaultKind.SLOW_RECEIVER, FaultKind.SLOW_COMPUTE])
def test_a_fault_that_ends_leaves_nothing_behind(small, kind: FaultKind) -> None:
    job = JobSpec((0, 1, 2, 3), steps=8, collective_bytes=1 << 18, compute_ns=4_000_000)
    fault = FaultSpec(kind, 1, onset_step=2, until_step=4, factor=4.0)
    healthy, done = ran(small(jobs=(job,))), ran(small(fault, jobs=(job,)))
    assert min(done.iterations_ms[2:4]) > 1.3 * max(healthy.iterations_ms[2:4])
    assert median(done.iterations_ms[5:]) == pytest.approx(median(healthy.iterations_ms[5:]), rel=0.02)
    assert done.outcome.simulation.counters["retransmitted"] == 0


def test_impossible_faults_say_what_is_missing(small) -> None:
    with pytest.raises(SimulationError, match="give the machine"):
        ran(small(FaultSpec(FaultKind.SLOW_NIC)))
    with pytest.raises(SimulationError, match="at least two leaves"):
        ran(small(FaultSpec(FaultKind.PATH_COLLISION, onset_step=0)))
    with pytest.raises(SimulationError, match="stage_factors"):
        ran(small(FaultSpec(FaultKind.STAGE_IMBALANCE)))


def test_every_named_scenario_can_be_built_and_names_its_parts() -> None:
    for name in names():
        scenario = build(name, 5)
        fault, shape, policy = name.split("-")
        assert scenario.stack.credit_policy == policy
        kinds = [f.kind.value for f in scenario.faults]
        assert kinds == {"healthy": [], "two_faults": ["slow_compute", "slow_nic"]}.get(fault, [fault])
        assert shape == "none" or scenario.jobs[0].compute_ns > 0


def test_the_world_of_a_name_is_drawn_apart_from_its_fault() -> None:
    healthy, slow = build("healthy-dp-early", 9), build("slow_nic-dp-early", 9)
    assert replace(slow, name=healthy.name, fault=None) == healthy


def test_seeds_vary_culprits_and_sizes() -> None:
    drawn: list[Scenario] = [build("slow_compute-dp-on_entry", seed) for seed in range(30)]
    assert len({s.fault.machine for s in drawn if s.fault}) >= 4
    assert len({s.machines for s in drawn}) >= 3
    assert len({s.jobs[0].collective_bytes for s in drawn}) > 20
