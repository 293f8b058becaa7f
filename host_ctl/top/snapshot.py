# SPDX-License-Identifier: Apache-2.0
"""What the dashboard shows at an instant, wherever it comes from: one immutable record.

Text of others (names, sentences, notes) is cleaned here, once: no character of it can steer a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from host_ctl.errors import InputError, printable
from host_ctl.present.details import Curve, Details, JobDetails
from host_ctl.present.headline import headline

HEALTHS = ("ok", "degraded", "failed", "unsure")
_MOST_TEXT = 2000
Kind = Literal["live", "session", "report"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure of a verdict beside its norm."""

    metric: str
    value: float
    peers: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One verdict; ``where`` is a NIC, a machine, the ends of a link, or "no machine"."""

    id: str
    job: str
    severity: str
    cause: str
    scope: str
    machine: str | None
    nic: str | None
    where: str
    candidates: tuple[tuple[str, float], ...]
    onset_ns: int
    onset_iteration: int
    slowdown: float | None
    lost_gpu_s: float
    confidence: float
    evidence: tuple[Figure, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class ClockView:
    """A clock against the others; None where nothing ties it to any."""

    offset_ns: int
    drift_ppm: float
    uncertainty_ns: int | None
    bound_ns: int | None
    basis: str
    component: int
    between: str
    between_ns: int | None


@dataclass(frozen=True, slots=True)
class CaptureView:
    """What was taken at one NIC."""

    name: str
    mode: str
    packets: int
    lost: int
    first_ns: int
    last_ns: int
    clock: ClockView


@dataclass(frozen=True, slots=True)
class GroupView:
    """NICs that work together; ``stages`` in order where it is a pipeline."""

    id: str
    dimension: str
    algorithm: str
    members: tuple[str, ...]
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperatorView:
    """Operators of one group and size."""

    kind: str
    group: str
    count: int
    bytes: int
    duration_s: float
    active_s: float


@dataclass(frozen=True, slots=True, eq=False)
class JobView:
    """One job; without ``details`` nothing is known by iteration."""

    id: str
    machines: tuple[str, ...]
    nics: tuple[str, ...]
    iterations: int
    iteration_s: float
    groups: tuple[GroupView, ...]
    operators: tuple[OperatorView, ...]
    details: JobDetails | None


@dataclass(frozen=True, slots=True)
class AgentView:
    """A DPU as the controller hears it."""

    name: str
    connected: bool
    silent: bool
    last_received_ns: int
    missing: int
    late: int


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident; ``notes`` and ``steps`` are there once somebody looked at it."""

    id: str
    open: bool
    acknowledged: bool
    severity: str
    cause: str
    where: str
    job: str
    started_ns: int
    ended_ns: int | None
    lost_gpu_s: float
    confidence: float
    summary: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Connection:
    """How it goes with the controller: ``lost`` says why it cannot be asked, and since when (monotonic s)."""

    lost: str = ""
    since_s: float = 0.0
    retry_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything on the screen. ``at_ns`` is until when traffic was analysed, ``taken_s`` when this came."""

    kind: Kind
    origin: str
    health: str
    headline: str
    verdicts: tuple[VerdictView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    captures: tuple[CaptureView, ...] = ()
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    agents: tuple[AgentView, ...] = ()
    incidents: tuple[IncidentView, ...] = ()
    connection: Connection = Connection()
    loading: str = ""
    at_ns: int | None = None
    taken_s: float = 0.0
    curves: tuple[Curve, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)


def clean(value: object) -> str:
    """Text of others on one line that any terminal shows as it is, of bounded length."""
    return printable(str(value)[:_MOST_TEXT])


def parts_of(report: Any, details: Details | None) -> dict[str, Any]:
    """Fields of a snapshot that a ``pulse.report/1`` document tells. Raises InputError if it is damaged."""
    try:
        known = {clean(job.id): _cleaned(job) for job in (details.jobs if details is not None else ())}
        verdicts = tuple(_verdict(v) for v in report["verdicts"])
        quality = report["data_quality"]
        health = str(report["health"])
        if health not in HEALTHS:
            raise ValueError(f"no health is called {health[:20]}")
        missing = tuple(map(clean, quality["missing"]))
        jobs = tuple(_job(j, known) for j in report["jobs"])
        return {
            "health": health,
            "headline": headline(health, verdicts, missing, len(jobs)),
            "verdicts": verdicts,
            "jobs": jobs,
            "captures": tuple(_capture(i) for i in report["inputs"]),
            "missing": missing,
            "warnings": tuple(map(clean, quality["warnings"])),
            "curves": tuple(
                replace(c, job=clean(c.job), nic=clean(c.nic))
                for c in (details.curves if details is not None else ())
            ),
            "report": report,
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"the report is damaged ({clean(repr(error))}): make it anew") from None


def place(found: Mapping[str, Any]) -> str:
    """Where a verdict or an incident points."""
    where = "/".join(p for p in (found["machine"], found["nic"]) if p)
    if where:
        return clean(where)
    ends = [str(c["machine"]) for c in found["candidates"]] if found["scope"] == "link" else []
    return clean(" or ".join(dict.fromkeys(ends)) or "no machine")


def _verdict(v: Mapping[str, Any]) -> VerdictView:
    return VerdictView(
        id=clean(v["id"]),
        job=clean(v["job"]),
        severity=clean(v["severity"]),
        cause=clean(v["cause"]),
        scope=clean(v["scope"]),
        machine=None if v["machine"] is None else clean(v["machine"]),
        nic=None if v["nic"] is None else clean(v["nic"]),
        where=place(v),
        candidates=tuple(
            (clean("/".join(p for p in (c["machine"], c["nic"]) if p)), float(c["probability"]))
            for c in v["candidates"]
        ),
        onset_ns=int(v["onset_ns"]),
        onset_iteration=int(v["onset_iteration"]),
        slowdown=None if v["slowdown"] is None else float(v["slowdown"]),
        lost_gpu_s=float(v["lost_gpu_seconds"]),
        confidence=float(v["confidence"]),
        evidence=tuple(
            Figure(clean(e["metric"]), float(e["value"]), _number(e["peers"]), clean(e["unit"]))
            for e in v["evidence"]
        ),
        summary=clean(v["summary"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _job(j: Mapping[str, Any], known: Mapping[str, JobDetails]) -> JobView:
    return JobView(
        id=clean(j["id"]),
        machines=tuple(map(clean, j["machines"])),
        nics=tuple(map(clean, j["nics"])),
        iterations=int(j["iterations"]),
        iteration_s=float(j["iteration_s"]),
        groups=tuple(
            GroupView(
                clean(g["id"]), clean(g["dimension"]), clean(g["algorithm"]),
                tuple(map(clean, g["members"])), tuple(map(clean, g.get("stages", ()))),
            )
            for g in j["groups"]
        ),
        operators=tuple(
            OperatorView(
                clean(o["kind"]), clean(o["group"]), int(o["count"]), int(o["bytes"]),
                float(o["duration_s"]), float(o["active_s"]),
            )
            for o in j["operators"]
        ),
        details=_fitting(known.get(clean(j["id"])), len(j["nics"])),
    )  # fmt: skip


def _fitting(details: JobDetails | None, nics: int) -> JobDetails | None:
    """Details of another look, of which the NICs are not the same, are none of this report."""
    return details if details is not None and len(details.nics) == nics else None


def _cleaned(job: JobDetails) -> JobDetails:
    return replace(
        job,
        nics=tuple(replace(nic, name=clean(nic.name)) for nic in job.nics),
        edges=tuple(replace(e, src=clean(e.src), dst=clean(e.dst), group=clean(e.group)) for e in job.edges),
        operators=tuple(replace(o, group=clean(o.group), kind=clean(o.kind)) for o in job.operators),
    )


def _capture(i: Mapping[str, Any]) -> CaptureView:
    clock = i["clock"]
    between = clock.get("between")
    return CaptureView(
        name=clean(f"{i['machine']}/{i['nic']}" if i["nic"] else i["machine"]),
        mode=clean(i["mode"]),
        packets=int(i["packets"]),
        lost=int(i["lost"]),
        first_ns=int(i["first_ns"]),
        last_ns=int(i["last_ns"]),
        clock=ClockView(
            offset_ns=int(clock["offset_ns"]),
            drift_ppm=float(clock["drift_ppm"]),
            uncertainty_ns=_whole(clock["uncertainty_ns"]),
            bound_ns=_whole(clock["bound_ns"]),
            basis=clean(clock["basis"]),
            component=int(clock["component"]),
            between="" if between is None else clean(between["basis"]),
            between_ns=None if between is None else int(between["uncertainty_ns"]),
        ),
    )
