# SPDX-License-Identifier: Apache-2.0
"""A heavy stage is told from a slow machine by its replicas, and from waiting by when it computes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from host_ctl.diagnose.stage_imbalance import block_messages, heavier, heavy_stage

ITERATIONS, STAGES = 20, 4


def ratios(*, factors: tuple[float, ...] = (1.0,) * STAGES, noise: float = 0.01, seed: int = 1) -> NDArray:
    """How heavy the stages of one replica look, forward passes of 1 and backward ones of 2."""
    rng = np.random.default_rng(seed)
    work = np.array(factors) * (1 + rng.normal(0.0, noise, (ITERATIONS, STAGES)))
    return heavier(work[:, :-1], 2 * work[:, 1:-1], 3 * work[:, -1])


@pytest.mark.parametrize("stage", range(STAGES))
def test_a_stage_that_is_heavy_in_all_replicas_is_found(stage: int) -> None:
    factors = tuple(1.25 if s == stage else 1.0 for s in range(STAGES))
    replicas = np.stack([ratios(factors=factors, seed=seed) for seed in (1, 2)])
    assert heavy_stage(replicas) == stage


def test_a_stage_that_is_heavy_in_one_replica_is_a_slow_machine() -> None:
    replicas = np.stack([ratios(factors=(1.0, 1.0, 1.5, 1.0)), ratios(seed=2)])
    assert heavy_stage(replicas) is None


@pytest.mark.parametrize("seed", range(10))
def test_machines_that_differ_by_two_percent_make_no_stage_heavy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [ratios(factors=tuple(1 + rng.normal(0.0, 0.02, STAGES)), noise=0.02, seed=s) for s in (1, 2)]
    assert heavy_stage(np.stack(made)) is None


def test_a_stage_that_is_heavy_in_some_iterations_only_is_not() -> None:
    replicas = np.stack([ratios(factors=(1.0, 1.3, 1.0, 1.0), seed=seed) for seed in (1, 2)])
    replicas[:, ::3, 1] = 1.0
    assert heavy_stage(replicas) is None


def test_the_first_stage_is_not_blamed_for_the_one_that_it_waits_for() -> None:
    replicas = np.stack([ratios(factors=(1.25, 1.3, 1.0, 1.0), seed=seed) for seed in (1, 2)])
    assert heavy_stage(replicas) == 1


def test_blocks_are_parted_by_the_pauses_of_computing() -> None:
    times = np.arange(8) * 1.0 + np.repeat([0.0, 100.0], 4)
    filled = np.r_[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0, 101.0, 102.0, 103.0]
    assert block_messages([times[None, :], filled[None, :]]) == 4


def test_an_edge_of_one_message_has_no_blocks() -> None:
    assert block_messages([np.zeros((3, 1))]) is None
