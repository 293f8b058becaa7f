# SPDX-License-Identifier: Apache-2.0
"""The result of a campaign, and the same as plain data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.scenarios.cases import Case
from bench.scenarios.real import RealRow
from bench.scenarios.results import Result
from bench.scenarios.score import (
    Summary,
    calibration,
    cost_errors,
    delays,
    grouped,
    judged,
    machine_scores,
    smallest_found,
    summarize,
)
from bench.scenarios.sets import SEEDS, SEEDS_PER_RANGE

SCHEMA = "pulse.bench.scenarios/1"


@dataclass(frozen=True, slots=True)
class Campaign:
    """What was asked for, and what came of it."""

    set_name: str
    seeds: str
    cases: Sequence[Case]
    results: Sequence[Result]
    ablations: Sequence[Case]
    ablation_results: Sequence[Result]
    real: Sequence[RealRow]


def as_data(campaign: Campaign) -> dict[str, Any]:
    """All tables as plain data."""
    runs = judged(campaign.cases, campaign.results)
    by = {
        "scenario": grouped(runs, lambda case: case.scenario),
        "workload": grouped(runs, lambda case: case.workload),
        "tx_stamp": grouped(runs, lambda case: case.tx_stamp),
        "clocks": grouped(runs, lambda case: case.clocks),
        "capture": grouped(runs, lambda case: case.capture),
        "cluster": grouped(runs, lambda case: case.cluster),
    }
    ablations = judged(campaign.ablations, campaign.ablation_results)
    return {
        "schema": SCHEMA,
        "set": campaign.set_name,
        "seeds": {"range": campaign.seeds, "from": SEEDS[campaign.seeds], "count": SEEDS_PER_RANGE},
        "total": _plain(summarize(runs)),
        "methods": [
            {"method": s.method, "recall": s.recall.as_dict(), "precision": s.precision.as_dict(),
             "alone": s.alone.as_dict(), "accused": s.accused.as_dict()}
            for s in machine_scores(runs)
        ],
        "by": {name: {key: _plain(one) for key, one in group.items()} for name, group in by.items()},
        "delays": [
            {"case": d.case.id, "iterations": d.iterations, "allowed": d.allowed, "seconds": d.seconds}
            for d in delays(runs)
        ],
        "costs": [{"case": case.id, "told": told, "true": true} for case, told, true in cost_errors(runs)],
        "calibration": [
            {"from": low, "to": high, "mean": round(middle, 4), "right": right.as_dict()}
            for low, high, middle, right in calibration(runs)
        ],
        "severities": {
            name: {"smallest_found": least, "largest_missed": most}
            for name, (least, most) in smallest_found(runs).items()
        },
        "ablations": {k: _plain(v) for k, v in grouped(ablations, lambda c: c.variant or "base").items()},
        "real": [{"name": r.name, "truth": r.truth, "said": r.said, "right": r.right} for r in campaign.real],
        "cases": [{"case": run.case.id, "words": list(run.judgement.words)} for run in runs],
        "failures": {r.case: r.failure for r in campaign.results if r.failure is not None},
    }  # fmt: skip


def _plain(one: Summary) -> dict[str, Any]:
    return {
        "runs": one.runs,
        "recall": one.recall.as_dict(),
        "named": one.named.as_dict(),
        "precision": one.precision.as_dict(),
        "allowed": one.allowed.as_dict(),
        "accused": one.accused.as_dict(),
        "alarmed": one.alarmed.as_dict(),
    }
