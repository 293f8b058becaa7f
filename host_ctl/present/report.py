# SPDX-License-Identifier: Apache-2.0
"""The machine-readable report, schema ``pulse.report/1`` (schema/pulse.report-1.json)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from host_ctl.align.clock import Alignment, NicClock
from host_ctl.attribute.dimensions import Dimension
from host_ctl.diagnose.verdict import Health, Verdict
from host_ctl.ingest.series import NicSeries
from host_ctl.present.analysed import Analysed
from host_ctl.present.operators import OperatorSummary, summarize_operators
from host_ctl.present.stored import REPORT_SCHEMA
from host_ctl.reconstruct.groups import Group
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic


def report_schema() -> dict[str, Any]:
    """The JSON Schema that every report fulfils."""
    return document_schema("report")


def document_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a kind of document: report, details."""
    text = files("host_ctl.present").joinpath(f"schema/pulse.{name}-1.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def report_of(analysis: Analysed) -> dict[str, Any]:
    """The report on an analysis as plain data, ready for JSON."""
    return build_report(
        health=analysis.health,
        series=analysis.series,
        alignment=analysis.alignment,
        traffic=analysis.traffic,
        jobs=[one.job for one in analysis.jobs],
        kinds=[one.kinds for one in analysis.jobs],
        dimensions=[one.dimensions for one in analysis.jobs],
        verdicts=analysis.verdicts,
        missing=analysis.missing,
        warnings=analysis.warnings,
    )


def build_report(
    *,
    health: Health,
    series: Sequence[NicSeries],
    alignment: Alignment,
    traffic: Traffic,
    jobs: Sequence[Job],
    kinds: Sequence[Sequence[str]],
    dimensions: Sequence[Sequence[Dimension]],
    verdicts: Sequence[Verdict],
    missing: Sequence[str],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The report as plain data, ready for JSON."""
    return {
        "schema": REPORT_SCHEMA,
        "health": health,
        "inputs": [_input(s, c) for s, c in zip(series, alignment.clocks, strict=True)],
        "jobs": [_job(*one, traffic) for one in zip(jobs, kinds, dimensions, strict=True)],
        "verdicts": [_verdict(f"v{n}", v) for n, v in enumerate(verdicts, 1)],
        "data_quality": {"missing": list(missing), "warnings": list(warnings)},
    }


def _input(series: NicSeries, clock: NicClock) -> dict[str, Any]:
    return {
        "machine": series.machine,
        "nic": series.nic or None,
        "addresses": list(series.addresses),
        "mode": series.mode,
        "packets": series.packets,
        "flows": len(series.flows),
        "lost": series.lost,
        "first_ns": series.first_ns,
        "last_ns": series.last_ns,
        "clock": {
            "offset_ns": round(clock.offset_ns),
            "drift_ppm": round(clock.drift_ppm, 4),
            "uncertainty_ns": None if clock.uncertainty_ns is None else round(clock.uncertainty_ns),
            "bound_ns": None if clock.bound_ns is None else round(clock.bound_ns),
            "basis": clock.basis,
            "component": clock.component,
            "between": _between(clock),
        },
    }


def _between(clock: NicClock) -> dict[str, Any] | None:
    """How the clock's component relates to others: as claimed or read, or else as assumed of coupled GPUs."""
    if clock.between is not None:
        return {
            "basis": clock.between.basis,
            "offset_ns": round(clock.between.offset_ns),
            "uncertainty_ns": round(clock.between.uncertainty_ns),
        }
    if clock.coupled_ns is not None:
        return {"basis": "coupled", "offset_ns": 0, "uncertainty_ns": round(clock.coupled_ns)}
    return None


def _job(job: Job, kinds: Sequence[str], dimensions: Sequence[Dimension], traffic: Traffic) -> dict[str, Any]:
    names = [traffic.endpoints[m] for m in job.members]
    return {
        "id": job.id,
        "machines": sorted({e.machine for e in names}),
        "nics": [e.name for e in names],
        "iterations": job.iterations,
        "iteration_s": round(job.iteration_ns / 1e9, 6),
        "groups": [_group(t.group, d, traffic) for t, d in zip(job.timelines, dimensions, strict=True)],
        "operators": [
            _operator(o)
            for timeline, kind in zip(job.timelines, kinds, strict=True)
            for o in summarize_operators(timeline, traffic, kind)
        ],
    }


def _group(group: Group, dimension: Dimension, traffic: Traffic) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": group.id,
        "dimension": dimension.name,
        "algorithm": group.algorithm,
        "members": [traffic.endpoints[m].name for m in group.members],
    }
    if dimension.stages:
        found["stages"] = [traffic.endpoints[m].name for m in dimension.stages]
    return found


def _operator(operator: OperatorSummary) -> dict[str, Any]:
    return {
        "kind": operator.kind,
        "group": operator.group,
        "count": operator.count,
        "bytes": operator.bytes,
        "duration_s": round(operator.duration_ns / 1e9, 6),
        "active_s": round(operator.active_ns / 1e9, 6),
    }


def _verdict(name: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "id": name,
        "job": verdict.job,
        "severity": verdict.severity,
        "cause": verdict.cause,
        "scope": verdict.scope,
        "machine": verdict.machine,
        "nic": verdict.nic,
        "peer": verdict.peer,
        "candidates": [
            {"machine": c.machine, "nic": c.nic, "probability": round(c.probability, 4)}
            for c in verdict.candidates
        ],
        "onset_ns": verdict.onset_ns,
        "onset_iteration": verdict.onset_iteration,
        "detected_iteration": verdict.detected_iteration,
        "slowdown": None if verdict.slowdown is None else round(verdict.slowdown, 4),
        "lost_gpu_seconds": round(verdict.lost_gpu_seconds, 3),
        "confidence": round(verdict.confidence, 4),
        "evidence": [
            {
                "metric": e.metric,
                "value": _finite(e.value),
                "peers": None if e.peers is None else _finite(e.peers),
                "unit": e.unit,
            }
            for e in verdict.evidence
        ],
        "summary": verdict.summary,
    }


def _finite(value: float) -> float:
    return round(value, 4) if np.isfinite(value) else 0.0
