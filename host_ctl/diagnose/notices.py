# SPDX-License-Identifier: Apache-2.0
"""What all notices have in common: they say what costs time, and accuse nobody."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.verdict import Cause, Evidence, Scope, Verdict
from host_ctl.reconstruct.jobs import Job

LEAST_COST = 0.02
"""Share of the job's time that anything must cost to be mentioned, as for faults."""


def notice(
    job: Job,
    cause: Cause,
    summary: str,
    evidence: tuple[Evidence, ...],
    *,
    onset: int,
    detected: int,
    cost_ns: float,
    confidence: float,
    scope: Scope = "none",
) -> Verdict:
    """A verdict of severity ``notice`` without a machine; ``cost_ns`` is what the whole job lost."""
    return Verdict(
        job=job.id,
        severity="notice",
        cause=cause,
        scope=scope,
        machine=None,
        nic=None,
        peer=None,
        candidates=(),
        onset_ns=int(job.boundaries_ns[onset]),
        onset_iteration=onset,
        detected_iteration=detected,
        slowdown=None,
        lost_gpu_seconds=cost_ns / 1e9 * len(job.members),
        confidence=confidence,
        evidence=evidence,
        summary=summary,
    )


def held_up_by_hosts(replayed: Replay, job: Job) -> NDArray[np.float64]:
    """What every iteration would gain if no host were later than usual (ns): pauses of all included.

    Where rails keep times of their own, the mean over them.
    """
    return np.asarray(replayed.saved_ns(replayed.hosts(job.members)).mean(axis=0), np.float64)


def usual_ns(features: Features) -> float:
    """The usual time of an iteration (ns)."""
    return float(np.median(features.duration_ns)) if len(features.duration_ns) else 0.0
