# SPDX-License-Identifier: Apache-2.0
"""Collectives: volumes, causality, and how a late rank holds up its neighbours."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sim.planning.collectives import double_tree_parents, slots_of
from sim.planning.workloads import WARM_UP_BYTES
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
from tests.sim.watching import Watched, ran, watch


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_a_chunk_larger_than_the_window_does_not_lock_the_ring(small, depth: int) -> None:
    assert ran(small(stack=StackSpec(depth=depth, slot_bytes=8_192))).finished


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
    done = ran(small(stack=StackSpec(channels=channels)))
    job = done.world.scenario.jobs[0]
    for rank in range(4):
        sent = sum(int(done.slots(lane)["bytes"].sum()) for lane in done.world.lanes if lane.sender == rank)
        expected = 2 * 3 * (job.steps * job.collective_bytes + WARM_UP_BYTES) // 4
        assert sent == expected


def test_bytes_on_the_wire_are_the_same_at_both_taps(small) -> None:
    done = watch(small())
    for lane in done.world.lanes:
        sender, receiver = done.world.ranks[lane.sender].nic, done.world.ranks[lane.receiver].nic
        qpn = done.world.plan.rows["ends"][2 * lane.first_connection][2]
        out, into = (
            int(packets["payload_bytes"][packets["dest_qpn"] == qpn].sum())
            for packets in (done.sent(sender, receiver), done.received(receiver, sender))
        )
        assert out == into == done.slots(lane)["bytes"].sum()


@pytest.mark.parametrize("policy", [CreditPolicy.ON_ENTRY, CreditPolicy.EARLY])
def test_a_chunk_is_forwarded_only_after_it_came(small, policy: CreditPolicy) -> None:
    done = ran(small(stack=StackSpec(credit_policy=policy, slot_bytes=32_768)))
    slots_per_chunk = (1 << 18) // 4 // 32_768
    warm_up = 6 * (WARM_UP_BYTES // 4 // 32_768)
    for rank in range(4):
        sent = done.slots(done.lane(rank))[warm_up:]
        came = done.slots(done.lane((rank - 1) % 4))[warm_up:]
        per_step = 6 * slots_per_chunk
        for index, record in enumerate(sent):
            if index % per_step >= slots_per_chunk:
                assert record["staged_ns"] >= came[index - slots_per_chunk]["delivered_ns"] > 0


@pytest.mark.parametrize("style", [CreditStyle.WRITE, CreditStyle.SEND, CreditStyle.ATOMIC])
def test_no_slot_leaves_before_its_credit_and_never_more_than_the_window(small, style: CreditStyle) -> None:
    stack = StackSpec(credit_style=style, depth=4, slot_bytes=16_384, data_style=DataStyle.WRITE_IMM)
    done = ran(small(stack=stack))
    for lane in done.world.lanes:
        slots, grants = done.slots(lane), done.credits(lane)
        assert len(grants) == len(slots) > 4
        assert (slots["posted_ns"] > grants["arrived_ns"]).all()
        assert (slots["posted_ns"][4:] > slots["consumed_ns"][:-4]).all()


def _late_rank(small, policy: CreditPolicy) -> Watched:
    """Rank 2 is 20 ms late in step 3."""
    fault = FaultSpec(FaultKind.INPUT_STALL, 2, onset_step=3, duration_ns=20_000_000)
    style = CreditStyle.NONE if policy is CreditPolicy.NONE else CreditStyle.WRITE
    stack = StackSpec(slot_bytes=16_384, depth=4, credit_policy=policy, credit_style=style)
    done = ran(small(fault, stack=stack, noise=NoiseSpec(launch_ns=1_000)))
    entered = max(done.step(rank, 3).first_operation_ns for rank in (0, 1, 3))
    assert done.step(2, 3).first_operation_ns > entered + 10_000_000
    return done


def _sent_while_late(done: Watched, rank: int) -> int:
    """Slots that a rank sends from its third step's beginning until rank 2 comes."""
    posted = done.slots(done.lane(rank))["posted_ns"]
    begin_ns, late_ns = done.step(1, 3).begin_ns, done.step(2, 3).first_operation_ns
    return int(((posted >= begin_ns) & (posted < late_ns)).sum())


def test_without_early_credits_a_late_rank_silences_its_predecessor(small) -> None:
    done = _late_rank(small, CreditPolicy.ON_ENTRY)
    assert _sent_while_late(done, 1) == 0
    assert _sent_while_late(done, 2) == 0
    assert _sent_while_late(done, 3) == 2  # its own part of the round, then it lacks input


def test_with_early_credits_the_predecessor_fills_the_granted_slots_and_stops(small) -> None:
    done = _late_rank(small, CreditPolicy.EARLY)
    assert _sent_while_late(done, 1) == 4
    assert _sent_while_late(done, 2) == 0


def test_without_credits_the_predecessor_sends_all_it_has(small) -> None:
    done = _late_rank(small, CreditPolicy.NONE)
    # Three hops of a round; the fourth is rank 2's own data.
    assert _sent_while_late(done, 1) == 3 * 2
    assert len(done.records.credits) == 0


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
    done = ran(small(jobs=(job,), stack=StackSpec(credit_policy=policy, credit_style=style, depth=2)))
    assert done.finished
    for lane in done.world.lanes:
        slots = done.slots(lane)
        way = [slots[name] for name in ("staged_ns", "posted_ns", "delivered_ns", "consumed_ns")]
        assert (slots["staged_ns"] > 0).all()
        assert (np.diff(way, axis=0) >= 0).all()
        assert (slots["posted_ns"] < slots["delivered_ns"]).all()


def test_pipeline_stages_start_one_after_the_other(small) -> None:
    job = JobSpec((0, 1, 2, 3), Workload.PP, 3, 65_536, 24_000_000, stages=4, micro_batches=4)
    done = ran(small(jobs=(job,)))
    begin = done.step(0, 1).begin_ns
    posted = [done.slots(done.lane(stage, "forward"))["posted_ns"] for stage in range(3)]
    first_sends = [int(times[times > begin].min()) for times in posted]
    forward = 24_000_000 // 12
    for earlier, later in itertools.pairwise(first_sends):
        assert 0.8 * forward < later - earlier < 2 * forward


def test_coupled_gpus_of_a_machine_enter_together_on_every_rail(small) -> None:
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 1, nic=0, onset_step=3, factor=2.0)
    job = JobSpec((0, 1, 2, 3), steps=5, collective_bytes=1 << 18, compute_ns=8_000_000)
    done = ran(replace(small(fault, jobs=(job,)), nics_per_machine=2))
    late = [done.step(rank, 4).first_operation_ns for rank in range(8)]
    assert abs(late[2] - late[3]) < 100_000
    assert min(late[2], late[3]) > max(late[0], late[1], *late[4:]) + 4_000_000
    assert done.step(3, 4).compute_ns < 10_000_000
