# SPDX-License-Identifier: Apache-2.0
"""A small recorded job written by hand: 2 replicas x 2 stages x 4 GPUs, 1F1B with 3 micro-batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sim.replay.trace_file import Worker

Row = dict[str, Any]


def small_rows(slow: Worker = (0, 0)) -> list[Row]:
    """Rows in a scrambled order; the slow worker computes twice as long."""
    rows: list[Row] = []
    for step in (7, 9):
        for replica in range(2):
            for stage in range(2):
                worker = [
                    {
                        "step": step,
                        "dp_rank": replica,
                        "stage": stage,
                        "rank": 4 * (replica + 2 * stage),
                        **op,
                    }
                    for op in _step(stage, 2.0 if (replica, stage) == slow else 1.0)
                ]
                rows += reversed(worker)
    return rows


def _step(stage: int, factor: float) -> list[Row]:
    ops: list[Row] = []
    counts: Counter[str] = Counter()
    now = 0.0

    def add(duration: float, *kinds: str, gap: float = 0.0) -> None:
        nonlocal now
        now += gap
        for kind in kinds:
            ops.append(
                {"optype": kind, "start_ts": now, "duration": duration, "seq_id": counts[kind], "mc": 0}
            )
            counts[kind] += 1
        now += duration

    add(0.1, "params-all-gather")
    if stage == 0:
        add(factor * 0.25, "forward-compute", gap=0.0625)
        add(0.125, "forward-send")
        for _ in range(2):
            add(factor * 0.25, "forward-compute")
            add(0.5, "backward-recv", "forward-send")
            add(factor * 0.5, "backward-compute")
        add(0.75, "backward-recv")
        add(factor * 0.5, "backward-compute")
    else:
        add(1.0, "forward-recv", gap=0.0625)
        for turn in range(3):
            add(factor * 0.25, "forward-compute")
            add(factor * 0.5, "backward-compute")
            add(0.5, "backward-send", *(["forward-recv"] if turn < 2 else []))
    add(0.0, "gc")
    add(0.03, "layernorm-grads-all-reduce", gap=0.01 if stage == 0 else 2.0)
    add(0.5, "embedding-grads-all-reduce")
    add(0.25, "grads-reduce-scatter")
    add(0.04 if stage else 0.02, "optimizer-clip-main-grad")
    add(factor * 0.125, "optimizer")
    return ops


def write(path: Path, rows: list[Row]) -> Path:
    """``rows`` as a parquet file."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    return path
