# SPDX-License-Identifier: Apache-2.0
"""Incidents and what people say about them, as they cross from the tracker to store, hooks and API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from host_ctl.diagnose.verdict import Candidate, Cause, Evidence, Scope, Severity

State = Literal["open", "ended"]
ChangeKind = Literal["opened", "updated", "ended", "reopened"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two verdicts about one thing: ``place`` is a machine, or the ends of a path, sorted."""

    job: str
    severity: Severity
    family: str
    place: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """Verdicts that persist. Times are those of the controller's clock.

    ``started_ns`` is the onset of the fault, ``opened_ns`` when it had persisted for long enough,
    ``ended_ns`` when it was last seen. ``lost_gpu_seconds`` is what it has cost until ``last_seen_ns``;
    ``slowdown``, ``confidence`` and ``evidence`` are those of the last look.
    ``machines`` and ``nics`` are the job's.
    """

    number: int
    identity: Identity
    state: State
    started_ns: int
    opened_ns: int
    last_seen_ns: int
    ended_ns: int | None
    end_reason: str | None
    reopened: int
    cause: Cause
    scope: Scope
    machine: str | None
    nic: str | None
    peer: str | None
    candidates: tuple[Candidate, ...]
    evidence: tuple[Evidence, ...]
    slowdown: float | None
    lost_gpu_seconds: float
    confidence: float
    summary: str
    machines: tuple[str, ...]
    nics: tuple[str, ...]

    @property
    def name(self) -> str:
        """How people call it."""
        return f"i{self.number}"


@dataclass(frozen=True, slots=True)
class Change:
    """Something about an incident that is worth telling; ``text`` says what and why."""

    kind: ChangeKind
    incident: Incident
    at_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Somebody has taken an incident on."""

    incident: int
    at_ns: int
    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """What somebody wrote about an incident."""

    number: int
    incident: int
    at_ns: int
    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Silence:
    """Until ``ends_ns`` nothing is told of incidents of a machine, job and cause, which may have ``*``."""

    number: int
    created_ns: int
    ends_ns: int
    author: str
    text: str
    machine: str | None
    job: str | None
    cause: str | None


DeliveryState = Literal["waiting", "delivered", "failed", "dropped"]
DeliveryKind = Literal["opened", "updated", "ended", "reopened", "repeated", "silenced"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one hook is to tell, and how that went; ``body`` is the JSON document it sends."""

    number: int
    hook: str
    incident: int
    kind: DeliveryKind
    body: str
    created_ns: int
    attempts: int = 0
    state: DeliveryState = "waiting"
    error: str | None = None
    done_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a hook has been told last of an incident; ``labels`` are those by which its receiver knows it."""

    hook: str
    incident: int
    firing: bool
    labels: str
    at_ns: int
