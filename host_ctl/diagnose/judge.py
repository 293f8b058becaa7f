# SPDX-License-Identifier: Apache-2.0
"""Puts the findings about one job together: what explains what, and how healthy the job is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from host_ctl.attribute.dimensions import Dimension
from host_ctl.attribute.features import Features
from host_ctl.attribute.needs import Needs
from host_ctl.attribute.program import Program
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import usable_iterations
from host_ctl.diagnose.costs import Claim, charged_cost, priced, share_costs
from host_ctl.diagnose.losses import find_losses
from host_ctl.diagnose.patterns import find_patterns
from host_ctl.diagnose.slow import find_slow
from host_ctl.diagnose.stop import find_stop
from host_ctl.diagnose.unexplained import unexplained
from host_ctl.diagnose.verdict import Health, Verdict
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import UNSEEN, Traffic

_UNSEEN_CONFIDENCE = 0.5
_ORDER = {"fail_stop": 0, "fail_slow": 1, "notice": 2}


@dataclass(frozen=True, slots=True)
class JobFindings:
    """A job's verdicts, the gravest first, and what could not be told."""

    verdicts: tuple[Verdict, ...]
    unsure: tuple[str, ...]


def judge_job(
    traffic: Traffic,
    program: Program,
    needs: Needs,
    features: Features,
    charges: Table,
    replayed: Replay,
    paths: Table,
    repairs: Table,
    dimensions: Sequence[Dimension],
    witness_ns: int,
) -> JobFindings:
    """All verdicts on one job. A network cause explains the late starts that follow from it."""
    job = program.job
    stop = find_stop(traffic, program, needs, repairs, witness_ns)
    if stop.verdict is not None:
        # What is repeated after the job's last progress belongs to the stop.
        repairs = repairs[repairs["start"] <= stop.verdict.onset_ns]
    lost = find_losses(traffic, job, features, repairs)
    slow = find_slow(traffic, program, features, charges, replayed, paths, lost)
    explained = {v.machine for v, _ in lost.verdicts if v.severity == "fail_slow" and v.machine}
    verdicts = [v for v in (stop.verdict,) if v is not None]
    verdicts += _priced([*lost.verdicts, *((v, c) for v, c in slow if v.machine not in explained)], features)
    if not any(v.severity != "notice" for v in verdicts):
        verdicts += find_patterns(traffic, program, features, replayed, paths, dimensions)
    unsure = [stop.unsure] if stop.unsure else []
    if not any(v.severity != "notice" for v in verdicts):
        unsure += [text for text in (unexplained(job, features),) if text]
    verdicts = [_without_unseen(v) for v in verdicts]
    verdicts.sort(key=lambda v: (_ORDER[v.severity], -v.lost_gpu_seconds))
    return JobFindings(tuple(verdicts), tuple(unsure))


def _priced(found: Sequence[tuple[Verdict, Claim]], features: Features) -> list[Verdict]:
    """The verdicts with their costs; those of faults together are what the job lost, notices' apart."""
    usable, members = usable_iterations(features), len(features.members)
    faults = [claim for v, claim in found if v.severity != "notice"]
    costs = iter(share_costs(features, usable, faults))
    return [
        priced(v, next(costs) if v.severity != "notice" else charged_cost(features, claim), members)
        for v, claim in found
    ]


def _without_unseen(verdict: Verdict) -> Verdict:
    """An endpoint without a capture is a candidate at most: what it waited for cannot be seen."""
    if verdict.machine is None or not verdict.machine.startswith(UNSEEN):
        return verdict
    return replace(
        verdict,
        scope="none",
        machine=None,
        nic=None,
        confidence=min(verdict.confidence, _UNSEEN_CONFIDENCE),
        candidates=tuple(
            replace(c, probability=min(c.probability, _UNSEEN_CONFIDENCE)) for c in verdict.candidates
        ),
        summary=f"{verdict.summary} (no capture of it: a candidate only)",
    )


def overall_health(verdicts: Sequence[Verdict], unsure: Sequence[str], jobs: int) -> Health:
    """The health that the exit status tells: failed, degraded, unsure or ok."""
    severities = {v.severity for v in verdicts}
    if "fail_stop" in severities:
        return "failed"
    if "fail_slow" in severities:
        return "degraded"
    return "unsure" if unsure or not jobs else "ok"
