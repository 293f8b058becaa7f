# SPDX-License-Identifier: Apache-2.0
"""Every nanosecond of every edge of every operator is in exactly one state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from host_ctl.attribute.states import StateTimes, WaitState, wait_states
from host_ctl.pipeline import Analysis, analyze_paths
from host_ctl.reconstruct.repairs import REPAIR
from sim.output.run import run_scenario
from sim.scenarios.lab import build
from tests.host_ctl.jobs import FAULTS, between, shifted, steered, without
from tests.host_ctl.made_jobs import MS, attributed, ring

VIEWS = {
    "whole": lambda r: r,
    "steered": steered,
    "wrong clocks": lambda r: shifted(r, [0, 40_000_000, -50_000_000, 3_000_000_000], [50, -50, 10, 0]),
    "half": lambda r: between(r, 0.3, 0.8),
    "one missing": lambda r: without(r, "node2"),
}


def check(analysis: Analysis) -> int:
    """Assert the invariant; return how many operators it was checked on."""
    checked = 0
    for one in analysis.jobs:
        for states, timeline in zip(one.states, one.job.timelines, strict=True):
            duration = np.array([o.end_ns - o.start_ns for o in timeline.operators])
            assert states.edges == timeline.group.edges
            assert states.ns.shape == (len(duration), len(states.edges), len(WaitState))
            assert (states.ns >= 0).all()
            assert (states.ns.sum(axis=2) == duration[:, None]).all()
            checked += len(duration)
    return checked


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("view", VIEWS)
def test_states_sum_to_the_duration_and_are_never_negative(
    fault: str, view: str, recordings, tmp_path: Path
) -> None:
    recording = VIEWS[view](recordings[fault])
    assert check(analyze_paths([recording.write(tmp_path)], until_ns=recording.end_ns)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["healthy", "packet_loss", "slow_receiver"])
@pytest.mark.parametrize("shape", ["moe", "pp", "fsdp", "tree", "rails", "overlap"])
@pytest.mark.parametrize("credit", ["on_entry", "early", "none"])
def test_states_sum_to_the_duration_on_every_workload(
    fault: str, shape: str, credit: str, tmp_path: Path
) -> None:
    truth = run_scenario(build(f"{fault}-{shape}-{credit}", 5), tmp_path)
    assert check(analyze_paths([tmp_path], until_ns=truth.data["capture"]["end_ns"])) > 5


def test_a_member_slow_in_computing_shows_as_not_started(recordings, tmp_path: Path) -> None:
    analysis = analyze_paths([recordings["slow_compute"].write(tmp_path)])
    (states,) = analysis.jobs[0].states
    late = states.ns[12:, :, WaitState.NOT_STARTED].sum(axis=0)
    sender, _ = analysis.traffic.edges[states.edges[int(np.argmax(late))]]
    assert analysis.traffic.endpoints[sender].machine == "node1"


def ring_states(channels: int) -> tuple[StateTimes, np.ndarray]:
    """The states of a ring of four with a late member, and how long its operators last."""
    one = attributed(ring(4, 10, late=lambda k, i: MS * (i == 1 and k > 5), channels=channels))
    (states,) = wait_states(one.traffic, one.program, one.gates, one.sharing, np.empty(0, REPAIR))
    (timeline,) = one.job.timelines
    return states, np.array([o.end_ns - o.start_ns for o in timeline.operators])


@pytest.mark.parametrize("channels", [2, 3])
def test_an_edge_of_several_channels_has_the_mean_of_their_states(channels: int) -> None:
    single, _ = ring_states(1)
    states, duration = ring_states(channels)
    assert states.edges == single.edges
    assert (states.ns.sum(axis=2) == duration[:, None]).all()
    # The channels work side by side, a few ns apart: together they wait and send as long as one.
    assert np.abs(states.ns - single.ns).max() < 100
