# SPDX-License-Identifier: Apache-2.0
"""What the API answers and takes; its documentation is made of these types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from host_ctl.api.schemas import about
from host_ctl.api.snapshot import NicSnapshot
from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Health, Scope, Severity, Verdict
from host_ctl.incidents.hooks.switchboard import HookStatus
from host_ctl.incidents.queries import DeliveryLine, Update
from host_ctl.incidents.records import Acknowledgement, ChangeKind, Incident, Note, Silence, State
from host_ctl.live.findings import Findings, JobState

_TEXT = 4000
_NAME = 200
_ORDER = {"fail_stop": 0, "fail_slow": 1, "notice": 2}


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """A job as it was seen last; ``iteration_s`` is null while it is unknown."""

    key: str
    machines: tuple[str, ...]
    nics: tuple[str, ...]
    iterations: int
    iteration_s: float | None
    health: Health
    verdicts: tuple[Verdict, ...]

    @staticmethod
    def of(job: JobState) -> JobAnswer:
        """The view of a job."""
        iteration_s = job.iteration_ns / 1e9 if job.iteration_ns else None
        return JobAnswer(
            job.key, job.machines, job.nics, job.iterations, iteration_s, job.health, job.verdicts
        )


@dataclass(frozen=True, slots=True)
class LookAnswer:
    """The last look at traffic, without its report: times of the controller's clock."""

    begin_ns: int
    end_ns: int
    health: Health
    jobs: tuple[JobAnswer, ...]
    silent: tuple[str, ...]
    problems: tuple[str, ...]

    @staticmethod
    def of(findings: Findings) -> LookAnswer:
        """The view of a look."""
        jobs = tuple(JobAnswer.of(job) for job in findings.jobs)
        return LookAnswer(
            findings.begin_ns, findings.end_ns, findings.health, jobs, findings.silent, findings.problems
        )


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """How it goes: with the jobs (``health``, the gravest verdict) and with the controller itself."""

    version: str
    health: Health
    summary: str
    ready: bool
    problem: str | None
    incidents_problem: str | None
    uptime_s: float
    analysed_until_ns: int | None
    analysis_age_s: float | None
    analysis_problems: tuple[str, ...]
    looks: int
    jobs: int
    nics: int
    nics_connected: int
    nics_silent: tuple[str, ...]
    open_incidents: int
    hooks: tuple[HookStatus, ...]


