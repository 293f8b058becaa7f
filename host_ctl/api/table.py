# SPDX-License-Identifier: Apache-2.0
"""All operations."""

from __future__ import annotations

from host_ctl.api import handlers
from host_ctl.api.operations import Operation
from host_ctl.api.views import (
    IncidentAnswer,
    IncidentDetail,
    IncidentQuery,
    IncidentsAnswer,
    JobAnswer,
    LookAnswer,
    NicsAnswer,
    NoteBody,
    SaidBody,
    SilenceBody,
    SilencesAnswer,
    StatusAnswer,
)
from host_ctl.incidents.records import Acknowledgement, Note, Silence

PREFIX = "/api/v1"
# What needs no token: whether it works is asked by who starts and stops it.
FREE = ("/healthz", "/readyz")
OPERATIONS = (
    Operation("GET", "/healthz", "healthz", "Whether the controller's loop turns",
              handlers.healthz, media="text/plain", failures=(503,)),
    Operation("GET", "/readyz", "readyz", "Whether frames are acknowledged",
              handlers.readyz, media="text/plain", failures=(503,)),
    Operation("GET", "/metrics", "metrics", "Metrics for Prometheus", handlers.metrics, media="text/plain"),
    Operation("GET", f"{PREFIX}/status", "status", "How it goes", handlers.status, StatusAnswer),
    Operation("GET", f"{PREFIX}/jobs", "jobs", "The jobs of the last look, with their verdicts",
              handlers.jobs, LookAnswer, failures=(404,)),
    Operation("GET", f"{PREFIX}/jobs/{{key}}", "job", "A job of the last look",
              handlers.job, JobAnswer, failures=(404,)),
    Operation("GET", f"{PREFIX}/nics", "nics", "All NICs since the start", handlers.nics, NicsAnswer),
    Operation("GET", f"{PREFIX}/findings", "findings", "The report of the last look",
              handlers.findings, media="report", failures=(404,)),
    Operation("GET", f"{PREFIX}/details", "details", "The tables behind that report, pulse.details/1",
              handlers.details, media="details", failures=(404,)),
    Operation("GET", f"{PREFIX}/incidents", "incidents", "Incidents, the newest first",
              handlers.incidents, IncidentsAnswer, query=IncidentQuery, failures=(503,)),
    Operation("GET", f"{PREFIX}/incidents/{{id}}", "incident", "An incident and all that was done about it",
              handlers.incident, IncidentDetail, failures=(404, 503)),
    Operation("GET", f"{PREFIX}/incidents/{{id}}/reports/{{kind}}", "incident_report",
              "The report that opened an incident, or the latest one",
              handlers.incident_report, media="report", failures=(404, 503)),
    Operation("POST", f"{PREFIX}/incidents/{{id}}/ack", "acknowledge", "Take an open incident on",
              handlers.acknowledge, Acknowledgement, body=SaidBody, failures=(404, 503)),
    Operation("POST", f"{PREFIX}/incidents/{{id}}/note", "note", "Write something about an incident",
              handlers.note, Note, body=NoteBody, failures=(404, 503)),
    Operation("POST", f"{PREFIX}/incidents/{{id}}/end", "end", "End an open incident by hand",
              handlers.end, IncidentAnswer, body=SaidBody, failures=(404, 503)),
    Operation("GET", f"{PREFIX}/silences", "silences", "Silences that hold",
              handlers.silences, SilencesAnswer),
    Operation("POST", f"{PREFIX}/silences", "silence", "Tell nobody of some incidents for a time",
              handlers.silence, Silence, body=SilenceBody, failures=(503,)),
    Operation("DELETE", f"{PREFIX}/silences/{{id}}", "unsilence", "End a silence",
              handlers.unsilence, Silence, failures=(404, 503)),
    Operation("GET", f"{PREFIX}/events", "events",
              "Looks and changes of incidents as they come; resumes after Last-Event-ID",
              handlers.events, media="text/event-stream", failures=(503,)),
    Operation("GET", f"{PREFIX}/openapi.json", "openapi", "This document",
              handlers.openapi, media="document"),
)  # fmt: skip
