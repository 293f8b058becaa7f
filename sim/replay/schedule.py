# SPDX-License-Identifier: Apache-2.0
"""What a recorded worker did in a step, without the waiting: compute times, transfers, collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from sim.replay.trace_file import OpType, Recorded, Trace, Worker

# Starts and durations of neighbouring operations come from different timers and disagree by up to this.
_TIMER_NOISE_S = 0.0002
_COMPUTE = (OpType.FORWARD, OpType.BACKWARD, OpType.OPTIMIZER)
_OUTLIER_RATIO = 1.3
# Kind of lane and distance to the peer's stage.
_SENDS = {OpType.FORWARD_SEND: ("forward", 1), OpType.BACKWARD_SEND: ("backward", -1)}
_RECEIVES = {OpType.FORWARD_RECV: ("forward", -1), OpType.BACKWARD_RECV: ("backward", 1)}
_PIPELINE = (OpType.FORWARD, OpType.BACKWARD, *_SENDS, *_RECEIVES)


class Source(StrEnum):
    """Where a compute time comes from."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    CLIP = "clip"
    GAP = "gap"


class Collective(StrEnum):
    """Collectives of a step; the last four are not rows of the trace, or not of their own."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    EMBEDDING = "embedding"
    LAYERNORM = "layernorm"
    LOSS = "loss"
    REPORT = "report"
    NORM = "norm"
    WARM_UP = "warm_up"


@dataclass(frozen=True, slots=True)
class Work:
    """The worker is busy by itself."""

    source: Source
    duration_s: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """Sends and receives that were posted together; each is (stage of the peer, kind of lane)."""

    sends: tuple[tuple[int, str], ...]
    receives: tuple[tuple[int, str], ...]


Item = Work | Transfer | Collective


@dataclass(frozen=True, slots=True)
class Floors:
    """Shortest times of a step over all workers; what others took longer for was waiting."""

    turn_s: float
    clip_s: float


def floors_of(trace: Trace, step: int) -> Floors:
    """The floors of a step."""
    workers = [trace.operations[step, worker] for worker in trace.workers]
    clips = [op.duration_s for operations in workers for op in operations if op.kind is OpType.CLIP]
    return Floors(min(_turn_s(operations) for operations in workers), min(clips, default=0.0))


def schedule(trace: Trace, step: int, worker: Worker, floors: Floors) -> list[Item]:
    """The worker's step in recorded order.

    The end of the pipeline hides two waits that have no rows: the last stage waits for all its
    replicas (their loss is averaged), and all stages of replica 0 wait for each other (the average is
    reported). Both become small collectives.
    """
    items: list[Item] = []
    before: Recorded | None = None
    for batch in _batches(trace.operations[step, worker]):
        first = batch[0]
        if before is not None and _is_turn(before, first):
            items += _work(Source.GAP, floors.turn_s)
            items += _loss(trace, worker)
        elif before is not None and first.start_s - before.end_s > _TIMER_NOISE_S:
            items += _work(Source.GAP, first.start_s - before.end_s)
        items += _items(batch, worker[1], floors)
        before = max(batch, key=lambda op: op.end_s)
    return items


def _work(source: Source, duration_s: float) -> list[Item]:
    return [Work(source, duration_s)] if duration_s > 0 else []


def _items(batch: Sequence[Recorded], stage: int, floors: Floors) -> list[Item]:
    first = batch[0]
    match first.kind:
        case OpType.FORWARD:
            return _work(Source.FORWARD, first.duration_s)
        case OpType.BACKWARD:
            return _work(Source.BACKWARD, first.duration_s)
        case OpType.OPTIMIZER:
            return _work(Source.OPTIMIZER, first.duration_s)
        case OpType.CLIP:
            return [*_work(Source.CLIP, floors.clip_s), Collective.NORM]
        case OpType.PARAMETERS:
            return [Collective.PARAMETERS]
        case OpType.GRADIENTS:
            return [Collective.GRADIENTS]
        case OpType.EMBEDDING:
            return [Collective.EMBEDDING]
        case OpType.LAYERNORM:
            return [Collective.LAYERNORM]
        case _:
            return [_transfer(batch, stage)]


def _transfer(batch: Sequence[Recorded], stage: int) -> Transfer:
    sends = [_SENDS[op.kind] for op in batch if op.kind in _SENDS]
    receives = [_RECEIVES[op.kind] for op in batch if op.kind in _RECEIVES]
    return Transfer(
        tuple((stage + distance, lane) for lane, distance in sends),
        tuple((stage + distance, lane) for lane, distance in receives),
    )


def _batches(operations: Sequence[Recorded]) -> Iterator[list[Recorded]]:
    """Sends and receives with equal start and end were one call; everything else stands alone."""
    batch: list[Recorded] = []
    for op in operations:
        together = (
            batch
            and {op.kind, batch[0].kind} <= {*_SENDS, *_RECEIVES}
            and (op.start_s, op.duration_s) == (batch[0].start_s, batch[0].duration_s)
        )
        if batch and not together:
            yield batch
            batch = []
        batch.append(op)
    if batch:
        yield batch


def _is_turn(before: Recorded, after: Recorded) -> bool:
    """The worker leaves the pipeline for the end of its step."""
    return before.kind in _PIPELINE and after.kind not in _PIPELINE


def _loss(trace: Trace, worker: Worker) -> list[Item]:
    replica, stage = worker
    items: list[Item] = [Collective.LOSS] if stage == trace.stages - 1 else []
    if replica == 0 and trace.stages > 1:
        items.append(Collective.REPORT)
    return items


def _turn_s(operations: Sequence[Recorded]) -> float:
    """The gap between pipeline and end of step, 0 if there is none."""
    end = max((op.end_s for op in operations if op.kind in _PIPELINE), default=0.0)
    following = [op.start_s for op in operations if op.kind not in _PIPELINE and op.start_s > end]
    return min(following, default=end) - end


def compute_s(trace: Trace, step: int, worker: Worker) -> float:
    """Recorded compute of the worker: forward, backward and optimizer."""
    return sum(op.duration_s for op in trace.operations[step, worker] if op.kind in _COMPUTE)


def compute_ratios(trace: Trace, steps: Sequence[int]) -> dict[Worker, float]:
    """Each worker's compute over its stage's median, as the median over the steps."""
    ratios: dict[Worker, list[float]] = {worker: [] for worker in trace.workers}
    for step in steps:
        for stage in range(trace.stages):
            times = {r: compute_s(trace, step, (r, stage)) for r in range(trace.replicas)}
            usual = median(times.values())
            for replica, time in times.items():
                ratios[replica, stage].append(time / usual if usual > 0 else 1.0)
    return {worker: median(values) for worker, values in ratios.items()}


def slowed_workers(trace: Trace, steps: Sequence[int]) -> list[Worker]:
    """The workers whose compute is persistently above their stage's: the truth of a replay."""
    return [worker for worker, ratio in compute_ratios(trace, steps).items() if ratio > _OUTLIER_RATIO]
