# SPDX-License-Identifier: Apache-2.0
"""Collectives: volumes, causality, and how a late rank holds up its neighbours."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sim.collectives import double_tree_parents, slots_of
from sim.lanes import Lane
from sim.run import simulate
from sim.spec import (
    Algorithm,
    CreditPolicy,
    CreditStyle,
    DataStyle,
    FaultKind,
    FaultSpec,
    JobSpec,
    NoiseSpec,
    StackSpec,
    Workload,
)
from sim.workloads import WARM_UP_BYTES
from sim.world import World


def _lane(world: World, sender: int, kind: str = "ring") -> Lane:
    return next(lane for lane in world.lanes if lane.sender == sender and lane.kind == kind)


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_a_chunk_larger_than_the_window_does_not_lock_the_ring(small, depth: int) -> None:
    world, _ = simulate(small(stack=StackSpec(depth=depth, slot_bytes=8_192)))
    assert all(rank.finished for rank in world.ranks)


def test_slots_add_up_and_none_is_empty() -> None:
    assert slots_of(150, 64) == [64, 64, 22]
    assert slots_of(128, 64) == [64, 64]


@pytest.mark.parametrize("ranks", range(2, 17))
def test_double_tree_has_two_spanning_trees(ranks: int) -> None:
    for parents in double_tree_parents(ranks):
        assert parents.count(None) == 1
        for rank in range(ranks):
            seen = {rank}
            above = parents[rank]
            while above is not None:
                assert above not in seen
                seen.add(above)
                above = parents[above]
        assert max(parents.count(rank) for rank in range(ranks)) <= 2


@pytest.mark.parametrize("channels", [1, 2])
def test_each_rank_of_a_ring_sends_two_rounds_of_its_share(small, channels: int) -> None:
    world, _ = simulate(small(stack=StackSpec(channels=channels)))
    job = world.scenario.jobs[0]
    for rank in range(4):
        sent = sum(r.size for lane in world.lanes if lane.sender == rank for r in lane.records)
        expected = 2 * 3 * (job.steps * job.collective_bytes + WARM_UP_BYTES) // 4
        assert sent == expected


def test_bytes_on_the_wire_are_the_same_at_both_taps(small) -> None:
    world, _ = simulate(small())
    for lane in world.lanes:
        sender, receiver = world.ranks[lane.sender].nic, world.ranks[lane.receiver].nic
        qpn = lane.pairs[0][1].qpn
        out, into = (
            sum(
                p.payload
                for p, sent in zip(nic.tap.packets, nic.tap.sent, strict=True)
                if sent is direction and p.dest_qpn == qpn and p.target is receiver
            )
            for nic, direction in ((sender, True), (receiver, False))
        )
        assert out == into == sum(r.size for r in lane.records)


@pytest.mark.parametrize("policy", [CreditPolicy.ON_ENTRY, CreditPolicy.EARLY])
def test_a_chunk_is_forwarded_only_after_it_came(small, policy: CreditPolicy) -> None:
    world, _ = simulate(small(stack=StackSpec(credit_policy=policy, slot_bytes=32_768)))
    slots_per_chunk = (1 << 18) // 4 // 32_768
    warm_up = 6 * (WARM_UP_BYTES // 4 // 32_768)
    for rank in range(4):
        sent = _lane(world, rank).records[warm_up:]
        came = _lane(world, (rank - 1) % 4).records[warm_up:]
        per_step = 6 * slots_per_chunk
        for index, record in enumerate(sent):
            if index % per_step >= slots_per_chunk:
                assert record.staged_ns >= came[index - slots_per_chunk].delivered_ns > 0


@pytest.mark.parametrize("style", [CreditStyle.WRITE, CreditStyle.SEND, CreditStyle.ATOMIC])
def test_no_slot_leaves_before_its_credit_and_never_more_than_the_window(small, style: CreditStyle) -> None:
    stack = StackSpec(credit_style=style, depth=4, slot_bytes=16_384, data_style=DataStyle.WRITE_IMM)
    world, _ = simulate(small(stack=stack))
    for lane in world.lanes:
        for number, record in enumerate(lane.records):
            assert record.posted_ns > lane.credit_times_ns[number]
            if number >= 4:
                assert record.posted_ns > lane.records[number - 4].consumed_ns


def _late_rank(small, policy: CreditPolicy) -> tuple[World, int]:
    """Rank 2 is 20 ms late in step 3; gives the world and the usual entry time of the others."""
    fault = FaultSpec(FaultKind.INPUT_STALL, 2, onset_step=3, duration_ns=20_000_000)
    style = CreditStyle.NONE if policy is CreditPolicy.NONE else CreditStyle.WRITE
    stack = StackSpec(slot_bytes=16_384, depth=4, credit_policy=policy, credit_style=style)
    world, _ = simulate(small(fault, stack=stack, noise=NoiseSpec(launch_ns=1_000)))
    entered = max(world.ranks[r].steps[3].collective_start_ns for r in (0, 1, 3))
    assert world.ranks[2].steps[3].collective_start_ns > entered + 10_000_000
    return world, entered


def _sent_between(lane: Lane, start_ns: int, end_ns: int) -> int:
    return sum(start_ns <= record.posted_ns < end_ns for record in lane.records)


def test_without_early_credits_a_late_rank_silences_its_predecessor(small) -> None:
    world, entered = _late_rank(small, CreditPolicy.ON_ENTRY)
    late = world.ranks[2].steps[3].collective_start_ns
    begin = world.ranks[1].steps[3].compute_start_ns
    assert _sent_between(_lane(world, 1), begin, late) == 0
    assert _sent_between(_lane(world, 2), begin, late) == 0
    assert _sent_between(_lane(world, 3), begin, late) == 2  # its own part of the round, then it lacks input
    assert entered < late


def test_with_early_credits_the_predecessor_fills_the_granted_slots_and_stops(small) -> None:
    world, _ = _late_rank(small, CreditPolicy.EARLY)
    late = world.ranks[2].steps[3].collective_start_ns
    begin = world.ranks[1].steps[3].compute_start_ns
    assert _sent_between(_lane(world, 1), begin, late) == 4
    assert _sent_between(_lane(world, 2), begin, late) == 0


def test_without_credits_the_predecessor_sends_all_it_has(small) -> None:
    world, _ = _late_rank(small, CreditPolicy.NONE)
    late = world.ranks[2].steps[3].collective_start_ns
    begin = world.ranks[1].steps[3].compute_start_ns
    assert (
        _sent_between(_lane(world, 1), begin, late) == 3 * 2
    )  # three hops of a round; the fourth is rank 2's own data
    assert not any(lane.credit_times_ns for lane in world.lanes)


@pytest.mark.parametrize(
    "job",
    [
        JobSpec((0, 1, 2, 3), Workload.FSDP, 4, 1 << 19, 8_000_000, layers=2),
        JobSpec((0, 1, 2, 3), Workload.MOE, 4, 1 << 19, 8_000_000, layers=2, uneven=True),
        JobSpec((0, 1, 2, 3), Workload.PP, 4, 65_536, 12_000_000, stages=4, micro_batches=5),
        JobSpec((0, 1, 2, 3), Workload.PP, 4, 65_536, 12_000_000, stages=2, micro_batches=1),
        JobSpec((0, 1, 2), steps=4, collective_bytes=1 << 18, compute_ns=5_000_000, algorithm=Algorithm.TREE),
        JobSpec(
            (0, 1, 2, 3), steps=4, compute_ns=5_000_000, buckets=3, overlap=True, collective_bytes=1 << 19
        ),
    ],
)
@pytest.mark.parametrize("policy", list(CreditPolicy))
def test_every_workload_ends_with_all_slots_consumed(small, job: JobSpec, policy: CreditPolicy) -> None:
    style = CreditStyle.NONE if policy is CreditPolicy.NONE else CreditStyle.WRITE
    world, _ = simulate(
        small(jobs=(job,), stack=StackSpec(credit_policy=policy, credit_style=style, depth=2))
    )
    assert all(rank.finished for rank in world.training_ranks)
    for lane in world.lanes:
        assert all(0 < r.staged_ns <= r.posted_ns < r.delivered_ns <= r.consumed_ns for r in lane.records)


def test_pipeline_stages_start_one_after_the_other(small) -> None:
    job = JobSpec((0, 1, 2, 3), Workload.PP, 3, 65_536, 24_000_000, stages=4, micro_batches=4)
    world, _ = simulate(small(jobs=(job,)))
    begin = world.ranks[0].steps[1].compute_start_ns
    first_sends = [
        min(r.posted_ns for r in _lane(world, stage, "forward").records if r.posted_ns > begin)
        for stage in range(3)
    ]
    forward = 24_000_000 // 12
    for earlier, later in itertools.pairwise(first_sends):
        assert 0.8 * forward < later - earlier < 2 * forward


def test_coupled_gpus_of_a_machine_enter_together_on_every_rail(small) -> None:
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 1, nic=0, onset_step=3, factor=2.0)
    job = JobSpec((0, 1, 2, 3), steps=5, collective_bytes=1 << 18, compute_ns=8_000_000)
    world, _ = simulate(replace(small(fault, jobs=(job,)), nics_per_machine=2))
    late = [rank.steps[4].collective_start_ns for rank in world.ranks]
    assert abs(late[2] - late[3]) < 100_000
    assert min(late[2], late[3]) > max(late[0], late[1], *late[4:]) + 4_000_000
    assert world.ranks[3].steps[4].compute_ns < 10_000_000
