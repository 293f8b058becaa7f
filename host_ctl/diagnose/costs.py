# SPDX-License-Identifier: Apache-2.0
"""What each fault costs: the time of an iteration now, against the same without the fault's time.

One definition for the sentence, the ratio and the GPU-seconds. Where there are healthy iterations to compare
with, their median is the time without any fault. Faults at the same time share what an iteration lost, in
proportion to what is charged to each, so that no second is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features
from host_ctl.diagnose.verdict import Verdict

_MIN_HEALTHY = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """What is charged to one fault: iterations [onset, end), and its time per iteration (ns)."""

    onset: int
    end: int
    charged_ns: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one fault costs: the iterations' median time, its part of that, and its sum over all (ns)."""

    now_ns: float
    per_iteration_ns: float
    total_ns: float

    @property
    def slowdown(self) -> float:
        """How many times as long iterations take as they would without the fault."""
        return self.now_ns / max(self.now_ns - self.per_iteration_ns, 1.0)


def share_costs(features: Features, usable: NDArray[np.bool_], claims: Sequence[Claim]) -> list[Cost]:
    """The cost of every fault of a job. ``usable`` marks the iterations that can be compared."""
    if not claims:
        return []
    duration = features.duration_ns.astype(np.float64)
    inside = np.zeros((len(claims), len(duration)), dtype=bool)
    for row, claim in zip(inside, claims, strict=True):
        row[claim.onset : claim.end] = True
    healthy = usable & ~inside.any(axis=0)
    if healthy.sum() >= _MIN_HEALTHY:
        base = float(np.median(duration[healthy]))
        charged = np.array([max(c.charged_ns, 1.0) for c in claims])[:, None] * inside
        share = charged / np.maximum(charged.sum(axis=0), 1.0)
        lost = (duration - base) * share
    else:
        lost = np.stack([_alone(duration, usable, c, row) for c, row in zip(claims, inside, strict=True)])
    return [_cost(duration, part, row) for part, row in zip(lost, inside, strict=True)]


def charged_cost(features: Features, claim: Claim) -> Cost:
    """The cost of what is too small to be seen in the iterations' times: what is charged to it."""
    duration = features.duration_ns[claim.onset : claim.end].astype(np.float64)
    return _cost(duration, np.minimum(claim.charged_ns, duration), np.ones(len(duration), dtype=bool))


def priced(verdict: Verdict, cost: Cost, members: int) -> Verdict:
    """The verdict with its cost in figures and in words."""
    return replace(
        verdict,
        slowdown=cost.slowdown,
        lost_gpu_seconds=cost.total_ns / 1e9 * members,
        summary=(
            f"{verdict.summary}; {cost.per_iteration_ns / 1e6:.1f} ms of {cost.now_ns / 1e6:.1f} ms "
            "per iteration"
        ),
    )


def _alone(
    duration: NDArray[np.float64], usable: NDArray[np.bool_], claim: Claim, inside: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """What one fault costs per iteration: beyond its own past, or what is charged where it has none."""
    before = duration[usable & ~inside]
    if len(before) >= _MIN_HEALTHY:
        return np.asarray((duration - float(np.median(before))) * inside)
    return np.asarray(np.minimum(claim.charged_ns, duration) * inside)


def _cost(duration: NDArray[np.float64], lost: NDArray[np.float64], inside: NDArray[np.bool_]) -> Cost:
    if not inside.any():
        return Cost(0.0, 0.0, 0.0)
    return Cost(
        now_ns=float(np.median(duration[inside])),
        per_iteration_ns=max(0.0, float(np.median(lost[inside]))),
        total_ns=max(0.0, float(lost[inside].sum())),
    )
