# SPDX-License-Identifier: Apache-2.0
"""Equal scenarios give equal bytes, however they are run, and a fault changes nothing before its onset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim import simulate as stretches
from sim.output.run import run_scenario
from sim.spec import (
    CaptureKind,
    CaptureSpec,
    ClockSpec,
    FaultKind,
    FaultSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    TxStamp,
)
from tests.sim.watching import ran, watch

_LOSS = FaultSpec(FaultKind.PACKET_LOSS, 1, onset_step=2, probability=0.02)
_CLOCK = ClockSpec(offset_ns=50_000_000, drift_ppm=50.0, jitter_ns=300, tx_stamp=TxStamp.COPY)
_WHOLE_SCENARIOS = {
    "plain": {},
    "loss": {"fault": _LOSS},
    "clocks": {"clock": replace(_CLOCK, wander_ppm=1.0, step_ns=1_000_000, tai_share=0.5), "storage": True},
    "polled": {"clock": ClockSpec(poll_ns=20_000)},
    "trains": {"train_packets": 32, "fault": _LOSS},
    "sampled": {"capture": CaptureSpec(CaptureKind.SAMPLED, sample_shift=2, loss_probability=0.01)},
    "steered": {"capture": CaptureSpec(CaptureKind.STEERED, mean_loss_packets=4.0, loss_probability=0.02)},
    "congestion": {
        "network": NetworkSpec(leaves=2, uplinks=1, mark_from_bytes=40_000, mark_all_bytes=160_000),
        "fault": FaultSpec(FaultKind.CONGESTION, onset_step=2, factor=0.8),
    },
}


def _files(scenario: Scenario, out: Path) -> dict[str, bytes]:
    run_scenario(scenario, out)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


@pytest.mark.parametrize("name", _WHOLE_SCENARIOS)
def test_equal_scenarios_give_equal_files_whatever_stretches_they_run_in(
    name: str, small, tmp_path: Path, monkeypatch
) -> None:
    scenario = small(**_WHOLE_SCENARIOS[name])
    expected = _files(scenario, tmp_path / "usual")
    assert min(len(content) for content in expected.values()) > 1_000
    for events, largest_ns in ((7, 50_000_000), (1_000, 20_001), (10**9, 10**9)):
        monkeypatch.setattr(stretches, "_EVENTS_PER_STRETCH", events)
        monkeypatch.setattr(stretches, "_LARGEST_STRETCH_NS", largest_ns)
        assert _files(scenario, tmp_path / f"{events}") == expected


@pytest.mark.parametrize("stamp", TxStamp)
def test_steered_captures_are_the_same_whether_middles_of_messages_are_noted_or_not(
    stamp: TxStamp, small, tmp_path: Path, monkeypatch
) -> None:
    clock = replace(_CLOCK, tx_stamp=stamp)
    scenario = small(_LOSS, clock=clock, capture=CaptureSpec(CaptureKind.STEERED), train_packets=8)
    quick = _files(scenario, tmp_path / "quick")
    whole = stretches.Simulation

    def noting_all(*tables: object, **settings: object) -> object:
        return whole(*tables, **settings | {"sent_middles": True, "received_middles": True})

    monkeypatch.setattr(stretches, "Simulation", noting_all)
    assert _files(scenario, tmp_path / "whole") == quick


def test_taps_change_nothing_of_what_happens(small) -> None:
    scenario = small(_LOSS)
    seen, unseen = watch(scenario).outcome.simulation, ran(scenario).outcome.simulation
    for table in ("slots", "credits", "operations", "steps"):
        assert (getattr(seen, table) == getattr(unseen, table)).all()
    assert seen.counters == unseen.counters


def _fabric(kind: FaultKind) -> NetworkSpec:
    if kind in (FaultKind.PATH_COLLISION, FaultKind.FABRIC_LOSS):
        return NetworkSpec(leaves=2, interleaved=True, uplinks=64, uplink_rate_gbps=2.0)
    if kind in (FaultKind.CONGESTION, FaultKind.SWITCH_PORT):
        return NetworkSpec(leaves=2, uplinks=1)
    return NetworkSpec()


# These have no onset, or none that a capture of machines with one GPU shows.
_WITHOUT_ONSET = {"stage_imbalance", "imbalance", "random_pauses", "clock_error", "slow_nvlink"}
_WITH_ONSET = [kind for kind in FaultKind if kind not in _WITHOUT_ONSET]


@pytest.mark.parametrize("train", [1, 32])
@pytest.mark.parametrize("kind", _WITH_ONSET)
def test_captures_are_the_same_byte_for_byte_until_a_fault_begins(small, kind: FaultKind, train: int) -> None:
    fault = FaultSpec(
        kind, 1, onset_step=3, factor=0.8 if kind is FaultKind.CONGESTION else 3.0, probability=0.3,
        duration_ns=3_000_000, period_steps=1,
    )  # fmt: skip
    rest = {"network": _fabric(kind), "noise": NoiseSpec(pause_probability=0.1, pause_ns=200_000)}
    faulty, healthy = (watch(small(f, train_packets=train, **rest)) for f in (fault, None))
    for nic in range(4):
        before = [int(np.searchsorted(run.packets[nic]["ns"], faulty.onset_ns)) for run in (faulty, healthy)]
        assert before[0] == before[1] > 300
        assert (faulty.packets[nic][: before[0]] == healthy.packets[nic][: before[0]]).all()
        assert faulty.frames(nic)[: before[0]] == healthy.frames(nic)[: before[0]]
    assert any(faulty.frames(nic) != healthy.frames(nic) for nic in range(4))


def test_another_seed_changes_the_noise_and_not_the_volume(small) -> None:
    first, second = (ran(small(seed=seed)) for seed in (1, 2))
    assert first.iterations_ms != second.iterations_ms
    assert first.records.slots["bytes"].sum() == second.records.slots["bytes"].sum()


@pytest.mark.parametrize("kind", [FaultKind.PACKET_LOSS, FaultKind.CPU_CONTENTION, FaultKind.SLOW_COMPUTE])
def test_a_fault_draws_nothing_from_the_noise_of_healthy_ranks(small, kind: FaultKind) -> None:
    fault = FaultSpec(kind, 1, onset_step=3, factor=2.0, probability=0.05, duration_ns=100_000)
    healthy, faulty = ran(small()), ran(small(fault))
    for rank in (0, 2, 3):
        assert faulty.compute(rank) == healthy.compute(rank)
