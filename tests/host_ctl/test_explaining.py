# SPDX-License-Identifier: Apache-2.0
"""What follows from a fault accuses nobody else, and a fault in the network no machine at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from host_ctl.pipeline import Analysis, analyze_paths
from sim.output.run import run_scenario
from sim.spec import (
    Algorithm,
    CreditPolicy,
    CreditStyle,
    FaultKind,
    FaultSpec,
    JobSpec,
    NetworkSpec,
    Scenario,
    StackSpec,
    TransportSpec,
    Workload,
)

NO_CREDITS = StackSpec(credit_style=CreditStyle.NONE, credit_policy=CreditPolicy.NONE)
TWO_LEAVES = NetworkSpec(rate_gbps=0.5, leaves=2, interleaved=True, uplinks=16, uplink_rate_gbps=0.5)
RING = JobSpec((0, 1, 2, 3), steps=22, collective_bytes=1 << 19, compute_ns=12_000_000)
PIPELINES = JobSpec(
    tuple(range(12)),
    workload=Workload.PP,
    steps=16,
    stages=3,
    micro_batches=8,
    collective_bytes=1 << 17,
    compute_ns=12_000_000,
    activation_bytes=65_536,
)
LOSSY = NetworkSpec(rate_gbps=0.5)
QUICK_TIMEOUT = TransportSpec(mtu=1024, timeout_ns=33_554_432)


def scenario(
    job: JobSpec,
    fault: FaultSpec | None,
    *,
    network: NetworkSpec | None = None,
    transport: TransportSpec | None = None,
    stack: StackSpec | None = None,
    seed: int = 3,
) -> Scenario:
    """One job on as many machines as it names."""
    return Scenario(
        "explained",
        seed,
        len(job.machines),
        network=network or NetworkSpec(),
        transport=transport or TransportSpec(),
        stack=stack or StackSpec(),
        jobs=(job,),
        fault=fault,
        watch_ns=400_000_000,
    )


def analysed(folder: Path, run: Scenario) -> Analysis:
    """The analysis of a simulated run."""
    truth = run_scenario(run, folder)
    return analyze_paths([folder], until_ns=truth.data["capture"]["end_ns"])


def accused(analysis: Analysis) -> dict[str | None, str]:
    """Machines (None where no machine is to blame) and causes of all verdicts that are no notice."""
    return {v.machine: v.cause for v in analysis.verdicts if v.severity != "notice"}


@pytest.mark.parametrize("machine", [0, 5, 10])
@pytest.mark.parametrize("stack", [StackSpec(), NO_CREDITS], ids=["credits", "no credits"])
def test_a_stage_slow_from_the_first_iteration_is_found_by_the_same_stage_of_other_replicas(
    machine: int, stack: StackSpec, tmp_path: Path
) -> None:
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, machine, onset_step=0, factor=2.3)
    found = accused(analysed(tmp_path, scenario(PIPELINES, fault, stack=stack)))
    assert found == {f"node{machine}": "compute_slow"}


def test_replicas_of_one_pipeline_without_a_fault_accuse_nobody(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, scenario(PIPELINES, None))
    assert analysis.health == "ok"


def test_a_stage_that_computes_longer_in_all_replicas_accuses_nobody(tmp_path: Path) -> None:
    job = replace(PIPELINES, stage_factors=(1.0, 1.0, 1.8))
    assert accused(analysed(tmp_path, scenario(job, None))) == {}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("stack", [StackSpec(), NO_CREDITS], ids=["credits", "no credits"])
def test_flows_that_share_one_slow_uplink_accuse_no_machine(
    seed: int, stack: StackSpec, tmp_path: Path
) -> None:
    fault = FaultSpec(FaultKind.PATH_COLLISION, onset_step=9, factor=1.3)
    run = scenario(RING, fault, network=TWO_LEAVES, stack=stack, seed=seed)
    found = accused(analysed(tmp_path, run))
    assert set(found) == {None}
    assert found[None] in ("path_collision", "congestion")


@pytest.mark.parametrize("ingress", [False, True])
def test_a_link_that_loses_packets_is_all_that_is_accused(ingress: bool, tmp_path: Path) -> None:
    fault = FaultSpec(
        FaultKind.PACKET_LOSS, 1, onset_step=8, probability=0.012, ingress=ingress, before_tap=False
    )
    run = scenario(RING, fault, network=LOSSY, transport=QUICK_TIMEOUT)
    assert accused(analysed(tmp_path, run)) in ({"node1": "link_loss"}, {None: "link_loss"})


def test_repeats_that_were_lost_again_are_part_of_what_a_lossy_link_costs(tmp_path: Path) -> None:
    fault = FaultSpec(FaultKind.PACKET_LOSS, 1, onset_step=8, probability=0.012, ingress=True)
    run = scenario(RING, fault, network=LOSSY, transport=QUICK_TIMEOUT)
    truth = run_scenario(run, tmp_path, counterfactual=True)
    (healthy,) = truth.data["counterfactual"]
    lost_ms = sum(truth.iteration_ms) - sum(healthy)
    analysis = analyze_paths([tmp_path], until_ns=truth.data["capture"]["end_ns"])
    (verdict,) = (v for v in analysis.verdicts if v.cause == "link_loss")
    cost_us = next(e.value for e in verdict.evidence if e.metric == "repair_time")
    assert cost_us / 1e3 > 0.5 * lost_ms


def test_who_sends_to_a_slow_receiver_is_not_accused_beside_it(tmp_path: Path) -> None:
    job = replace(RING, workload=Workload.FSDP, machines=tuple(range(6)), collective_bytes=700_000)
    fault = FaultSpec(FaultKind.SLOW_RECEIVER, 3, onset_step=9, factor=2.8, before_tap=False)
    run = scenario(job, fault, network=LOSSY, stack=NO_CREDITS)
    assert set(accused(analysed(tmp_path, run))) <= {"node3", None}


@pytest.mark.parametrize("seed", range(3))
def test_nodes_of_a_tree_that_lie_at_unlike_places_are_not_compared(seed: int, tmp_path: Path) -> None:
    job = replace(RING, machines=tuple(range(8)), collective_bytes=1_500_000, algorithm=Algorithm.DOUBLE_TREE)
    stack = replace(NO_CREDITS, depth=4, channels=2)
    assert accused(analysed(tmp_path, scenario(job, None, stack=stack, seed=seed))) == {}


@pytest.mark.parametrize("stack", [StackSpec(), NO_CREDITS], ids=["credits", "no credits"])
def test_a_member_that_begins_another_collective_is_told_from_one_that_hangs(
    stack: StackSpec, tmp_path: Path
) -> None:
    job = replace(RING, machines=tuple(range(6)), collective_bytes=1_137_212)
    fault = FaultSpec(FaultKind.OP_MISMATCH, 4, onset_step=14)
    assert accused(analysed(tmp_path, scenario(job, fault, stack=stack))) == {"node4": "op_mismatch"}


def test_a_late_machine_that_sends_what_has_piled_up_is_no_slow_nic(tmp_path: Path) -> None:
    """Messages that leave at once through one port take long each, and the port no longer than ever."""
    job = replace(RING, machines=tuple(range(6)), collective_bytes=1 << 20, buckets=4, overlap=True)
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 2, onset_step=8, factor=1.5)
    found = accused(analysed(tmp_path, scenario(job, fault, stack=StackSpec(channels=2))))
    assert set(found.values()) <= {"compute_slow", "cpu_contention"}
    assert set(found) == {"node2"}


def test_a_hang_inside_a_pipeline_is_not_taken_for_one_of_the_ring_that_follows(tmp_path: Path) -> None:
    job = replace(PIPELINES, machines=(0, 1, 2, 3), stages=4)
    fault = FaultSpec(FaultKind.HANG, 1, onset_step=10)
    found = accused(analysed(tmp_path, scenario(job, fault, stack=NO_CREDITS)))
    assert set(found) == {"node1"}
