# SPDX-License-Identifier: Apache-2.0
"""Recorded jobs of 64 and 128 GPUs, replayed: real computing times, modelled bytes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from host_ctl.pipeline import Analysis, analyze_paths
from sim.output.run import write_run
from sim.replay.model import MODELS, Scaling, layout_of
from sim.replay.run import Replay, prepare_replay
from sim.replay.trace_file import load_trace

TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "op-traces"

needs_traces = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None or not TRACES.is_dir(),
    reason="needs pyarrow and the recorded traces beside the project",
)


def replayed(name: str, gpus_per_machine: int, steps: int, folder: Path) -> tuple[Replay, Analysis]:
    """A recorded job on machines of so many GPUs, captured and analysed."""
    trace = load_trace(TRACES / f"trace-{name}.parquet")
    replay = Replay(trace, MODELS[name], layout_of(trace, gpus_per_machine), Scaling(), steps)
    write_run(prepare_replay(replay, 1), folder)
    return replay, analyze_paths([folder])


@needs_traces
@pytest.mark.parametrize("gpus_per_machine", [8, 4])
@pytest.mark.parametrize("steps", [8, pytest.param(44, marks=pytest.mark.slow)])
def test_the_worker_that_was_slow_from_the_first_iteration_on_is_named(
    gpus_per_machine: int, steps: int, tmp_path: Path
) -> None:
    replay, analysis = replayed("AR", gpus_per_machine, steps, tmp_path)
    guilty = {f"node{machine}" for machine in replay.slowed_machines}
    assert {(v.machine, v.cause) for v in analysis.verdicts} == {(m, "compute_slow") for m in guilty}


@needs_traces
def test_sequences_of_unequal_length_accuse_nobody(tmp_path: Path) -> None:
    _, analysis = replayed("SE", 8, 8, tmp_path)
    assert [v for v in analysis.verdicts if v.severity != "notice"] == []
    assert analysis.health == "ok"
