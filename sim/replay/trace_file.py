# SPDX-License-Identifier: Apache-2.0
"""Operator traces of real training jobs: reading and checking the files.

A trace has one row per operation of a recorded worker: what it was, when it started, how long it took.
It holds no bytes and no messages, and durations of communication include waiting.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sim.spec import SimulationError

Worker = tuple[int, int]  # data-parallel rank, pipeline stage

_COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc")
_LONG_FIRST_STEP = 1.5


class OpType(StrEnum):
    """Kinds of recorded operations, named as in the files."""

    FORWARD = "forward-compute"
    BACKWARD = "backward-compute"
    FORWARD_SEND = "forward-send"
    FORWARD_RECV = "forward-recv"
    BACKWARD_SEND = "backward-send"
    BACKWARD_RECV = "backward-recv"
    LAYERNORM = "layernorm-grads-all-reduce"
    EMBEDDING = "embedding-grads-all-reduce"
    GRADIENTS = "grads-reduce-scatter"
    PARAMETERS = "params-all-gather"
    CLIP = "optimizer-clip-main-grad"
    OPTIMIZER = "optimizer"
    GC = "gc"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded operation; ``number`` counts those of its kind within the step."""

    kind: OpType
    start_s: float
    duration_s: float
    number: int

    @property
    def end_s(self) -> float:
        """When it ended, from the start of the step."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded job: ``replicas`` x ``stages`` workers of ``width`` GPUs, of which one was recorded each.

    ``operations`` holds, by step and worker, what the worker did in order of time.
    """

    replicas: int
    stages: int
    width: int
    steps: tuple[int, ...]
    operations: dict[tuple[int, Worker], tuple[Recorded, ...]]

    @property
    def workers(self) -> list[Worker]:
        """All recorded workers, stage by stage."""
        return [(replica, stage) for stage in range(self.stages) for replica in range(self.replicas)]

    def step_length_s(self, step: int) -> float:
        """From the first start to the last end of the step."""
        return max(max(op.end_s for op in self.operations[step, worker]) for worker in self.workers)

    def first_steps(self, count: int | None) -> tuple[int, ...]:
        """The first ``count`` recorded steps after those that are much longer than usual."""
        usual = median(self.step_length_s(step) for step in self.steps)
        start = 0
        while self.step_length_s(self.steps[start]) > _LONG_FIRST_STEP * usual:
            start += 1
        steps = self.steps[start:]
        if count is not None and not 1 <= count <= len(steps):
            raise SimulationError(f"{count} steps asked for; the trace has {len(steps)} usable steps")
        return steps[:count]


def load_trace(path: Path) -> Trace:
    """Read and check an operator trace."""
    columns = _read(path)
    _check_values(path, columns)
    width = _width(path, columns)
    replicas, stages = max(columns["dp_rank"]) + 1, max(columns["stage"]) + 1
    found: dict[tuple[int, Worker], list[Recorded]] = {}
    names = ("step", "dp_rank", "stage", "optype", "start_ts", "duration", "seq_id")
    for step, replica, stage, kind, start, duration, number in zip(*(columns[n] for n in names), strict=True):
        if kind != OpType.GC:  # a mark without a duration
            op = Recorded(OpType(kind), float(start), float(duration), int(number))
            found.setdefault((step, (replica, stage)), []).append(op)
    workers = [(replica, stage) for stage in range(stages) for replica in range(replicas)]
    seen = sorted(set(columns["step"]))
    steps = tuple(step for step in seen if all((step, worker) in found for worker in workers))
    if not steps:
        raise SimulationError(f"{path}: no step has rows of all {replicas} x {stages} workers")
    ordered = {
        (step, worker): tuple(sorted(found[step, worker], key=lambda op: (op.start_s, op.end_s)))
        for step in steps
        for worker in workers
    }
    trace = Trace(replicas, stages, width, steps, ordered)
    _check_edges(path, trace)
    return trace


def _read(path: Path) -> dict[str, list[Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise SimulationError(
            "reading an operator trace needs pyarrow: pip install 'pulse-rdma[head]'"
        ) from error
    if not path.is_file():
        raise SimulationError(f"{path}: no such file")
    try:
        present = parquet.read_schema(path).names
        missing = [name for name in _COLUMNS if name not in present]
        if missing:
            raise SimulationError(f"{path}: not an operator trace, columns missing: {', '.join(missing)}")
        table = parquet.read_table(path, columns=list(_COLUMNS))
        _check_types(path, table)
    except SimulationError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these classes
        raise SimulationError(f"{path}: not a readable parquet file") from error
    if not table.num_rows:
        raise SimulationError(f"{path}: the trace has no rows")
    return {name: table.column(name).to_pylist() for name in _COLUMNS}


def _check_types(path: Path, table: Any) -> None:
    types = importlib.import_module("pyarrow.types")
    for name in _COLUMNS:
        kind = table.schema.field(name).type
        if name == "optype":
            sound = types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)
        elif name in ("start_ts", "duration"):
            sound = types.is_floating(kind) or types.is_integer(kind)
        else:
            sound = types.is_integer(kind)
        if not sound:
            raise SimulationError(f"{path}: column {name} holds {kind}, which is not what a trace has")


def _check_values(path: Path, columns: dict[str, list[Any]]) -> None:
    for name, values in columns.items():
        if any(value is None for value in values):
            raise SimulationError(f"{path}: column {name} has empty cells")
    foreign = sorted(set(columns["optype"]) - {kind.value for kind in OpType})
    if foreign:
        raise SimulationError(f"{path}: unknown operations: {', '.join(map(str, foreign))}")
    for name in ("start_ts", "duration"):
        if any(not (math.isfinite(value) and value >= 0) for value in columns[name]):
            raise SimulationError(f"{path}: column {name} has values that are no times")
    if any(chunk > 0 for chunk in columns["mc"]):
        raise SimulationError(f"{path}: several model chunks per worker (interleaved) cannot be replayed")
    if min(*columns["dp_rank"], *columns["stage"], 0) < 0:
        raise SimulationError(f"{path}: negative dp_rank or stage")


def _width(path: Path, columns: dict[str, list[Any]]) -> int:
    """GPUs per recorded worker, from the rank numbers, which must follow Megatron's default order."""
    replicas = max(columns["dp_rank"]) + 1
    places = set(zip(columns["dp_rank"], columns["stage"], columns["rank"], strict=True))
    numbers = {replica + replicas * stage: rank for replica, stage, rank in places}
    width = int(numbers.get(1, 1))
    if width < 1 or len(numbers) != len(places) or any(r != width * n for n, r in numbers.items()):
        raise SimulationError(f"{path}: ranks are not numbered tensor first, then data, then pipeline")
    return width


def _check_edges(path: Path, trace: Trace) -> None:
    """Every send between stages must have its receive, or the replay would wait for ever."""
    for step in trace.steps:
        for replica in range(trace.replicas):
            counts = [
                Counter(op.kind for op in trace.operations[step, (replica, stage)])
                for stage in range(trace.stages)
            ]
            for low, high in pairwise(counts):
                forward = low[OpType.FORWARD_SEND] == high[OpType.FORWARD_RECV]
                backward = high[OpType.BACKWARD_SEND] == low[OpType.BACKWARD_RECV]
                if not (forward and backward):
                    raise SimulationError(
                        f"{path}: step {step}, dp_rank {replica}: sends and receives between stages differ"
                    )
