# SPDX-License-Identifier: Apache-2.0
"""Snapshots made by hand: every figure of them is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from host_ctl.attribute.states import WaitState
from host_ctl.present.details import Curve, Details, EdgeDetail, JobDetails, NicDetail, OperatorTimes
from host_ctl.top.snapshot import AgentView, IncidentView, Snapshot, parts_of
from host_ctl.top.views.frame import Clock

MS = 1_000_000
US = 1_000
ITERATIONS, ONSET = 40, 20
ITERATION_NS = 25 * MS
NOW = Clock(1000.0, 1_800_000_000_000_000_000)
SIZES = ((80, 24), (120, 36), (200, 60))
HOSTILE = "[red]no\x1b[31mde\u202e" + "x" * 60


def names_of(machines: int, nics: int) -> list[str]:
    """The NICs of machines, all machines alike."""
    return [f"node{m}/mlx5_{n}" for m in range(machines) for n in range(nics)]


def details(nics: list[str], *, slow: str, stale: str = "", missing: str = "") -> Details:
    """Every NIC loses 100 us an iteration, the slow one 8 ms from the onset on."""
    lost = np.full((len(nics), ITERATIONS), 100 * US, dtype=np.int64)
    known = np.zeros((len(nics), ITERATIONS), dtype=np.int64)
    states = np.zeros((len(nics), ITERATIONS, len(WaitState)), dtype=np.int64)
    states[:, :, WaitState.TRANSFER] = 6 * MS
    states[:, :, WaitState.WAIT_UPSTREAM] = 2 * MS
    kinds = np.zeros((len(nics), ITERATIONS, 4), dtype=np.int64)
    for k, name in enumerate(nics):
        lost[k] += 10 * US * k
        if name == slow:
            lost[k, ONSET:] = 8 * MS
            states[k, ONSET:, WaitState.NOT_STARTED] = 8 * MS
        if name == stale:
            known[k, ITERATIONS // 2 :] = 1
            lost[k, ITERATIONS // 2 :] = 0
        if name == missing:
            known[k] = 2
            lost[k] = 0
    kinds[:, :, 0] = lost
    begins = tuple(ITERATION_NS * i for i in range(ITERATIONS))
    took = tuple(ITERATION_NS + (7 * MS if i >= ONSET else 0) for i in range(ITERATIONS))
    edges = tuple(
        EdgeDetail(
            nics[k], nics[(k + 1) % len(nics)], "g1", 1 << 30, 4000, tuple(states[k].sum(axis=0).tolist())
        )
        for k in range(len(nics))
    )
    took_ns = tuple(8 * MS + 10 * US * i for i in range(ITERATIONS))
    operators = (OperatorTimes("g1", "allreduce", begins, took_ns, (64 << 20,) * ITERATIONS),)
    seen = tuple(
        NicDetail(name, 35 << 30, () if name == missing else (0, 3 * k, 0, 0, 0, 0), (1500.0, 4100.0, 6100.0))
        for k, name in enumerate(nics)
    )
    rate = tuple(390.0 if 60 <= k < 90 else 0.0 for k in range(240))
    curve = Curve("job-1", slow, ONSET + 1, begins[ONSET + 1], 104 * US, rate)
    return Details(
        (JobDetails("job-1", 0, begins, took, seen, lost, known, kinds, states, edges, operators),), (curve,)
    )


def report(nics: list[str], *, slow: str, missing: str = "", pipelines: bool = False) -> dict[str, Any]:
    """The report that belongs to them."""
    machine = slow.rpartition("/")[0]
    clock = {"offset_ns": 1_500_000, "drift_ppm": 4.25, "uncertainty_ns": 640, "bound_ns": 4300,
             "basis": "measured", "component": 0, "between": None}  # fmt: skip
    groups = [{"id": "g1", "dimension": "dp", "algorithm": "ring", "members": nics}]
    if pipelines:
        groups += [
            {
                "id": f"g{k + 2}",
                "dimension": "pp",
                "algorithm": "pairwise",
                "members": nics[k::2],
                "stages": nics[k::2],
            }
            for k in range(2)
        ]
    return {
        "schema": "pulse.report/1",
        "health": "degraded",
        "inputs": [
            {"machine": n.rpartition("/")[0], "nic": n.rpartition("/")[2], "mode": "all", "packets": 100_000,
             "flows": 4, "lost": 12 if k == 1 else 0, "first_ns": 0, "last_ns": 10**9, "clock": clock}
            for k, n in enumerate(nics) if n != missing
        ],
        "jobs": [{
            "id": "job-1", "machines": sorted({n.rpartition("/")[0] for n in nics}), "nics": nics,
            "iterations": ITERATIONS, "iteration_s": 0.025, "groups": groups,
            "operators": [{"kind": "allreduce", "group": "g1", "count": 40, "bytes": 64 << 20,
                           "duration_s": 0.0082, "active_s": 0.006}],
        }],
        "verdicts": [{
            "id": "v1", "job": "job-1", "severity": "fail_slow", "cause": "compute_slow", "scope": "machine",
            "machine": machine, "nic": None, "peer": None,
            "candidates": [{"machine": machine, "nic": None, "probability": 0.96}],
            "onset_ns": ITERATION_NS * ONSET, "onset_iteration": ONSET, "detected_iteration": ONSET + 3,
            "slowdown": 1.28, "lost_gpu_seconds": 1.12, "confidence": 0.96,
            "evidence": [{"metric": "host_time", "value": 8000.0, "peers": 0.0, "unit": "us"}],
            "summary": f"{machine} slows job-1 (compute slow): it had its input and its credit and still "
                       "sent late; 7.0 ms of 32.0 ms per iteration",
        }],
        "data_quality": {"missing": [], "warnings": ["node1/mlx5_0: the clock was set by 10 ms"]},
    }  # fmt: skip


def session(**changes: Any) -> Snapshot:
    """A recorded session: four machines with two NICs, node2 slow, one NIC stale, one without a capture."""
    return of_names(
        names_of(4, 2), slow="node2/mlx5_0", stale="node1/mlx5_1", missing="node3/mlx5_1", **changes
    )


def of_names(
    nics: list[str], *, slow: str, stale: str = "", missing: str = "", pipelines: bool = False, **changes: Any
) -> Snapshot:
    """A snapshot of NICs of these names."""
    made = report(nics, slow=slow, missing=missing, pipelines=pipelines)
    parts = parts_of(json.loads(json.dumps(made)), details(nics, slow=slow, stale=stale, missing=missing))
    return replace(Snapshot(kind="session", origin="captures", **parts), **changes)


def healthy() -> Snapshot:
    """A session without a verdict."""
    made = report(names_of(2, 2), slow="node9/mlx5_0")
    made |= {"health": "ok", "verdicts": []}
    return Snapshot(
        kind="session", origin="captures", **parts_of(made, details(names_of(2, 2), slow="node9/mlx5_0"))
    )


def live(**changes: Any) -> Snapshot:
    """The same as a controller tells it, with an incident; node0/mlx5_1 is silent."""
    agents = tuple(
        AgentView(name, connected=name != "node3/mlx5_1", silent=name == "node0/mlx5_1",
                  last_received_ns=NOW.unix_ns - 2 * 10**9, missing=0, late=0)
        for name in names_of(4, 2)
    )  # fmt: skip
    incident = IncidentView(
        "i7", open=True, acknowledged=False, severity="fail_slow", cause="compute_slow", where="node2",
        job="job-1", started_ns=NOW.unix_ns - 60 * 10**9, ended_ns=None, lost_gpu_s=1.12, confidence=0.96,
        summary="node2 slows job-1 (compute slow)", steps=("01-15 07:59:00Z opened: node2",),
    )  # fmt: skip
    base = session(kind="live", origin="http://127.0.0.1:7472", agents=agents, silent=("node0/mlx5_1",),
                   incidents=(incident,), taken_s=NOW.s - 1)  # fmt: skip
    return replace(base, **changes)
