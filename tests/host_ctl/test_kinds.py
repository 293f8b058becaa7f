# SPDX-License-Identifier: Apache-2.0
"""Collectives are named from traffic alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_ctl.attribute.kinds import RING_STEPS
from host_ctl.pipeline import analyze_paths
from sim.output.run import run_scenario
from sim.scenarios.lab import build

SOFTROCE = Path(__file__).parents[3] / "shared" / "data" / "softroce"


def test_a_simulated_ring_allreduce_is_named(tmp_path: Path) -> None:
    run_scenario(build("healthy-dp-on_entry", 3), tmp_path)
    (job,) = analyze_paths(sorted(tmp_path.glob("*.pcap"))).jobs
    assert job.kinds == ("allreduce",)


@pytest.mark.skipif(not SOFTROCE.is_dir(), reason="the Soft-RoCE captures are not on this machine")
@pytest.mark.parametrize(
    ("capture", "kinds"),
    [
        ("A_healthy_dp_1", ("allreduce",)),
        ("Q_nocredit_slow_compute", ("allreduce",)),
        ("J_moe_slow_n1", ("alltoall", "allreduce")),
        ("K_pp_healthy", ("sendrecv", "allreduce")),
        ("S_fsdp_slow_nic", (RING_STEPS,)),
        ("R_tree_healthy", ("allreduce",)),
    ],
)
def test_collectives_of_real_traffic_are_named(capture: str, kinds: tuple[str, ...]) -> None:
    (job,) = analyze_paths(sorted((SOFTROCE / capture).glob("*.pcap.gz"))).jobs
    assert job.kinds == kinds