@dataclass(frozen=True, slots=True)
class NicAnswer:
    """A NIC; counts are those since the controller's start."""

    machine: str
    nic: str
    connected: bool
    silent: bool
    boot_id: str
    software: str
    last_sequence: int
    last_received_ns: int
    clock_offset_ns: int | None
    clock_uncertainty_ns: int | None
    counts: dict[str, int]

    @staticmethod
    def of(nic: NicSnapshot, silent: frozenset[str]) -> NicAnswer:
        """The view of a NIC."""
        clock = nic.clock
        return NicAnswer(
            nic.machine, nic.nic, nic.connected, f"{nic.machine}/{nic.nic}" in silent, nic.boot_id,
            nic.software, nic.last_sequence, nic.last_received_ns,
            None if clock is None else round(clock.offset_ns),
            None if clock is None else round(clock.uncertainty_ns), dict(nic.counts),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NicsAnswer:
    """All NICs that were heard since the start."""

    nics: tuple[NicAnswer, ...]


@dataclass(frozen=True, slots=True)
class IncidentAnswer:
    """A fault that persists, or has: times are those of the controller's clock."""

    id: str
    state: State
    severity: Severity
    job: str
    cause: Cause
    scope: Scope
    machine: str | None
    nic: str | None
    peer: str | None
    candidates: tuple[Candidate, ...]
    started_ns: int
    opened_ns: int
    last_seen_ns: int
    ended_ns: int | None
    end_reason: str | None
    reopened: int
    acknowledged: bool
    slowdown: float | None
    lost_gpu_seconds: float
    confidence: float
    evidence: tuple[Evidence, ...]
    summary: str
    machines: tuple[str, ...]
    nics: tuple[str, ...]

    @staticmethod
    def of(incident: Incident, *, acknowledged: bool) -> IncidentAnswer:
        """The view of an incident."""
        identity = incident.identity
        values: dict[str, Any] = {name: getattr(incident, name, None) for name in IncidentAnswer.__slots__}
        own = {"id": incident.name, "severity": identity.severity, "job": identity.job}
        return IncidentAnswer(**(values | own | {"acknowledged": acknowledged}))


@dataclass(frozen=True, slots=True)
class IncidentsAnswer:
    """Incidents, the newest first; ``next_before`` is the parameter ``before`` of the next page."""

    incidents: tuple[IncidentAnswer, ...]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class IncidentDetail:
    """An incident with its steps, and with what was done about it."""

    incident: IncidentAnswer
    acknowledgement: Acknowledgement | None
    updates: tuple[Update, ...]
    notes: tuple[Note, ...]
    deliveries: tuple[DeliveryLine, ...]


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """What the stream tells of an incident."""

    kind: ChangeKind | Literal["acknowledged"]
    at_ns: int
    text: str
    incident: IncidentAnswer


@dataclass(frozen=True, slots=True)
class SilencesAnswer:
    """Silences that hold."""

    silences: tuple[Silence, ...]


@dataclass(frozen=True, slots=True)
class IncidentQuery:
    """Which incidents."""

    state: State | None = about("open or ended ones", None)  # noqa: RUF009  a field
    severity: Severity | None = about("of this severity", None)  # noqa: RUF009  a field
    job: str | None = about("of this job", None, maxLength=_NAME)
    machine: str | None = about("that accuse this machine", None, maxLength=_NAME)
    cause: Cause | None = about("of this cause", None)  # noqa: RUF009  a field
    since_ns: int | None = about("that were there at this time or later", None, minimum=0, maximum=2**63 - 1)
    before: int | None = about("older than the incident of this number", None, minimum=0, maximum=2**63 - 1)
    limit: int = about("how many at most", 50, minimum=1, maximum=500)


@dataclass(frozen=True, slots=True)
class SaidBody:
    """Who says something about an incident, and what."""

    author: str = about("who says it", minLength=1, maxLength=_NAME)
    text: str = about("what", "", maxLength=_TEXT)


@dataclass(frozen=True, slots=True)
class NoteBody:
    """A note."""

    author: str = about("who writes it", minLength=1, maxLength=_NAME)
    text: str = about("what", minLength=1, maxLength=_TEXT)


@dataclass(frozen=True, slots=True)
class SilenceBody:
    """A silence: at least one of machine, job and cause, and an end or a duration. ``*`` fits everything."""

    author: str = about("who wants it", minLength=1, maxLength=_NAME)
    text: str = about("why", "", maxLength=_TEXT)
    machine: str | None = about("pattern of machines", None, minLength=1, maxLength=_NAME)
    job: str | None = about("pattern of jobs", None, minLength=1, maxLength=_NAME)
    cause: str | None = about("pattern of causes", None, minLength=1, maxLength=_NAME)
    ends_ns: int | None = about("when it ends", None, minimum=0, maximum=2**63 - 1)
    duration_s: float | None = about("how long it lasts, a year at most", None, minimum=1, maximum=31_622_400)


def headline(findings: Findings | None) -> str:
    """The gravest verdict in a sentence."""
    if findings is None:
        return "nothing has been analysed yet"
    verdicts = [verdict for job in findings.jobs for verdict in job.verdicts]
    if verdicts:
        return min(verdicts, key=lambda v: (_ORDER[v.severity], -v.lost_gpu_seconds)).summary
    return "not enough data to say" if findings.health == "unsure" else "no verdict"
