# SPDX-License-Identifier: Apache-2.0
"""Operators, groups and iterations of made traffic, where every boundary is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_ctl.reconstruct.operators import cut_operators
from host_ctl.reconstruct.rhythm import find_rhythm
from host_ctl.reconstruct.transfers import Traffic, unwrap_psn
from tests.host_ctl.made import groups_of, jobs_of, traffic

MS = 1_000_000
Pair = tuple[int, int]


def ring(
    n: int, iterations: int, *, compute_ns: Callable[[int, int], int], chunks: int = 1, seed: int = 0
) -> Traffic:
    """A ring AllReduce per iteration: 2(n-1) rounds, each message forwarded once it came."""
    rng = np.random.default_rng(seed)
    sends: dict[Pair, list[tuple[int, int]]] = {(i, (i + 1) % n): [] for i in range(n)}
    ready = np.zeros(n, dtype=np.int64)
    for iteration in range(iterations):
        start = ready + [compute_ns(iteration, i) for i in range(n)]
        arrived = start.copy()
        for _ in range(2 * (n - 1)):
            nearest = np.zeros(n, dtype=np.int64)
            for i in range(n):
                at = max(int(arrived[i]), int(start[i]))
                for _ in range(chunks):
                    took = int(rng.integers(200_000, 240_000))
                    sends[i, (i + 1) % n].append((at, at + took))
                    at += took + 2000
                nearest[(i + 1) % n] = at
                start[i] = at
            arrived = nearest
        ready = np.maximum(arrived, start)
    return traffic(n, sends)


def alltoall(n: int, iterations: int, *, uneven: bool, seed: int) -> Traffic:
    """Everybody sends to everybody at once; ``uneven`` varies how many messages."""
    rng = np.random.default_rng(seed)
    sends: dict[Pair, list[tuple[int, int]]] = {(i, j): [] for i in range(n) for j in range(n) if i != j}
    begin = 0
    for _ in range(iterations):
        end = begin
        for pair in sends:
            at = begin + int(rng.integers(0, 50_000))
            for _ in range(int(rng.integers(1, 6)) if uneven else 3):
                sends[pair].append((at, at + 100_000))
                at += 110_000
            end = max(end, at)
        begin = end + 20 * MS
    return traffic(n, sends)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_a_ring_is_one_group_cut_once_per_iteration(n: int) -> None:
    made = ring(n, 12, compute_ns=lambda k, i: 30 * MS + i * 100_000)
    (group,) = groups_of(made)
    assert group.algorithm == "ring"
    operators = cut_operators(made, group, 0)
    assert [o.messages for o in operators] == [2 * (n - 1) * n] * 12
    assert all(o.complete for o in operators)
    assert sum(len(o.rows) for o in operators) == len(made.transfers)


def test_a_late_member_silences_its_group_inside_an_operator_and_is_not_cut_there() -> None:
    """255 ms inside the operator against 400 between, as a real late rank makes it."""
    late = ring(4, 20, compute_ns=lambda k, i: 400 * MS + 255 * MS * (i == 2 and k >= 8))
    (group,) = groups_of(late)
    assert [o.messages for o in cut_operators(late, group, 0)] == [24] * 20


@settings(max_examples=25)
@given(
    n=st.integers(3, 6),
    chunks=st.integers(1, 3),
    seed=st.integers(0, 2**31),
    late=st.integers(0, 5),
    lateness_ms=st.integers(0, 80),
)
def test_operators_of_any_ring_are_its_iterations(
    n: int, chunks: int, seed: int, late: int, lateness_ms: int
) -> None:
    rng = np.random.default_rng(seed)
    jitter = rng.integers(0, 3 * MS, (15, n))
    made = ring(
        n,
        15,
        compute_ns=lambda k, i: 100 * MS + int(jitter[k, i]) + lateness_ms * MS * (i == late % n),
        chunks=chunks,
        seed=seed,
    )
    (group,) = groups_of(made)
    operators = cut_operators(made, group, 0)
    assert [o.messages for o in operators] == [2 * (n - 1) * n * chunks] * 15
    (job,), aside = jobs_of(made)
    assert aside == ()
    assert job.iterations == 15
    assert job.members == tuple(range(n))


def test_an_all_to_all_is_one_group_cut_at_each_exchange() -> None:
    for seed in range(5):
        made = alltoall(4, 12, uneven=False, seed=seed)
        (group,) = groups_of(made)
        assert group.algorithm == "alltoall"
        assert [o.messages for o in cut_operators(made, group, 0)] == [36] * 12


def test_an_uneven_all_to_all_is_one_group() -> None:
    for seed in range(5):
        assert [g.algorithm for g in groups_of(alltoall(4, 12, uneven=True, seed=seed))] == ["alltoall"]


def test_an_uneven_all_to_all_is_cut_once_everybody_has_sent() -> None:
    for seed in range(1, 5):
        made = alltoall(4, 12, uneven=True, seed=seed)
        (group,) = groups_of(made)
        assert len(cut_operators(made, group, 0)) == 12


def test_an_all_to_all_on_a_rail_of_its_own_belongs_to_the_job_of_its_machines() -> None:
    """Another rail of the same machines tells the iterations that it does not show by itself."""
    n, iterations = 4, 12
    rng = np.random.default_rng(8)
    sends: dict[Pair, list[tuple[int, int]]] = {(i, (i + 1) % n): [] for i in range(n)}
    sends |= {(n + i, n + j): [] for i in range(n) for j in range(n) if i != j}
    for k in range(iterations):
        for a, b in sends:
            begin = k * 40 * MS
            exchanges = range(int(rng.integers(2, 6))) if a >= n else range(1)
            for operator in exchanges:
                at = begin + int(rng.integers(3, 9) if a < n else 5 + 3 * operator) * 100_000
                for _ in range(int(rng.integers(1, 7)) if a >= n else 5):
                    sends[a, b].append((at, at + 9_000))
                    at += 10_000
    made = traffic(2 * n, sends)
    made = replace(
        made,
        endpoints=tuple(
            replace(e, machine=f"node{i % n}", nic=f"mlx5_{i // n}") for i, e in enumerate(made.endpoints)
        ),
    )
    (job,), aside = jobs_of(made)
    assert not aside
    assert len(job.members) == 2 * n
    assert abs(job.iterations - iterations) <= 1


def test_a_run_that_breaks_off_has_an_incomplete_last_operator() -> None:
    made = ring(4, 10, compute_ns=lambda k, i: 30 * MS)
    rows = made.transfers
    broken = rows[rows["tx_start"] < np.sort(rows["tx_start"])[-9]]
    part = replace(made, transfers=broken)
    (group,) = groups_of(part)
    operators = cut_operators(part, group, 0)
    assert [o.complete for o in operators] == [True] * 9 + [False]


def test_one_way_traffic_is_no_job() -> None:
    made = traffic(3, {(0, 1): [(k * MS, k * MS + 1000) for k in range(500)], (0, 2): [(5, 9)] * 50})
    jobs, aside = jobs_of(made)
    assert jobs == ()
    assert len(aside) >= 1


def test_nothing_at_all_is_no_job() -> None:
    assert jobs_of(traffic(2, {(0, 1): []})) == ((), ())


def test_two_rings_that_share_nobody_are_two_jobs() -> None:
    a = ring(2, 12, compute_ns=lambda k, i: 30 * MS)
    b = ring(2, 12, compute_ns=lambda k, i: 37 * MS, seed=3)
    sends: dict[Pair, list[tuple[int, int]]] = {}
    for made, base in ((a, 0), (b, 2)):
        for row in made.transfers:
            src, dst = made.edges[int(row["edge"])]
            sends.setdefault((src + base, dst + base), []).append((int(row["tx_start"]), int(row["rx_end"])))
    jobs, _ = jobs_of(traffic(4, sends))
    assert {job.members for job in jobs} == {(0, 1), (2, 3)}


# Iterations from operators ----------------------------------------------------------------------------


def layered(iterations: int, layers: int, *, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Message counts, starts and ends of operators: layers with short silences, then a long one."""
    rng = np.random.default_rng(seed)
    starts, ends, at = [], [], 0
    for _ in range(iterations):
        for layer in range(layers):
            starts.append(at)
            at += int(rng.integers(900_000, 1_100_000))
            ends.append(at)
            at += (
                int(rng.integers(40, 44)) * MS if layer == layers - 1 else int(rng.integers(900, 1100)) * 1000
            )
    return np.full(len(starts), 6), np.array(starts), np.array(ends)


