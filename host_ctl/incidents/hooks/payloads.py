# SPDX-License-Identifier: Apache-2.0
"""What hooks send: a JSON document of our own, and the alerts of Alertmanager's API v2."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from host_ctl.diagnose.verdict import Severity
from host_ctl.incidents.plain import to_json
from host_ctl.incidents.records import DeliveryKind, Incident

SCHEMA = "pulse.incident/1"
_ALERTS: dict[Severity, tuple[str, str]] = {
    "fail_stop": ("PulseFailStop", "critical"),
    "fail_slow": ("PulseFailSlow", "warning"),
    "notice": ("PulseNotice", "info"),
}
# An alert that is not repeated ends by itself; as Prometheus does, some repeats may fail.
_REPEATS_OF_LIFE = 4


def rfc3339(ns: int) -> str:
    """A time with microseconds, UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def document(
    kind: DeliveryKind, incident: Incident, text: str, at_ns: int, url: str, acknowledged_by: str | None
) -> str:
    """What webhooks, commands and syslog servers are told."""
    return to_json(
        {
            "schema": SCHEMA,
            "event": kind,
            "at": rfc3339(at_ns),
            "text": text,
            "url": url,
            "acknowledged_by": acknowledged_by,
            "incident": {
                "id": incident.name,
                "job": incident.identity.job,
                "severity": incident.identity.severity,
                "started": rfc3339(incident.started_ns),
                "ended": None if incident.ended_ns is None else rfc3339(incident.ended_ns),
                **{
                    name: value
                    for name, value in asdict(incident).items()
                    if name not in ("identity", "number")
                },
            },
        }
    )


def labels_of(incident: Incident) -> dict[str, str]:
    """By what Alertmanager groups, routes and silences."""
    name, severity = _ALERTS[incident.identity.severity]
    labels = {
        "alertname": name,
        "severity": severity,
        "incident": incident.name,
        "job": incident.identity.job,
        "cause": incident.cause,
        "machine": incident.machine,
        "nic": incident.nic,
    }
    return {key: value for key, value in labels.items() if value}


def alerts(
    incident: Incident,
    before: dict[str, str] | None,
    *,
    firing: bool,
    now_ns: int,
    repeat_s: float,
    url: str,
    acknowledged_by: str | None,
) -> str:
    """The alert, and the end of the one before it when its labels have changed."""
    labels = labels_of(incident)
    ends_ns = now_ns + round(_REPEATS_OF_LIFE * repeat_s * 1e9) if firing else now_ns
    common = {
        "annotations": _annotations(incident, acknowledged_by),
        "startsAt": rfc3339(min(incident.started_ns, now_ns)),
        "generatorURL": url,
    }
    found = [common | {"labels": labels, "endsAt": rfc3339(ends_ns)}]
    if before is not None and before != labels:
        found.insert(0, common | {"labels": before, "endsAt": rfc3339(now_ns)})
    return json.dumps(found)


def _annotations(incident: Incident, acknowledged_by: str | None) -> dict[str, str]:
    candidates = ", ".join(
        f"{c.machine}{f'/{c.nic}' if c.nic else ''} ({c.probability:.0%})" for c in incident.candidates
    )
    evidence = "; ".join(
        f"{e.metric} {e.value:g} {e.unit}" + (f" (peers {e.peers:g})" if e.peers is not None else "")
        for e in incident.evidence
    )
    found: dict[str, Any] = {
        "summary": incident.summary,
        "candidates": candidates,
        "evidence": evidence,
        "confidence": f"{incident.confidence:.2f}",
        "lost_gpu_seconds": f"{incident.lost_gpu_seconds:.0f}",
        "slowdown": None if incident.slowdown is None else f"{incident.slowdown:.2f}",
        "acknowledged_by": acknowledged_by,
        "ended": incident.end_reason,
    }
    return {key: value for key, value in found.items() if value}
