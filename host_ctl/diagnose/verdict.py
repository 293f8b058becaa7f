# SPDX-License-Identifier: Apache-2.0
"""The verdict: one cause, whom it accuses if anybody, since when, at what cost, on which evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["fail_slow", "fail_stop", "notice"]
Health = Literal["ok", "degraded", "failed", "unsure"]
Scope = Literal["gpu", "nic", "machine", "link", "path", "stage", "none"]
Cause = Literal[
    "compute_slow",
    "input_stall",
    "cpu_contention",
    "nic_slow",
    "link_slow",
    "link_loss",
    "link_down",
    "nic_dead",
    "receiver_slow",
    "congestion",
    "path_collision",
    "switch_port",
    "hang",
    "crash",
    "op_mismatch",
    "stage_imbalance",
    "data_imbalance",
    "random_pauses",
    "periodic_pause",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One machine (and NIC) that may be the cause, with its probability."""

    machine: str
    nic: str | None
    probability: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured figure of the accused beside that of its peers (or of its own past)."""

    metric: str
    value: float
    peers: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong. ``machine`` is None whenever no machine is to blame; times are common ns."""

    job: str
    severity: Severity
    cause: Cause
    scope: Scope
    machine: str | None
    nic: str | None
    peer: str | None
    candidates: tuple[Candidate, ...]
    onset_ns: int
    onset_iteration: int
    detected_iteration: int
    slowdown: float | None
    lost_gpu_seconds: float
    confidence: float
    evidence: tuple[Evidence, ...]
    summary: str
