# SPDX-License-Identifier: Apache-2.0
"""Where time went, as the truth tells it: complete, and charged to who really held things up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.output.records import NEVER, records_of
from sim.output.wait_states import STATES, wait_states
from sim.simulate import simulate
from sim.spec import CreditPolicy, CreditStyle, FaultKind, FaultSpec, JobSpec, Scenario, StackSpec, Workload

TRANSFER, HOST, WAIT_CREDIT, WAIT_INPUT = range(len(STATES))


@pytest.mark.parametrize("policy", list(CreditPolicy))
@pytest.mark.parametrize("workload", [Workload.DP, Workload.MOE, Workload.FSDP])
def test_states_of_a_lane_add_up_to_the_operation(
    small: Callable[..., Scenario], workload: Workload, policy: CreditPolicy
) -> None:
    style = CreditStyle.NONE if policy is CreditPolicy.NONE else CreditStyle.WRITE
    job = JobSpec((0, 1, 2, 3), workload, 3, 1 << 18, 4_000_000, layers=2)
    outcome = simulate(small(jobs=(job,), stack=StackSpec(credit_policy=policy, credit_style=style)))
    records = records_of(outcome)
    lengths = {
        (rank, operation.tag): operation.end_ns - operation.enter_ns
        for rank, steps in records.steps.items()
        for step in steps
        for operation in step.operations
        if operation.end_ns != NEVER
    }
    found = wait_states(outcome.world, records)
    assert sum(map(len, found.values())) >= len(lengths)
    for rank, states in found.items():
        for one in states:
            assert sum(one.state_ns) == lengths[rank, one.tag]
            assert min(one.state_ns) >= 0


def test_a_late_rank_is_waited_for_by_credit_before_it_and_by_input_behind_it(
    small: Callable[..., Scenario],
) -> None:
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 2, onset_step=3, factor=3.0)
    outcome = simulate(small(fault))
    records = records_of(outcome)
    tag = {rank: steps[4].operations[0].tag for rank, steps in records.steps.items()}
    found = wait_states(outcome.world, records)
    late_ns = 8_000_000

    def share(rank: int, state: int) -> float:
        return sum(s.state_ns[state] for s in found[rank] if s.tag == tag[rank]) / late_ns

    assert share(1, WAIT_CREDIT) > 0.9
    assert share(3, WAIT_INPUT) > 0.9
    assert share(2, WAIT_CREDIT) < 0.1
    assert share(2, WAIT_INPUT) < 0.1


def test_a_slow_nic_shows_as_transfer_on_its_own_lane_only(small: Callable[..., Scenario]) -> None:
    outcome = simulate(small(FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=3, factor=6.0)))
    records = records_of(outcome)
    found = wait_states(outcome.world, records)
    transfers = {}
    for rank, steps in records.steps.items():
        tag = steps[4].operations[0].tag
        transfers[rank] = sum(s.state_ns[TRANSFER] for s in found[rank] if s.tag == tag)
    others = max(ns for rank, ns in transfers.items() if rank != 1)
    assert transfers[1] > 2.5 * others