@given(layers=st.integers(2, 12), iterations=st.integers(8, 30), seed=st.integers(0, 2**31))
def test_layers_repeat_once_per_iteration(layers: int, iterations: int, seed: int) -> None:
    messages, starts, ends = layered(iterations, layers, seed=seed)
    rhythm = find_rhythm(messages, starts, ends)
    assert rhythm is not None
    assert rhythm.units == iterations
    assert rhythm.first.tolist() == list(range(0, layers * iterations, layers))
    assert rhythm.starts_ns.tolist() == starts[::layers].tolist()
    assert rhythm.ends_ns.tolist() == ends[layers - 1 :: layers].tolist()


def test_operators_merged_inside_iterations_hardly_ever_move_them() -> None:
    moved = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        layers = int(rng.integers(3, 9))
        messages, starts, ends = layered(int(rng.integers(10, 31)), layers, seed=seed)
        inside = np.arange(1, len(starts)) % layers != 0
        merged = np.r_[False, inside & (rng.random(len(starts) - 1) < rng.uniform(0, 0.3))]
        first = np.flatnonzero(~merged)
        last = np.r_[first[1:] - 1, len(ends) - 1]
        rhythm = find_rhythm(np.add.reduceat(messages, first), starts[first], ends[last])
        if rhythm is None or rhythm.starts_ns.tolist() != starts[::layers].tolist():
            moved.append(seed)
    assert len(moved) <= 5


