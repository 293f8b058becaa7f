# SPDX-License-Identifier: Apache-2.0
"""Rails whose clocks nothing relates: iterations are numbered alike, no time is held against another's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from host_ctl.align.clock import ClockPiece, NicClock
from host_ctl.attribute.needs import on_same_machine
from host_ctl.pipeline import Analysis, analyze_paths
from host_ctl.reconstruct.coupling import component_of, moved_clock, relate_starts
from sim.output.run import OutputForm, run_scenario
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.spec import CaptureKind

TWO_RAILS = replace(
    DEFAULT_CLUSTER,
    machines=4,
    nics_per_machine=2,
)


def analysed(name: str, seed: int, workload: str, steps: int, folder: Path) -> tuple[Analysis, str | None]:
    """A job on two rails that never meet, with wrong clocks; and who is guilty."""
    scenario = build(Order(name, seed, TWO_RAILS, workload, steps))
    scenario = replace(scenario, capture=replace(scenario.capture, kind=CaptureKind.STEERED))
    truth = run_scenario(scenario, folder, form=OutputForm.FRAMES)
    analysis = analyze_paths([folder], until_ns=truth.data["capture"]["end_ns"])
    fault = truth.data["fault"]
    return analysis, fault["allowed"]["machine"] if fault else None


def first_sends(analysis: Analysis) -> dict[tuple[str, int], np.ndarray]:
    """When each NIC sent the first message of each iteration, by machine and component."""
    program, traffic = analysis.jobs[0].program, analysis.traffic
    found = {}
    for lane in program.lanes:
        rows = lane.rows[(lane.place == 0) & (lane.unit >= 0)]
        iteration = lane.unit[(lane.place == 0) & (lane.unit >= 0)]
        times = np.full(program.job.iterations, -1)
        times[iteration] = traffic.transfers["tx_start"][rows]
        found[traffic.endpoints[lane.src].machine, component_of(traffic, lane.src)] = times
    return found


@pytest.mark.parametrize("seed", [3, 4])
def test_rails_with_unrelated_clocks_show_no_pauses_in_a_healthy_job(seed: int, tmp_path: Path) -> None:
    analysis, _ = analysed("healthy", seed, "dp", 12, tmp_path)
    assert analysis.health == "ok"
    assert analysis.verdicts == ()


def test_a_slow_gpu_is_named_although_its_rails_have_unrelated_clocks(tmp_path: Path) -> None:
    analysis, guilty = analysed("gpu_slow", 3, "dp", 12, tmp_path)
    assert [(v.machine, v.cause) for v in analysis.verdicts] == [(guilty, "compute_slow")]


@pytest.mark.parametrize("seed", [1, 3])
def test_a_hung_machine_is_named_and_its_other_rail_is_not_held_against_others(
    seed: int, tmp_path: Path
) -> None:
    analysis, guilty = analysed("hang", seed, "dp", 20, tmp_path)
    (verdict,) = analysis.verdicts
    assert (verdict.machine, verdict.cause) == (guilty, "hang")
    assert "3 others wait" in verdict.summary


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_machine_with_a_collective_of_its_own_is_named_among_two_rails(seed: int, tmp_path: Path) -> None:
    analysis, guilty = analysed("op_mismatch", seed, "dp", 20, tmp_path)
    assert [(v.machine, v.cause) for v in analysis.verdicts] == [(guilty, "op_mismatch")]


def test_a_gpu_that_turns_slow_leaves_the_iterations_of_a_sharded_job_as_they_are(tmp_path: Path) -> None:
    analysis, guilty = analysed("gpu_slow", 3, "fsdp", 20, tmp_path)
    assert 20 <= analysis.jobs[0].job.iterations <= 21
    assert [v.machine for v in analysis.verdicts] == [guilty]


def test_coupled_rails_number_their_iterations_alike(tmp_path: Path) -> None:
    analysis, _ = analysed("healthy", 3, "dp", 12, tmp_path)
    clocks = analysis.alignment.clocks
    assert {c.component for c in clocks} == {0, 1}
    assert all((c.coupled_ns is None) == (c.component == 0) for c in clocks)
    sends = first_sends(analysis)
    for machine in {m for m, _ in sends}:
        apart = np.abs(sends[machine, 0] - sends[machine, 1])
        assert apart.max() < analysis.jobs[0].job.iteration_ns / 20


def test_no_message_waits_for_what_another_clock_saw(tmp_path: Path) -> None:
    analysis, _ = analysed("healthy", 3, "dp", 12, tmp_path)
    traffic, program = analysis.traffic, analysis.jobs[0].program
    for lane in program.lanes:
        for number in on_same_machine(lane.src, program.arrivals, traffic):
            source = program.arrivals[number].endpoint
            assert component_of(traffic, source) == component_of(traffic, lane.src)


def starts_of_iterations(count: int, seed: int) -> np.ndarray:
    """Starts of iterations of about 20 ms that differ by 1 %."""
    return np.cumsum(np.random.default_rng(seed).normal(20e6, 2e5, count)).astype(np.int64)


@pytest.mark.parametrize("missing", [-3, 0, 2])
@pytest.mark.parametrize("seed", range(5))
def test_iterations_of_unequal_length_tell_which_belong_together(missing: int, seed: int) -> None:
    # One rail's capture began some iterations after the other's, on a clock that is 7 s ahead and too fast.
    true = starts_of_iterations(30, seed)
    jitter = np.random.default_rng(seed + 100).normal(0, 1e4, len(true))
    late = np.rint(true * (1 + 30e-6) + 7e9 + jitter).astype(np.int64)
    reference, starts = true[max(0, -missing) :], late[max(0, missing) :]
    found = relate_starts(reference, starts)
    assert found is not None
    offset, drift, scatter = found
    assert offset == pytest.approx(starts[0] - true[max(0, missing)], abs=5e4)
    assert drift == pytest.approx(30e-6, abs=1e-4)
    assert scatter < 2e4


def test_rails_of_which_too_little_was_seen_stay_unrelated() -> None:
    true = starts_of_iterations(12, 1)
    assert relate_starts(true, true[:3] + 5_000_000) is None


def test_a_clock_moved_onto_another_rail_agrees_with_it_at_all_times() -> None:
    since = np.arange(0, 3_600_000_000_000, 60_000_000_000)
    nic = NicClock(12_345_678.0, 25.0, 1_700_000_000_000_000_000, 300.0, 5_000.0, "measured", 1)
    old = nic.to_common(nic.origin_ns + since)
    offset, drift, origin = 40_000_000, 30e-6, int(old[5])
    new = moved_clock(nic, origin, float(offset), drift, 1e4).to_common(nic.origin_ns + since)
    wanted = old - offset - np.rint((old - origin) * drift).astype(np.int64)
    assert np.abs(new - wanted).max() <= 3


def test_a_clock_of_several_pieces_is_moved_as_a_whole() -> None:
    origin = 1_700_000_000_000_000_000
    pieces = (ClockPiece(origin, 5_000.0, 10.0), ClockPiece(origin + 10**12, 10_005_000.0, -4.0))
    nic = NicClock(5_000.0, 10.0, origin, 300.0, 5_000.0, "measured", 1, pieces=pieces)
    times = origin + np.arange(0, 2 * 10**12, 10**10)
    old = nic.to_common(times)
    new = moved_clock(nic, int(old[0]), 7_000_000.0, 20e-6, 1e4).to_common(times)
    wanted = old - 7_000_000 - np.rint((old - old[0]) * 20e-6).astype(np.int64)
    assert np.abs(new - wanted).max() <= 3
