# SPDX-License-Identifier: Apache-2.0
"""Parallel dimensions and the order of stages, of small simulated jobs of every kind."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema
import pytest

from host_ctl.pipeline import Analysis, analyze_paths
from host_ctl.present.report import build_report, report_schema
from sim.output.run import OutputForm, run_scenario
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.spec import CaptureKind, CaptureSpec, Scenario

TRAIN = 128


def scenario(workload: str, fault: str = "healthy", machines: int = 8, seed: int = 3) -> Scenario:
    """A job on machines of one NIC, simulated message by message."""
    cluster = replace(DEFAULT_CLUSTER, machines=machines, nics_per_machine=1)
    drawn = build(Order(fault, seed, cluster, workload))
    return replace(drawn, train_packets=TRAIN, capture=CaptureSpec(CaptureKind.STEERED))


def report_of(analysis: Analysis) -> dict[str, Any]:
    """What --json prints."""
    return build_report(
        health=analysis.health,
        series=analysis.series,
        alignment=analysis.alignment,
        traffic=analysis.traffic,
        jobs=[one.job for one in analysis.jobs],
        kinds=[one.kinds for one in analysis.jobs],
        dimensions=[one.dimensions for one in analysis.jobs],
        verdicts=analysis.verdicts,
        missing=analysis.missing,
        warnings=analysis.warnings,
    )


def report_for(drawn: Scenario) -> dict[str, Any]:
    """The report on a run of a scenario."""
    with TemporaryDirectory() as folder:
        run_scenario(drawn, Path(folder), form=OutputForm.FRAMES)
        return report_of(analyze_paths(sorted(Path(folder).glob("*.frames"))))


@cache
def groups_of(workload: str, fault: str = "healthy", machines: int = 8) -> tuple[dict[str, Any], ...]:
    """The groups of all jobs in the report."""
    return tuple(g for job in report_for(scenario(workload, fault, machines))["jobs"] for g in job["groups"])


def dimensions_of(groups: tuple[dict[str, Any], ...]) -> list[str]:
    return sorted(g["dimension"] for g in groups)


EXPECTED = {
    "dp": ["dp"],
    "dp_overlap": ["dp"],
    "fsdp": ["dp"],
    "pp": ["dp"] * 4 + ["pp"] * 2,
    "moe": ["dp", "ep"],
    "cp": ["cp", "dp"],
    "tree": ["dp"],
    "nvls": ["dp"],
    "two_jobs": ["dp", "dp"],
    "evaluation": ["dp"],
    "warm_up": ["dp"],
}


@pytest.mark.parametrize("workload", EXPECTED)
def test_every_workload_shows_its_dimensions(workload: str) -> None:
    assert dimensions_of(groups_of(workload)) == EXPECTED[workload]


@pytest.mark.parametrize("fault", ["gpu_slow", "port_slow"])
@pytest.mark.parametrize("workload", ["fsdp", "pp", "moe", "cp"])
def test_a_fault_changes_no_dimension(workload: str, fault: str) -> None:
    assert dimensions_of(groups_of(workload, fault)) == EXPECTED[workload]


@pytest.mark.parametrize("fault", ["healthy", "gpu_slow", "port_slow"])
def test_the_stages_of_a_pipeline_come_in_their_order(fault: str) -> None:
    stages = [g["stages"] for g in groups_of("pp", fault) if g["dimension"] == "pp"]
    assert sorted(stages) == [[f"node{first + k}" for k in (0, 2, 4, 6)] for first in (0, 1)]


def test_only_pipelines_have_stages() -> None:
    groups = [g for workload in EXPECTED for g in groups_of(workload)]
    assert {g["dimension"] for g in groups if "stages" in g} == {"pp"}


def test_data_parallel_groups_of_a_pipelined_job_join_like_stages() -> None:
    joined = [sorted(g["members"]) for g in groups_of("pp") if g["dimension"] == "dp"]
    assert sorted(joined) == [[f"node{k}", f"node{k + 1}"] for k in (0, 2, 4, 6)]


def test_a_collective_that_joins_unlike_stages_is_of_no_dimension() -> None:
    assert dimensions_of(groups_of("pp", machines=4)) == ["pp", "unknown"]


def test_a_short_tree_is_a_chain_but_no_pipeline() -> None:
    assert dimensions_of(groups_of("nvls", machines=4)) == ["dp"]


def test_equal_exchanges_are_not_taken_for_experts() -> None:
    drawn = scenario("moe")
    equal = replace(drawn, jobs=tuple(replace(job, uneven=False) for job in drawn.jobs))
    groups = report_for(equal)["jobs"][0]["groups"]
    assert {g["dimension"] for g in groups if g["algorithm"] == "alltoall"} == {"unknown"}


@pytest.mark.parametrize(("workload", "dimension"), [("pp", "pp"), ("cp", "cp")])
def test_a_block_may_be_a_single_message(workload: str, dimension: str) -> None:
    drawn = scenario(workload)
    whole = replace(drawn, stack=replace(drawn.stack, p2p_slot_bytes=4 << 20))
    assert dimension in {g["dimension"] for g in report_for(whole)["jobs"][0]["groups"]}


def test_a_report_with_stages_fulfils_the_schema() -> None:
    report = report_for(scenario("pp"))
    jsonschema.validate(report, report_schema())
    assert any("stages" in g for g in report["jobs"][0]["groups"])
