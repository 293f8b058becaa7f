# SPDX-License-Identifier: Apache-2.0
"""Replay of recorded jobs: what is taken from a trace, and programs that end."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from sim.replay.model import MODELS, Layout, ModelSpec, Scaling, layout_of
from sim.replay.programs import programs
from sim.replay.schedule import (
    Collective,
    Floors,
    Source,
    Transfer,
    Work,
    compute_ratios,
    compute_s,
    floors_of,
    schedule,
    slowed_workers,
)
from sim.replay.trace_file import OpType, Trace, Worker, load_trace
from sim.spec import SimulationError, StackSpec
from tests.sim.program_checker import Checker
from tests.sim.small_trace import Row, small_rows, write

TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "op-traces"
SMALL = ModelSpec(256, 4, 1000, 128, tensor_split=4, sequence_split=4)

needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed"
)


@cache
def recorded(name: str) -> Trace:
    """A recorded trace; the test is skipped where it is missing."""
    path = TRACES / f"trace-{name}.parquet"
    if importlib.util.find_spec("pyarrow") is None or not path.is_file():
        pytest.skip(f"needs pyarrow and the recorded trace {path.name}")
    return load_trace(path)


@pytest.fixture
def small(tmp_path: Path) -> Trace:
    return load_trace(write(tmp_path / "small.parquet", small_rows()))


def plan(trace: Trace, step: int, worker: Worker) -> list[Any]:
    return list(schedule(trace, step, worker, floors_of(trace, step)))


def work_s(items: list[Any], *sources: Source) -> float:
    return sum(item.duration_s for item in items if isinstance(item, Work) and item.source in sources)


# ---- reading


def test_a_trace_is_read_with_its_shape_and_in_order_of_time(small: Trace) -> None:
    assert (small.replicas, small.stages, small.width, small.steps) == (2, 2, 4, (7, 9))
    for operations in small.operations.values():
        starts = [op.start_s for op in operations]
        assert starts == sorted(starts)
        assert OpType.GC not in {op.kind for op in operations}


@needs_pyarrow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optype": "dance"}, "unknown operations: dance"),
        ({"duration": -1.0}, "duration has values that are no times"),
        ({"start_ts": float("nan")}, "start_ts has values that are no times"),
        ({"mc": 1}, "interleaved"),
        ({"rank": 77}, "not numbered tensor first"),
        ({"stage": None}, "stage has empty cells"),
        ({"stage": -1}, "negative"),
    ],
)
def test_a_trace_with_a_bad_value_is_refused_by_name(tmp_path: Path, change: Row, message: str) -> None:
    rows = small_rows()
    rows[5].update(change)
    with pytest.raises(SimulationError, match=message):
        load_trace(write(tmp_path / "bad.parquet", rows))


@needs_pyarrow
def test_foreign_empty_and_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="no such file"):
        load_trace(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet")
    with pytest.raises(SimulationError, match="not a readable parquet file"):
        load_trace(tmp_path / "text.parquet")
    (tmp_path / "zero.parquet").write_bytes(b"")
    with pytest.raises(SimulationError, match="not a readable parquet file"):
        load_trace(tmp_path / "zero.parquet")
    with pytest.raises(SimulationError, match="columns missing: dp_rank, stage"):
        load_trace(write(tmp_path / "other.parquet", [{"rank": 1, "step": 2}]))
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(small_rows()).slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(SimulationError, match="no rows"):
        load_trace(tmp_path / "empty.parquet")


@needs_pyarrow
def test_a_send_without_a_receive_is_refused(tmp_path: Path) -> None:
    rows = small_rows()
    rows.remove(next(row for row in rows if row["optype"] == "backward-recv"))
    with pytest.raises(SimulationError, match="sends and receives between stages differ"):
        load_trace(write(tmp_path / "half.parquet", rows))


@needs_pyarrow
def test_steps_in_which_a_worker_is_missing_are_left_out(tmp_path: Path) -> None:
    rows = [row for row in small_rows() if (row["step"], row["dp_rank"]) != (7, 1)]
    assert load_trace(write(tmp_path / "gap.parquet", rows)).steps == (9,)


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SimulationError, match=r"pulse-rdma\[head\]"):
        load_trace(tmp_path / "any.parquet")


# ---- what a worker does


def test_the_schedule_keeps_compute_and_order_and_drops_waiting(small: Trace) -> None:
    items = plan(small, 7, (1, 0))
    assert [item for item in items if isinstance(item, Transfer)] == [
        Transfer(((1, "forward"),), ()),
        Transfer(((1, "forward"),), ((1, "backward"),)),
        Transfer(((1, "forward"),), ((1, "backward"),)),
        Transfer((), ((1, "backward"),)),
    ]
    assert [item for item in items if isinstance(item, Collective)] == [
        Collective.PARAMETERS,
        Collective.LAYERNORM,
        Collective.EMBEDDING,
        Collective.GRADIENTS,
        Collective.NORM,
    ]
    assert work_s(items, Source.FORWARD, Source.BACKWARD, Source.OPTIMIZER) == pytest.approx(2.375)
    assert work_s(items, Source.GAP) == pytest.approx(0.0625 + 0.01)
    assert work_s(items, Source.CLIP) == pytest.approx(0.02)


def test_the_unrecorded_wait_of_the_last_stage_becomes_a_collective(small: Trace) -> None:
    items = plan(small, 7, (0, 1))
    assert work_s(items, Source.GAP) == pytest.approx(0.0625 + 0.01)
    place = items.index(Collective.LOSS)
    assert items[place : place + 3] == [Collective.LOSS, Collective.REPORT, Collective.LAYERNORM]
    assert Collective.REPORT in plan(small, 7, (0, 0))
    assert Collective.REPORT not in plan(small, 7, (1, 1))


def test_first_steps_leave_out_a_long_warm_up(small: Trace) -> None:
    assert small.first_steps(1) == (7,)
    slow = tuple(replace(op, duration_s=10 * op.duration_s) for op in small.operations[7, (0, 0)])
    third = {(11, worker): small.operations[9, worker] for worker in small.workers}
    longer = replace(small, steps=(7, 9, 11), operations={**small.operations, **third, (7, (0, 0)): slow})
    assert longer.first_steps(None) == (9, 11)
    with pytest.raises(SimulationError, match="3 steps asked for"):
        longer.first_steps(3)


# ---- places and bytes


def test_workers_sit_in_the_default_order_of_megatron() -> None:
    layout = Layout(replicas=4, stages=4, width=4)
    assert (layout.machines, layout.rails, layout.machines_per_stage) == (8, 2, 2)
    assert [layout.machine((replica, 0)) for replica in range(4)] == [0, 0, 1, 1]
    assert [layout.machine((0, stage)) for stage in range(4)] == [0, 2, 4, 6]
    assert {layout.seat((3, stage)).rail for stage in range(4)} == {1}
    assert [seat.rank for seat in layout.seats()] == list(range(16))
    every = Layout(replicas=4, stages=4, width=4, tensor_ranks=True)
    assert (every.machines, every.rails) == (8, 8)
    assert [seat.rank for seat in every.seats()] == list(range(64))
    alone = Layout(replicas=4, stages=4, width=4, gpus_per_machine=4)
    assert (alone.machines, alone.rails) == (16, 1)


def test_machines_that_cannot_hold_whole_workers_of_one_stage_are_refused() -> None:
    with pytest.raises(SimulationError, match="whole workers"):
        Layout(4, 4, 4, gpus_per_machine=6)
    with pytest.raises(SimulationError, match="mix pipeline stages"):
        Layout(1, 2, 4)


def test_bytes_follow_the_stated_model_and_scale() -> None:
    model = ModelSpec(1024, 8, 1000, 2048, tensor_split=2, sequence_split=2)
    assert model.activation_bytes == 2048 * 1024 * 2 // 2
    blocks = 12 * 1024**2 * 2 // 2
    assert [model.parameters(stage, 4) - blocks for stage in range(4)] == [512_000, 0, 0, 512_000]
    assert replace(model, stage_parameters=(8, 6)).parameters(1, 2) == 3
    with pytest.raises(SimulationError, match="2 entries for 4 stages"):
        replace(model, stage_parameters=(8, 6)).parameters(0, 4)
    scaling = Scaling(0.01, 0.001)
    assert (scaling.duration_ns(1.5), scaling.size_bytes(2_000_000)) == (15_000_000, 2_000)
    assert scaling.link_gbps(200.0) == pytest.approx(20.0)
    assert scaling.size_bytes(1) == 64
    with pytest.raises(SimulationError, match="scale"):
        Scaling(0.0, 1.0)


def test_a_model_that_does_not_fit_the_workers_is_refused(small: Trace) -> None:
    with pytest.raises(SimulationError, match="must divide"):
        programs(small, replace(SMALL, tensor_split=3), StackSpec(), lambda *_: 0, layout_of(small))


# ---- programs


LAYOUTS = [
    pytest.param({"gpus_per_machine": 8}, id="two workers per machine"),
    pytest.param({"gpus_per_machine": 4}, id="one worker per machine"),
    pytest.param({"gpus_per_machine": 8, "tensor_ranks": True}, id="all GPUs"),
    pytest.param({"gpus_per_machine": 4, "tensor_ranks": True}, id="all GPUs, one worker per machine"),
]


@pytest.mark.parametrize("options", LAYOUTS)
def test_a_small_job_ends_on_every_layout(small: Trace, options: dict[str, Any]) -> None:
    check = Checker(small, SMALL, layout_of(small, **options), 2, Scaling(1.0, 1.0))
    assert not check.stuck
    assert {len(rank.steps) for rank in check.ranks.values()} == {2}
    rails = check.layout.rails
    assert all(a % rails == b % rails for a, b, _ in check.bytes_sent)


@pytest.mark.parametrize("left_out", [Collective.EMBEDDING, Collective.GRADIENTS, Collective.NORM])
def test_the_checker_notices_a_worker_that_leaves_something_out(
    small: Trace, monkeypatch: pytest.MonkeyPatch, left_out: Collective
) -> None:
    def forgetful(trace: Trace, step: int, worker: Worker, floors: Floors) -> list[Any]:
        items = schedule(trace, step, worker, floors)
        return items if worker != (1, 0) else [item for item in items if item is not left_out]

    monkeypatch.setattr("sim.replay.programs.schedule", forgetful)
    assert Checker(small, SMALL, layout_of(small, 4), 1, Scaling(1.0, 1.0)).stuck


def test_bytes_on_the_wire_are_those_of_the_model(small: Trace) -> None:
    check = Checker(small, SMALL, layout_of(small, 4), 1, Scaling(1.0, 1.0))
    assert (
        check.bytes_sent[0, 2, "send_recv"]
        == 3 * SMALL.activation_bytes
        == check.bytes_sent[2, 0, "send_recv"]
    )
    whole = SMALL.parameters(0, 2) * SMALL.gradient_bytes
    assert check.bytes_sent[0, 1, "reduce_scatter"] == pytest.approx(whole / 2, rel=0.001)
    assert check.bytes_sent[0, 1, "all_gather"] == pytest.approx(whole / 4, rel=0.001)


def test_a_slow_worker_makes_every_step_longer(tmp_path: Path) -> None:
    slow = load_trace(write(tmp_path / "slow.parquet", small_rows((0, 0))))
    even = load_trace(write(tmp_path / "even.parquet", small_rows((9, 9))))
    lengths = []
    for trace in (slow, even):
        check = Checker(trace, SMALL, layout_of(trace, 4), 1, Scaling(1.0, 1.0))
        lengths.append(max(end for rank in check.ranks.values() for _, end in rank.steps))
    assert lengths[0] > 1.3 * lengths[1]
    assert compute_ratios(slow, slow.steps)[0, 0] == pytest.approx(2 / 1.5)  # over the middle of two
    assert slowed_workers(even, even.steps) == []


# ---- recorded jobs


@pytest.mark.parametrize("name", ["AR", "SE"])
def test_recorded_compute_is_replayed_in_full(name: str) -> None:
    trace = recorded(name)
    for step in trace.first_steps(3):
        for worker in trace.workers:
            items = plan(trace, step, worker)
            replayed = work_s(items, Source.FORWARD, Source.BACKWARD, Source.OPTIMIZER)
            assert replayed == pytest.approx(compute_s(trace, step, worker), rel=1e-9)
            assert work_s(items, Source.GAP, Source.CLIP) < 0.02 * replayed


@pytest.mark.parametrize(("name", "micro_batches"), [("AR", 32), ("SE", 8)])
def test_recorded_sends_and_receives_match_on_every_edge(name: str, micro_batches: int) -> None:
    trace = recorded(name)
    for step in trace.first_steps(3):
        for replica in range(trace.replicas):
            found: Counter[tuple[int, int, str]] = Counter()
            for stage in range(trace.stages):
                for item in plan(trace, step, (replica, stage)):
                    if isinstance(item, Transfer):
                        found.update((stage, peer, f"{lane} sent") for peer, lane in item.sends)
                        found.update((peer, stage, f"{lane} taken") for peer, lane in item.receives)
            assert set(found.values()) == {micro_batches}
            assert len(found) == 4 * (trace.stages - 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AR", {}),
        ("AR", {"gpus_per_machine": 4}),
        ("AR", {"tensor_ranks": True}),
        ("SE", {}),
        ("SE", {"gpus_per_machine": 2}),
    ],
)
def test_recorded_jobs_end_and_take_as_long_as_recorded(name: str, options: dict[str, Any]) -> None:
    trace = recorded(name)
    steps = 2
    layout = layout_of(trace, **options)
    check = Checker(trace, MODELS[name], layout, steps, Scaling(1.0, 0.001))
    assert not check.stuck
    for number, step in enumerate(trace.first_steps(steps)):
        spans = [rank.steps[number] for rank in check.ranks.values()]
        took_s = (max(end for _, end in spans) - min(begin for begin, _ in spans)) / 1e9
        assert took_s == pytest.approx(trace.step_length_s(step), rel=0.08)
    for lane, _ in list(check.edges):
        assert len(check.edges[lane, "send"]) == len(check.edges[lane, "receive"])


def test_the_slowed_worker_computes_more_than_twice_as_long_as_its_stage() -> None:
    trace = recorded("AR")
    for kind, low, high in ((OpType.FORWARD, 2.3, 2.6), (OpType.BACKWARD, 2.1, 2.4)):
        times = {
            replica: median(
                op.duration_s
                for step in trace.steps
                for op in trace.operations[step, (replica, 0)]
                if op.kind is kind
            )
            for replica in range(trace.replicas)
        }
        assert low < times[0] / median(times.values()) < high
    ratios = compute_ratios(trace, trace.steps)
    assert slowed_workers(trace, trace.steps) == [(0, 0)]
    assert 2.25 < ratios.pop((0, 0)) < 2.45
    assert max(ratios.values()) < 1.01


def test_uneven_sequences_leave_no_persistent_outlier() -> None:
    trace = recorded("SE")
    assert slowed_workers(trace, trace.steps) == []
    assert max(compute_ratios(trace, trace.steps).values()) < 1.05
    single = [max(compute_ratios(trace, [step]).values()) for step in trace.steps]
    assert sum(ratio > 1.3 for ratio in single) > len(single) / 2  # single steps would accuse somebody
