# SPDX-License-Identifier: Apache-2.0
"""Iterations that run into each other are told apart by counting."""

from __future__ import annotations

import numpy as np

from host_ctl.reconstruct.operators import strand_counts
from tests.host_ctl.made import EPOCH_NS, jobs_of, traffic

ITERATIONS, SEPARATE, MESSAGES = 12, 6, 4
PERIOD, STEP = 1_000_000, 50_000


def slow_edge_ring(nodes: int = 3) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """A ring whose first edge, from the seventh iteration on, ends only when the next has begun."""
    sends: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for node in range(nodes):
        lane = []
        for iteration in range(ITERATIONS):
            for message in range(MESSAGES):
                start = EPOCH_NS + iteration * PERIOD + message * STEP + node * 1_000
                slow = node == 0 and iteration >= SEPARATE and message == MESSAGES - 1
                lane.append((start, start + (PERIOD if slow else STEP // 2)))
        sends[node, (node + 1) % nodes] = lane
    return sends


def test_iterations_without_a_silence_between_them_are_split_by_their_volume() -> None:
    made = traffic(3, slow_edge_ring())
    (job,), aside = jobs_of(made)
    assert not aside
    assert job.iterations == ITERATIONS
    (timeline,) = job.timelines
    counts = np.array([strand_counts(o.rows, made.transfers, timeline.group) for o in timeline.operators])
    units = np.add.reduceat(counts, timeline.rhythm.first)
    assert units.tolist() == [[MESSAGES] * 3] * ITERATIONS


def test_split_iterations_begin_with_their_own_first_message() -> None:
    (job,), _ = jobs_of(traffic(3, slow_edge_ring()))
    begun = (job.boundaries_ns[:-1] - EPOCH_NS) / PERIOD
    assert np.array_equal(begun, np.arange(ITERATIONS))