Pattern = tuple[tuple[int, ...], tuple[int, ...]]
# Messages of an iteration's operators and the silences behind them (us), of a sharded job of four layers:
# when all are on time, and when a late rank lets some operators run into each other and parts others.
ON_TIME: Pattern = ((1, 1, 1, 1, 2, 2, 1, 3), (1140, 1130, 1110, 2500, 2200, 2150, 2450, 1140))
LATE: Pattern = ((1, 3, 8), (570, 860, 1140))


@pytest.mark.parametrize("healthy", [0, 5, 9, 15, 20])
@pytest.mark.parametrize("seed", range(5))
def test_a_fault_that_changes_the_silences_leaves_the_iterations_as_they_are(healthy: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    messages, starts, ends, at = [], [], [], 0
    for iteration in range(20):
        for volume, silence in zip(*(ON_TIME if iteration < healthy else LATE), strict=True):
            messages.append(120 * volume)
            starts.append(at)
            at += 300_000 * volume
            ends.append(at)
            at += int(rng.normal(silence, 0.02 * silence) * 1000)
    rhythm = find_rhythm(np.array(messages), np.array(starts), np.array(ends))
    assert rhythm is not None
    per_unit = np.add.reduceat(np.array(messages), rhythm.first)
    assert (per_unit[1:-1] == 1440).all()
    assert 20 <= rhythm.units <= 21


def test_one_operator_per_iteration_is_its_own_rhythm() -> None:
    messages, starts, ends = layered(20, 1, seed=1)
    rhythm = find_rhythm(messages, starts, ends)
    assert rhythm is not None
    assert rhythm.units == 20
    assert rhythm.period_ns == pytest.approx(43 * MS, rel=0.05)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_operators_have_no_rhythm(count: int) -> None:
    assert find_rhythm(*layered(count, 1, seed=1)) is None


@given(st.integers(0, 2**24 - 1), st.lists(st.integers(-4000, 5000), max_size=200))
def test_psns_unwrap_to_what_they_counted(first: int, steps: list[int]) -> None:
    true = first + np.cumsum([0, *steps]).astype(np.int64)
    unwrapped = unwrap_psn(true % (1 << 24))
    assert (unwrapped - unwrapped[0]).tolist() == (true - true[0]).tolist()
