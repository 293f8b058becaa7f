# SPDX-License-Identifier: Apache-2.0
"""Findings as a live analysis would tell them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Health, Severity, Verdict
from host_ctl.incidents.tracker import Persistence
from host_ctl.live.findings import Findings, JobState
from host_ctl.present.details import Details, plain

SECOND = 10**9
BEGIN_NS = 1_700_000_000 * SECOND
URL = "http://head:7472"
QUICK = Persistence(end_looks=3, end_s=3.0, reopen_s=20.0, gone_s=30.0)
MACHINES = ("node0", "node1", "node2", "node3")
DETAILS = json.dumps(plain(Details((), ())))


def verdict(
    machine: str | None = "node1",
    cause: Cause = "compute_slow",
    severity: Severity = "fail_slow",
    *,
    nic: str | None = None,
    candidates: tuple[tuple[str, str | None], ...] = (),
    confidence: float = 0.9,
    cost: float = 10.0,
    onset_ns: int = 0,
    job: str = "job-1",
) -> Verdict:
    """A verdict."""
    named = candidates or (((machine, nic),) if machine else ())
    return Verdict(
        job=job, severity=severity, cause=cause, scope="machine" if machine else "link", machine=machine,
        nic=nic, peer=None, candidates=tuple(Candidate(m, n, 1 / len(named)) for m, n in named),
        onset_ns=onset_ns, onset_iteration=1, detected_iteration=4, slowdown=1.3, lost_gpu_seconds=cost,
        confidence=confidence, evidence=(Evidence("start_lag_us", 812.5, 3.0, "us"),),
        summary=f"{machine or 'a link'}: {cause}",
    )  # fmt: skip


def health_of(verdicts: Sequence[Verdict]) -> Health:
    """The health that verdicts amount to."""
    severities = {each.severity for each in verdicts}
    return "failed" if "fail_stop" in severities else "degraded" if "fail_slow" in severities else "ok"


def job(
    *verdicts: Verdict, key: str = "training", health: Health | None = None, iteration_ns: int = SECOND // 10
) -> JobState:
    """A job of four machines with a NIC each."""
    nics = tuple(f"{machine}/mlx5_0" for machine in MACHINES)
    return JobState(key, MACHINES, nics, 60, iteration_ns, health or health_of(verdicts), tuple(verdicts))


def report(*jobs: JobState) -> dict[str, Any]:
    """A small report: what incidents keep of it they keep whole."""
    inputs = [{"machine": machine, "nic": "mlx5_0"} for machine in MACHINES]
    return {
        "schema": "pulse.report/1",
        "health": "ok",
        "inputs": inputs,
        "jobs": [{"id": each.key} for each in jobs],
        "verdicts": [{"summary": v.summary} for each in jobs for v in each.verdicts],
        "data_quality": {"missing": [], "warnings": []},
    }


def findings(
    number: int, *jobs: JobState, silent: tuple[str, ...] = (), end_ns: int | None = None
) -> Findings:
    """Look ``number`` at ten seconds of traffic, one each second."""
    end_ns = BEGIN_NS + number * SECOND if end_ns is None else end_ns
    verdicts = [v for each in jobs for v in each.verdicts]
    return Findings(
        end_ns - 10 * SECOND,
        end_ns,
        health_of(verdicts) if jobs else "unsure",
        jobs,
        report(*jobs),
        silent,
        (),
        DETAILS,
    )
