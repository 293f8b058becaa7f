# SPDX-License-Identifier: Apache-2.0
"""Jobs of the simulator's presets, seen message by message: what each kind of traffic makes difficult."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.scenarios.cases import Case
from bench.scenarios.work import capture
from host_ctl.pipeline import Analysis, analyze_paths


def analysed(case: Case, folder: Path) -> Analysis:
    """What the frames of a run say."""
    capture(case, folder)
    return analyze_paths(sorted(folder.iterdir()))


def accused(analysis: Analysis) -> list[tuple[str, str | None]]:
    """Cause and machine of every verdict that is no notice."""
    return [(v.cause, v.machine) for v in analysis.verdicts if v.severity != "notice"]


def test_iterations_of_a_group_that_is_never_silent_are_counted_by_its_links_own_pauses(
    tmp_path: Path,
) -> None:
    case = Case("port_slow", "fsdp", 8, 1, 1_000_079, onset=0)
    analysis = analysed(case, tmp_path)
    (job,) = analysis.jobs
    assert abs(job.job.iterations - case.steps) <= 1
    assert accused(analysis) == [("nic_slow", "node7")]


def test_operators_of_an_all_to_all_that_moves_about_as_much_on_all_links_are_told_apart(
    tmp_path: Path,
) -> None:
    analysis = analysed(Case("hang", "moe", 4, 2, 1809), tmp_path)
    (job,) = analysis.jobs
    assert sum(t.group.algorithm == "alltoall" for t in job.job.timelines) == 2
    assert accused(analysis) == [("hang", "node2")]


def test_operators_of_an_all_to_all_that_overlap_are_told_apart_by_the_pauses_of_their_senders(
    tmp_path: Path,
) -> None:
    case = Case("pcie_slow", "moe", 4, 2, 409)
    analysis = analysed(case, tmp_path)
    (job,) = analysis.jobs
    all_to_alls = [t for t in job.job.timelines if t.group.algorithm == "alltoall"]
    # Two layers, each with tokens sent out and back, and one operator that sets up the job.
    assert {len(t.operators) for t in all_to_alls} == {4 * case.steps + 1}
    assert [machine for _, machine in accused(analysis)] == ["node2"]


def test_a_slow_port_between_two_machines_is_judged_by_their_own_past(tmp_path: Path) -> None:
    analysis = analysed(Case("port_slow", "two_jobs", 4, 2, 510), tmp_path)
    assert [machine for _, machine in accused(analysis)] == ["node3"]


@pytest.mark.parametrize(
    ("case", "machine"),
    [
        (Case("link_flap", "fsdp", 8, 1, 802), "node5"),
        (Case("link_flap", "tree", 4, 2, 807), "node0"),
        (Case("link_flap", "moe", 4, 2, 809), "node0"),
        (Case("link_flap", "dp", 16, 1, 1_000_017, steps=24), "node4"),
    ],
    ids=["fsdp", "tree", "moe", "dp"],
)
def test_a_short_outage_is_no_loss_and_what_passes_meanwhile_tells_its_end(
    case: Case, machine: str, tmp_path: Path
) -> None:
    assert accused(analysed(case, tmp_path)) == [("link_down", machine)]


@pytest.mark.parametrize("workload", ["cp", "tree"])
def test_a_lossy_link_that_often_times_out_is_no_outage(workload: str, tmp_path: Path) -> None:
    ((cause, machine),) = accused(analysed(Case("link_loss", workload, 8, 1, 607), tmp_path))
    assert cause == "link_loss"
    assert machine is not None


def test_what_is_repeated_once_at_the_end_of_a_run_is_no_crash(tmp_path: Path) -> None:
    analysis = analysed(Case("fabric_loss", "two_jobs", 6, 2, 712), tmp_path)
    assert analysis.health == "degraded"
    assert [machine for _, machine in accused(analysis)] == [None]


def test_a_collective_that_stops_with_credits_to_spare_has_not_ended(tmp_path: Path) -> None:
    analysis = analysed(Case("op_mismatch", "two_jobs", 4, 2, 1910), tmp_path)
    (verdict,) = analysis.verdicts
    assert verdict.severity == "fail_stop"
    assert {candidate.machine for candidate in verdict.candidates} == {"node2", "node3"}


@pytest.mark.parametrize("seed", [6001, 6004, 6009])
@pytest.mark.parametrize("workload", ["fsdp", "cp"])
def test_a_rank_a_little_slower_for_good_is_not_accused_where_ranks_compute_ahead(
    workload: str, seed: int, tmp_path: Path
) -> None:
    assert accused(analysed(Case("healthy", workload, 4, 2, seed), tmp_path)) == []


@pytest.mark.parametrize(
    "case",
    [
        Case("healthy", "tree", 8, 1, 77_001, steps=30),
        Case("healthy", "nvls", 6, 1, 77_016),
        Case("healthy", "nvls", 4, 2, 77_065, steps=30, noise="imbalance"),
    ],
    ids=["tree", "nvls", "uneven nvls"],
)
def test_queues_that_a_tree_makes_by_itself_are_no_fault(case: Case, tmp_path: Path) -> None:
    assert accused(analysed(case, tmp_path)) == []


@pytest.mark.parametrize(
    ("case", "machine"),
    [
        (Case("pcie_slow", "cp", 8, 1, 10_000_080, onset=0), "node1"),
        (Case("port_slow", "fsdp", 8, 1, 10_000_079, onset=0), "node4"),
    ],
    ids=lambda value: getattr(value, "workload", value),
)
def test_what_hosts_need_after_a_message_is_not_learned_from_waiting_for_slow_ones(
    case: Case, machine: str, tmp_path: Path
) -> None:
    assert accused(analysed(case, tmp_path)) == [("nic_slow", machine)]


def test_a_pair_of_replicas_is_a_ring_though_one_of_them_is_always_later(tmp_path: Path) -> None:
    analysis = analysed(Case("hbm_slow", "pp", 8, 1, 10_000_037), tmp_path)
    assert accused(analysis) == [("compute_slow", "node2")]


def test_the_rest_of_an_all_to_all_at_the_end_of_a_run_is_no_stop(tmp_path: Path) -> None:
    case = Case(
        "gc_pauses", "moe", 6, 1, 10_000_100, steps=40, tx_stamp="none", clocks="clean", capture="trains"
    )
    assert accused(analysed(case, tmp_path)) == []
