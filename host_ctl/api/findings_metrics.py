# SPDX-License-Identifier: Apache-2.0
"""Jobs, incidents and hooks as Prometheus metrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from host_ctl.diagnose.verdict import Health, Severity
from host_ctl.incidents.desk import DeskStatus
from host_ctl.incidents.records import Incident
from host_ctl.live.findings import JobState

# A time series per job is dear where jobs come and go by the thousand.
_MOST_JOBS = 256
_MOST_INCIDENTS = 256
_INCIDENT_LABELS = ("job", "machine", "nic", "severity", "cause")


def of_findings(desk: DeskStatus) -> Iterator[Metric]:
    """The last look and the incidents that are open."""
    yield CounterMetricFamily("pulse_looks", "Results of the live analysis.", value=desk.looks)
    yield CounterMetricFamily(
        "pulse_lost_looks", "Results that came too quickly to be used.", value=desk.lost_looks
    )
    yield GaugeMetricFamily(
        "pulse_incidents_written", "1 while incidents can be written.", value=float(desk.problem is None)
    )
    latest = desk.latest
    if latest is not None:
        yield GaugeMetricFamily(
            "pulse_analysis_end_seconds",
            "Until when traffic is analysed, since 1970.",
            value=latest.end_ns / 1e9,
        )
        yield GaugeMetricFamily(
            "pulse_analysis_lag_seconds",
            "Age of the newest traffic that is analysed.",
            value=max(0.0, time.time() - latest.end_ns / 1e9),
        )
        yield GaugeMetricFamily(
            "pulse_analysis_age_seconds",
            "Time since the last result.",
            value=time.monotonic() - desk.latest_s,
        )
        yield GaugeMetricFamily(
            "pulse_analysis_problems", "What keeps the analysis from being whole.", value=len(latest.problems)
        )
        yield _healths("pulse_health", "1 for the health of all jobs together.", {(): latest.health}, ())
        yield _silent(latest.silent)
        yield from _of_jobs(latest.jobs[:_MOST_JOBS])
    yield from _of_incidents(desk)


def of_hooks(desk: DeskStatus) -> Iterator[Metric]:
    """How it goes with telling people."""
    waiting = GaugeMetricFamily("pulse_hook_waiting", "Deliveries that have not been made.", labels=("hook",))
    working = GaugeMetricFamily("pulse_hook_working", "1 unless the last attempt failed.", labels=("hook",))
    done = CounterMetricFamily(
        "pulse_hook_deliveries", "What became of deliveries.", labels=("hook", "result")
    )
    failed = CounterMetricFamily("pulse_hook_failed_attempts", "Attempts that failed.", labels=("hook",))
    for hook in desk.hooks:
        waiting.add_metric((hook.name,), hook.waiting)
        working.add_metric((hook.name,), float(hook.problem is None))
        failed.add_metric((hook.name,), hook.attempts_failed)
        for result in ("delivered", "failed", "dropped"):
            done.add_metric((hook.name, result), getattr(hook, result))
    yield from (waiting, working, done, failed)


def _of_jobs(jobs: Sequence[JobState]) -> Iterator[Metric]:
    lasting = GaugeMetricFamily("pulse_job_iteration_seconds", "Time of an iteration.", labels=("job",))
    for job in jobs:
        if job.iteration_ns:
            lasting.add_metric((job.key,), job.iteration_ns / 1e9)
    yield lasting
    nics = GaugeMetricFamily("pulse_job_nics", "NICs that a job uses.", labels=("job",))
    for job in jobs:
        nics.add_metric((job.key,), len(job.nics))
    yield nics
    yield _healths(
        "pulse_job_health", "1 for the health of a job.", {(j.key,): j.health for j in jobs}, ("job",)
    )


def _of_incidents(desk: DeskStatus) -> Iterator[Metric]:
    counts = Counter((i.identity.severity, i.number in desk.acknowledged) for i in desk.open)
    total = GaugeMetricFamily(
        "pulse_open_incidents", "Incidents that are open.", labels=("severity", "acknowledged")
    )
    for severity in get_args(Severity):
        for acknowledged in (False, True):
            total.add_metric((severity, str(acknowledged).lower()), counts[severity, acknowledged])
    yield total
    yield GaugeMetricFamily("pulse_silences", "Silences that hold.", value=len(desk.silences))
    shown: dict[tuple[str, ...], Incident] = {}
    for incident in desk.open[:_MOST_INCIDENTS]:
        place = incident.machine or "", incident.nic or "", incident.identity.severity, incident.cause
        shown.setdefault((incident.identity.job, *place), incident)
    lost = GaugeMetricFamily(
        "pulse_incident_lost_gpu_seconds", "What an open incident has cost.", labels=_INCIDENT_LABELS
    )
    for labels, incident in shown.items():
        lost.add_metric(labels, incident.lost_gpu_seconds)
    yield lost


def _silent(silent: Sequence[str]) -> Metric:
    family = GaugeMetricFamily(
        "pulse_nic_silent", "1 for a NIC that should report.", labels=("machine", "nic")
    )
    for name in silent:
        machine, _, nic = name.rpartition("/")
        family.add_metric((machine or nic, nic if machine else ""), 1.0)
    return family


def _healths(name: str, text: str, of: dict[tuple[str, ...], Health], labels: tuple[str, ...]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(*labels, "health"))
    for key, health in of.items():
        for each in get_args(Health):
            family.add_metric((*key, each), float(each == health))
    return family
