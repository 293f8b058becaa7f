# SPDX-License-Identifier: Apache-2.0
"""Preset workloads keep their shape at every scale, and the default run is large enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulse_native import PacketBatch
from sim.output.records import iteration_times_ms, records_of
from sim.planning.workloads import bucket_sizes
from sim.scenarios.estimate import capture_bytes, packet_views
from sim.scenarios.preset_jobs import PRESETS, SMALLEST_BUCKET_BYTES
from sim.scenarios.presets import DEFAULT_CLUSTER, DEFAULT_STEPS, DEFAULT_WORKLOAD, NOISES, with_workload
from sim.simulate import simulate
from sim.spec import CaptureKind, JobSpec, Scenario, SimulationError, TxStamp, Workload

SMALL = replace(DEFAULT_CLUSTER, machines=4, nics_per_machine=1)


def scenario_of(workload: str, steps: int = 2, scale: float | None = None) -> Scenario:
    return with_workload(SMALL, workload, 1, steps, scale).scenario(workload, 1)


def buckets(job: JobSpec, seed: int) -> tuple[int, ...]:
    if job.workload is Workload.FSDP:
        return (job.collective_bytes // job.layers,)
    if job.workload is Workload.MOE:
        return (job.dense_bytes,)
    return bucket_sizes(job, seed)


class Counter:
    """Counts what the taps see."""

    def __init__(self) -> None:
        self.packets = 0

    def take(self, nic: int, batch: PacketBatch) -> None:
        self.packets += len(batch)

    def close(self, end_ns: int) -> None:
        pass


@pytest.mark.parametrize("workload", PRESETS)
def test_every_preset_runs_to_its_end(workload: str) -> None:
    outcome = simulate(scenario_of(workload, steps=1))
    assert outcome.simulation.finished
    for job in range(len(outcome.world.scenario.jobs)):
        ranks = [rank.number for rank in outcome.world.ranks if rank.job == job]
        assert len(iteration_times_ms(records_of(outcome), ranks)) == 1


@pytest.mark.parametrize("workload", PRESETS)
@pytest.mark.parametrize("gpus", [1, 8])
def test_buckets_never_fall_below_the_floor(workload: str, gpus: int) -> None:
    cluster = replace(DEFAULT_CLUSTER, nics_per_machine=gpus)
    for seed in range(10):
        for scale in (None, float(PRESETS[workload].largest_scale(gpus))):
            for number, job in enumerate(with_workload(cluster, workload, seed, 2, scale).jobs):
                smallest = min(buckets(job, seed + 7919 * number))
                assert smallest >= 0.99 * SMALLEST_BUCKET_BYTES


@pytest.mark.parametrize("workload", PRESETS)
def test_scale_shrinks_bytes_and_compute_alike(workload: str) -> None:
    def ratio(scale: float) -> float:
        job = with_workload(DEFAULT_CLUSTER, workload, 1, 2, scale).jobs[0]
        return job.collective_bytes / job.compute_ns

    assert ratio(4.0) == pytest.approx(ratio(16.0), rel=0.001)


def test_the_activations_of_a_pipeline_shrink_with_everything_else() -> None:
    small, large = (with_workload(DEFAULT_CLUSTER, "pp", 1, 2, scale).jobs[0] for scale in (64.0, 128.0))
    assert small.micro_batches == large.micro_batches
    assert small.activation_bytes == pytest.approx(2 * large.activation_bytes, rel=0.01)


def test_the_default_run_is_large_enough_and_its_iterations_take_tens_of_milliseconds() -> None:
    cluster = with_workload(DEFAULT_CLUSTER, DEFAULT_WORKLOAD, 1)
    scenario = cluster.scenario("default", 1)
    assert cluster.machines * cluster.nics_per_machine == 64
    assert cluster.jobs[0].steps == DEFAULT_STEPS == 20
    assert packet_views(scenario) >= 60_000_000
    assert 10e6 < cluster.jobs[0].compute_ns < 100e6


@pytest.mark.parametrize("workload", ["dp", "fsdp", "pp", "moe", "tree"])
@pytest.mark.parametrize("kind", list(CaptureKind))
def test_the_expected_packets_are_about_those_that_are_captured(workload: str, kind: CaptureKind) -> None:
    scenario = scenario_of(workload)
    capture = replace(scenario.capture, kind=kind, sample_shift=3 if kind is CaptureKind.SAMPLED else 0)
    scenario = replace(scenario, capture=capture)
    counter = Counter()
    simulate(scenario, counter)
    assert packet_views(scenario) == pytest.approx(counter.packets, rel=0.25)


def test_received_packets_alone_are_half_of_all() -> None:
    scenario = scenario_of("dp")
    deaf = replace(scenario, clock=replace(scenario.clock, tx_stamp=TxStamp.NONE))
    assert packet_views(deaf) == pytest.approx(packet_views(scenario) / 2, rel=0.01)
    assert capture_bytes(deaf, 1000) == 1000 * (16 + scenario.capture.snap_bytes)


@pytest.mark.parametrize(
    ("workload", "steps", "scale", "message"),
    [
        ("dpp", 2, None, "did you mean"),
        ("opera", 2, None, "there are dp"),
        ("dp", 0, None, "at least 1"),
        ("dp", 2, 0.5, "give 1 to"),
        ("dp", 2, -3.0, "give 1 to"),
        ("dp", 2, float("nan"), "give 1 to"),
        ("fsdp", 2, 1e6, "a bucket keeps 16 MiB"),
    ],
)
def test_impossible_presets_are_told(workload: str, steps: int, scale: float | None, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        with_workload(SMALL, workload, 1, steps, scale)


def test_too_few_machines_for_a_preset_are_told() -> None:
    with pytest.raises(SimulationError, match="at least 4"):
        with_workload(replace(SMALL, machines=3), "two_jobs", 1)
    with pytest.raises(SimulationError, match="equal stages"):
        with_workload(replace(SMALL, machines=5), "pp", 1)


def test_noise_is_correlated_within_a_machine_and_quiet_is_quiet() -> None:
    assert NOISES["quiet"].static_spread == 0
    assert 0.01 <= NOISES["realistic"].static_spread <= 0.02
    assert NOISES["imbalance"].imbalance == 0.11
