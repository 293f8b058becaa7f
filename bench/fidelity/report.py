# SPDX-License-Identifier: Apache-2.0
"""Runs the presets, healthy and with faults, in both modes of capture, and prints the tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.fidelity import summary
from bench.fidelity.cases import CaseScore, score_case
from bench.simulator import in_mode
from host_ctl.attribute.states import WaitState
from sim.scenarios.catalogue import HEALTHY, Order, build
from sim.scenarios.cluster_file import ClusterSpec
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER

DEFAULT_CLUSTER_SIZE = "8x1"
WORKLOADS = tuple(name for name in PRESETS if name != "storage")  # the same job as dp
FAULTS = (HEALTHY, "gpu_slow", "port_slow")
MODES = {"all": "default", "steered": "messages"}


def cluster_of(size: str) -> ClusterSpec:
    """The default cluster of another size, MACHINESxNICS. Raises ValueError for anything else."""
    machines, _, nics = size.partition("x")
    if not machines.isdigit() or not nics.isdigit():
        raise ValueError(f"cluster {size!r} is no size; give MACHINESxNICS, as in {DEFAULT_CLUSTER_SIZE}")
    return replace(DEFAULT_CLUSTER, machines=int(machines), nics_per_machine=int(nics))


def scored_cases(cluster: ClusterSpec, seed: int, workloads: Sequence[str]) -> Iterator[CaseScore]:
    """Every workload, healthy and with each fault, in both modes of capture."""
    for workload in workloads:
        for fault in FAULTS:
            scenario = build(Order(fault, seed, cluster, workload))
            for mode, simulated in MODES.items():
                print(f"{workload} {fault} {mode}", file=sys.stderr, flush=True)
                yield score_case(in_mode(scenario, simulated), workload, fault, mode)


def report_fidelity(cluster: str, seed: int, workloads: Sequence[str], *, as_json: bool) -> int:
    """Print how near the analysis comes to the truth; 0 = done."""
    cases = list(scored_cases(cluster_of(cluster), seed, workloads or WORKLOADS))
    if as_json:
        print(json.dumps(_as_data(cases), indent=1))
        return 0
    print("\n".join([*_goal_lines(cases), "", *_case_lines(cases)]))
    for mode in MODES:
        print("\n".join(["", *confusion_lines([c for c in cases if c.mode == mode], mode)]))
    return 0


def _goal_lines(cases: Sequence[CaseScore]) -> list[str]:
    heading = "| figure | " + " | ".join(f"{mode} | goal" for mode in MODES) + " |"
    lines = [heading, "|---" * (2 * len(MODES) + 1) + "|"]
    for goal in summary.GOALS:
        cells = [goal.name]
        for mode in MODES:
            value = goal.figure([c for c in cases if c.mode == mode])
            missed = "" if goal.reached(value, mode) in (True, None) else " (missed)"
            sign = ">= " if goal.at_least else "<= "
            limit = goal.limit_in(mode)
            cells += [_percent(value) + missed, "-" if limit is None else sign + _percent(limit)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


_COLUMNS = (
    "workload", "fault", "mode", "right %", "unknown %", "members %", "kinds %", "dimensions %", "stages %",
    "operators true/visible/found", "begin us p50/p99", "end us p50/p99", "of iteration % p99",
    "iterations true/found", "length % p99", "begin % p99", "slowdown stated/true",
)  # fmt: skip


def _case_lines(cases: Sequence[CaseScore]) -> list[str]:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    lines += ["| " + " | ".join(map(str, _case_row(case).values())) + " |" for case in cases]
    return lines


def _case_row(case: CaseScore) -> dict[str, Any]:
    one = [case]
    cuts = [g.cuts for g in case.groups if g.cuts is not None]
    true = sum(g.operators[0] for g in case.groups)
    found = sum(g.operators[1] for g in case.groups)
    cells = (
        case.workload,
        case.fault,
        case.mode,
        _number(summary.right_share(one), 100),
        _number(summary.unknown_share(one), 100),
        _number(summary.membership(one), 100),
        _number(summary.kinds(one), 100),
        _number(summary.dimensions(one), 100),
        _number(summary.stages_right(one), 100),
        f"{true}/{sum(c.visible for c in cuts)}/{found}",
        *(
            "/".join(_number(summary.cut_errors_us(one, end, q)) for q in (0.5, 0.99))
            for end in ("begin", "end")
        ),
        _number(summary.timeline_error(one), 100),
        " ".join(f"{a}/{b}" for a, b in case.iterations),
        _number(summary.length_error(one), 100),
        _number(summary.boundary_error(one), 100),
        " ".join(f"{a:.3f}/{b:.3f}" for a, b in case.costs) or "-",
    )
    return dict(zip(_COLUMNS, cells, strict=True))


def confusion_lines(cases: Sequence[CaseScore], mode: str) -> list[str]:
    """Time per true (row) and found (column) state in per cent of all edge time, as Markdown."""
    whole = [case.confusion / case.confusion.sum() for case in cases if case.confusion.sum()]
    if not whole:
        return [f"No edge time was compared ({mode})."]
    mean = np.mean(whole, axis=0) * 100
    shown = [s for s in WaitState if mean[s].any() or mean[:, s].any() or s is WaitState.UNKNOWN]
    names = [s.name.lower() for s in shown]
    lines = [f"| {mode}: true \\ found, % | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for state, name in zip(shown, names, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{mean[state, other]:.2f}" for other in shown) + " |")
    return lines


def _as_data(cases: Sequence[CaseScore]) -> dict[str, Any]:
    goals = []
    for goal in summary.GOALS:
        for mode in MODES:
            value = goal.figure([c for c in cases if c.mode == mode])
            limit = goal.limit_in(mode)
            goals.append(
                {
                    "figure": goal.name,
                    "mode": mode,
                    "value": value,
                    "goal": limit,
                    "reached": goal.reached(value, mode),
                }
            )
    states = [s.name.lower() for s in WaitState]
    rows = [_case_row(c) | {"confusion_ns": c.confusion.round().tolist()} for c in cases]
    return {"goals": goals, "states": states, "runs": rows}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _number(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{factor * value:.3g}"
