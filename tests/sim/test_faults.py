# SPDX-License-Identifier: Apache-2.0
"""Each fault changes what it should, from its onset on, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import replace
from statistics import median

import pytest

from sim.network import Nic
from sim.run import simulate
from sim.scenarios import build, names
from sim.spec import FaultKind, FaultSpec, JobSpec, NetworkSpec, NoiseSpec, Scenario, SimulationError
from sim.truth import iteration_times_ms
from sim.world import World

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


def _last_sent_ns(nic: Nic, from_ns: int = 0) -> int:
    sent = [t for t, out in zip(nic.tap.times_ns, nic.tap.sent, strict=True) if out and t >= from_ns]
    return max(sent, default=-1)


def _compute(world: World, rank: int) -> list[int]:
    return [record.compute_ns for record in world.ranks[rank].steps]


@pytest.mark.parametrize("fault", _SLOWING, ids=_kind)
def test_a_slowing_fault_costs_iteration_time_from_its_onset(small, fault: FaultSpec) -> None:
    healthy, _ = simulate(small())
    world, _ = simulate(small(fault))
    before, after = iteration_times_ms(world.ranks)[:3], iteration_times_ms(world.ranks)[3:]
    assert before == iteration_times_ms(healthy.ranks)[:3]
    assert median(after) > 1.1 * median(iteration_times_ms(healthy.ranks)[3:])


@pytest.mark.parametrize("fault", _SLOWING, ids=_kind)
def test_a_fault_leaves_the_compute_of_all_others_alone(small, fault: FaultSpec) -> None:
    healthy, _ = simulate(small())
    world, _ = simulate(small(fault))
    for rank in (0, 2, 3):
        assert _compute(world, rank) == _compute(healthy, rank)
    touched = fault.kind not in (FaultKind.SLOW_NIC, FaultKind.SLOW_RECEIVER)
    assert (_compute(world, 1) != _compute(healthy, 1)) == touched
    assert _compute(world, 1)[:3] == _compute(healthy, 1)[:3]


@pytest.mark.parametrize("fault", _STOPPING, ids=_kind)
def test_a_stopping_fault_stops_everyone_in_the_onset_step(small, fault: FaultSpec) -> None:
    world, end_ns = simulate(small(fault))
    assert world.onset_ns is not None
    assert end_ns >= world.onset_ns + world.scenario.watch_ns
    assert len(iteration_times_ms(world.ranks)) in (3, 4)
    assert not any(rank.finished for rank in world.ranks)


def test_a_hung_process_still_acknowledges_but_sends_nothing_new(small) -> None:
    world, _ = simulate(small(FaultSpec(FaultKind.HANG, 1, onset_step=3)))
    nic = world.ranks[1].nic
    assert world.onset_ns is not None
    late = [p for t, p in zip(nic.tap.times_ns, nic.tap.packets, strict=True) if t > world.onset_ns + 100_000]
    assert all(p.opcode == 0x11 for p in late if p.source is nic)
    assert not any(p.repeat for other in world.nics for p in other.tap.packets)


def test_a_crashed_process_acknowledges_nothing(small) -> None:
    world, _ = simulate(small(FaultSpec(FaultKind.CRASH, 1, onset_step=3)))
    assert world.onset_ns is not None
    assert _last_sent_ns(world.ranks[1].nic) < world.onset_ns + 100_000
    assert any(p.repeat for other in world.nics for p in other.tap.packets)


def test_a_dead_nic_sees_nothing_and_a_dead_link_only_its_own_repeats(small) -> None:
    dead, _ = simulate(small(FaultSpec(FaultKind.NIC_DEAD, 1, onset_step=3)))
    assert dead.onset_ns is not None
    assert dead.ranks[1].nic.tap.times_ns[-1] <= dead.onset_ns
    cut, _ = simulate(small(FaultSpec(FaultKind.LINK_DOWN, 1, onset_step=3)))
    assert cut.onset_ns is not None
    nic = cut.ranks[1].nic
    settled = cut.onset_ns + 100_000
    after = [out for t, out in zip(nic.tap.times_ns, nic.tap.sent, strict=True) if t > settled]
    assert after
    assert all(after)


def test_a_flap_is_survived(small) -> None:
    fault = FaultSpec(FaultKind.LINK_FLAP, 1, onset_step=3, duration_ns=30_000_000)
    world, _ = simulate(small(fault))
    times = iteration_times_ms(world.ranks)
    assert len(times) == 6
    assert times[3] > 30 > 2 * max(times[4:])
    assert world.recovery_ns is not None


@pytest.mark.parametrize(("before_tap", "ingress"), [(True, False), (False, False), (False, True)])
def test_loss_is_repaired_and_seen_where_it_should_be(small, before_tap: bool, ingress: bool) -> None:
    fault = FaultSpec(
        FaultKind.PACKET_LOSS, 1, onset_step=2, probability=0.02, before_tap=before_tap, ingress=ingress
    )
    world, _ = simulate(small(fault))
    assert all(rank.finished for rank in world.ranks)
    nic, neighbour = world.ranks[1].nic, world.ranks[0 if ingress else 2].nic
    source, target = (neighbour, nic) if ingress else (nic, neighbour)
    sent = {
        id(p)
        for p, out in zip(source.tap.packets, source.tap.sent, strict=True)
        if out and p.target is target
    }
    came = {
        id(p)
        for p, out in zip(target.tap.packets, target.tap.sent, strict=True)
        if not out and p.source is source
    }
    assert came <= sent
    assert (len(sent) > len(came)) == (not before_tap)
    assert sum(p.repeat for p in source.tap.packets) > 0


def test_a_rate_cap_before_the_tap_is_visible_there_and_one_behind_it_is_not(small) -> None:
    gaps = []
    for before_tap in (True, False):
        fault = FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=1, factor=4.0, before_tap=before_tap)
        world, _ = simulate(small(fault))
        tap = world.ranks[1].nic.tap
        assert world.onset_ns is not None
        data = [
            t
            for t, p, out in zip(tap.times_ns, tap.packets, tap.sent, strict=True)
            if out and p.opcode == 0x07 and t > world.onset_ns
        ]
        gaps.append(min(b - a for a, b in itertools.pairwise(data)))
    assert gaps[0] > 3 * gaps[1]


@pytest.mark.parametrize("kind", [FaultKind.RANDOM_PAUSES, FaultKind.IMBALANCE])
def test_a_benign_disturbance_raises_nobody_for_long(small, kind: FaultKind) -> None:
    job = JobSpec((0, 1, 2, 3), steps=40, collective_bytes=1 << 16, compute_ns=6_000_000)
    fault = FaultSpec(kind, onset_step=0, probability=0.08, duration_ns=3_000_000)
    noise = NoiseSpec(imbalance=0.11 if kind is FaultKind.IMBALANCE else 0.0)
    world, _ = simulate(small(fault, jobs=(job,), noise=noise))
    table = [_compute(world, rank) for rank in range(4)]
    middle = median(median(row) for row in table)
    for row in table:
        assert 0.9 < median(row) / middle < 1.1
    assert max(max(row) for row in table) > 1.2 * middle


def test_a_checkpoint_stops_all_ranks_in_the_same_steps(small) -> None:
    fault = FaultSpec(FaultKind.PERIODIC_PAUSE, onset_step=0, period_steps=3, duration_ns=20_000_000)
    world, _ = simulate(small(fault))
    for rank in range(4):
        assert [c > 20_000_000 for c in _compute(world, rank)] == [True, False, False] * 2


def test_congestion_marks_packets_and_touches_no_compute(small) -> None:
    network = NetworkSpec(leaves=2, uplinks=1, uplink_rate_gbps=2.0, ecn_threshold_bytes=40_000)
    healthy, _ = simulate(small(network=network))
    world, _ = simulate(small(FaultSpec(FaultKind.CONGESTION, onset_step=2, factor=0.8), network=network))
    assert any(p.opcode == 0x81 for nic in world.nics for p in nic.tap.packets)
    assert [_compute(world, r) for r in range(4)] == [_compute(healthy, r) for r in range(4)]
    assert median(iteration_times_ms(world.ranks)[3:]) > 1.1 * median(iteration_times_ms(healthy.ranks)[3:])


def test_a_path_collision_slows_a_ring_that_crosses_leaves(small) -> None:
    network = NetworkSpec(leaves=2, interleaved=True, uplinks=16, uplink_rate_gbps=2.0)
    healthy, _ = simulate(small(network=network))
    world, _ = simulate(small(FaultSpec(FaultKind.PATH_COLLISION, onset_step=2), network=network))
    assert median(iteration_times_ms(world.ranks)[3:]) > 1.1 * median(iteration_times_ms(healthy.ranks)[3:])


def test_loss_inside_the_fabric_hits_one_pair_and_is_seen_at_its_sender(small) -> None:
    network = NetworkSpec(leaves=2, interleaved=True, uplinks=64, uplink_rate_gbps=2.0)
    world, _ = simulate(
        small(FaultSpec(FaultKind.FABRIC_LOSS, onset_step=1, probability=0.03), network=network)
    )
    assert all(rank.finished for rank in world.ranks)
    pairs = {
        (p.source.address.machine, p.target.address.machine)
        for nic in world.nics
        for p, out in zip(nic.tap.packets, nic.tap.sent, strict=True)
        if out and p.repeat
    }
    assert pairs == {tuple(world.candidates)}


def test_a_slow_leaf_slows_all_that_cross_it(small) -> None:
    network = NetworkSpec(leaves=2, uplinks=1, uplink_rate_gbps=8.0)
    healthy, _ = simulate(small(network=network))
    world, _ = simulate(small(FaultSpec(FaultKind.SWITCH_PORT, onset_step=2, factor=16.0), network=network))
    assert median(iteration_times_ms(world.ranks)[3:]) > 1.1 * median(iteration_times_ms(healthy.ranks)[3:])


def test_two_faults_cost_more_than_either(small) -> None:
    compute = FaultSpec(FaultKind.SLOW_COMPUTE, 0, onset_step=2, factor=2.5)
    nic = FaultSpec(FaultKind.SLOW_NIC, 2, onset_step=3, factor=4.0)
    cost = [
        median(iteration_times_ms(simulate(small(first, second_fault=second))[0].ranks)[3:])
        for first, second in ((compute, None), (nic, None), (compute, nic))
    ]
    assert cost[2] > 1.1 * max(cost[:2])


def test_impossible_faults_say_what_is_missing(small) -> None:
    with pytest.raises(SimulationError, match="give the machine"):
        simulate(small(FaultSpec(FaultKind.SLOW_NIC)))
    with pytest.raises(SimulationError, match="at least two leaves"):
        simulate(small(FaultSpec(FaultKind.PATH_COLLISION, onset_step=0)))
    with pytest.raises(SimulationError, match="stage_factors"):
        simulate(small(FaultSpec(FaultKind.STAGE_IMBALANCE)))


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
