# SPDX-License-Identifier: Apache-2.0
"""Real traffic and real jobs: labelled Soft-RoCE captures, and recorded operator traces replayed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scenarios.outcome import LOUD
from host_ctl.errors import InputError, PulseError
from host_ctl.pipeline import Analysis, analyze_paths
from sim.output.run import OutputForm, write_run
from sim.replay.model import MODELS, Scaling, layout_of
from sim.replay.run import Replay, prepare_replay
from sim.replay.trace_file import load_trace
from sim.spec import SimulationError

_SLOW, _STOP = "fail_slow", "fail_stop"
# Kind in the label -> severities and causes that tell it; causes as wide as what Soft-RoCE's taps can show.
_RULES: dict[str, tuple[set[str], set[str]]] = {
    "slow_compute": ({_SLOW}, {"compute_slow", "input_stall", "cpu_contention"}),
    "slow_nic": ({_SLOW}, {"nic_slow", "link_slow", "receiver_slow"}),
    "packet_loss": ({_SLOW}, {"link_loss", "nic_slow", "link_slow"}),
    "hang_process": ({_STOP}, {"hang", "crash", "op_mismatch"}),
    "link_down": ({_STOP, _SLOW}, {"link_down", "nic_dead", "link_loss", "crash"}),
    "link_flap": ({_SLOW, _STOP, "notice"}, {"link_down", "nic_dead", "link_loss"}),
    "cpu_contention": ({_SLOW}, {"cpu_contention", "compute_slow", "receiver_slow"}),
}
_INNOCENT = (None, "random_pauses")
_TRACE_STEPS = 8
_GPUS_PER_MACHINE = 8


@dataclass(frozen=True, slots=True)
class RealRow:
    """One capture or trace: what is known of it, what was said of it."""

    name: str
    truth: str
    said: str
    right: bool


def real_rows(captures: Path | None, traces: Path | None) -> list[RealRow]:
    """Judge what is given. Raises InputError for a folder without any labelled capture or known trace."""
    rows = [] if captures is None else list(_captures(captures))
    return rows if traces is None else [*rows, *_traces(traces)]


def _captures(folder: Path) -> Iterator[RealRow]:
    labels = sorted(folder.glob("*/truth.json"))
    if not labels:
        raise InputError(f"{folder}: no labelled captures (folders with captures and truth.json)")
    for label in labels:
        truth = json.loads(label.read_text())
        files = sorted(p for p in label.parent.iterdir() if ".pcap" in p.name)
        kind, node = truth["fault"].get("kind"), truth["fault"].get("culprit_node")
        known = "nobody" if kind in _INNOCENT else f"node{node} {kind}"
        try:
            analysis = analyze_paths(files, until_ns=truth["capture"]["end_ns"])
        except PulseError as error:
            yield RealRow(label.parent.name, known, str(error), right=False)
            continue
        yield RealRow(label.parent.name, known, _said(analysis), _as_labelled(truth["fault"], analysis))


def _as_labelled(fault: dict[str, Any], analysis: Analysis) -> bool:
    loud = [v for v in analysis.verdicts if v.severity in LOUD]
    kind = fault.get("kind")
    if kind in _INNOCENT:
        return not loud
    guilty = f"node{fault['culprit_node']}"
    severities, causes = _RULES[kind]
    return {v.machine for v in loud if v.machine} <= {guilty} and any(
        v.machine == guilty and v.severity in severities and v.cause in causes for v in analysis.verdicts
    )


def _traces(folder: Path) -> Iterator[RealRow]:
    found = {name: folder / f"trace-{name}.parquet" for name in sorted(MODELS)}
    known = {name: path for name, path in found.items() if path.exists()}
    if not known:
        raise InputError(f"{folder}: no trace named {' or '.join(path.name for path in found.values())}")
    for name, path in known.items():
        try:
            trace = load_trace(path)
            layout = layout_of(trace, _GPUS_PER_MACHINE)
            replay = Replay(trace, MODELS[name], layout, Scaling(), _TRACE_STEPS)
            setting = prepare_replay(replay, 1)
        except SimulationError as error:
            raise InputError(f"{path}: {error}") from error
        with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
            write_run(setting, Path(scratch), form=OutputForm.FRAMES)
            analysis = analyze_paths(sorted(Path(scratch).glob("*.frames")))
        slowed = {f"node{machine}" for machine in replay.slowed_machines}
        named = {v.machine for v in analysis.verdicts if v.severity in LOUD}
        yield RealRow(path.stem, ", ".join(sorted(slowed)) or "nobody", _said(analysis), named == slowed)


def _said(analysis: Analysis) -> str:
    loud = [v for v in analysis.verdicts if v.severity in LOUD]
    return "; ".join(f"{v.machine or 'nobody'} {v.cause}" for v in loud) or analysis.health
