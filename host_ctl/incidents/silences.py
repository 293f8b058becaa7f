# SPDX-License-Identifier: Apache-2.0
"""Whom a silence concerns."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from host_ctl.incidents.records import Incident, Silence


def silenced_by(incident: Incident, silences: Iterable[Silence], now_ns: int) -> Silence | None:
    """Return the silence that concerns an incident now, of several the one that lasts longest."""
    found = [each for each in silences if each.ends_ns > now_ns and _fits(each, incident)]
    return max(found, key=lambda each: each.ends_ns, default=None)


def _fits(silence: Silence, incident: Incident) -> bool:
    accused = [incident.machine] if incident.machine else [c.machine for c in incident.candidates]
    return (
        _is_like(silence.job, incident.identity.job)
        and _is_like(silence.cause, incident.cause)
        # Whoever works on a machine expects to hear nothing of what it may have caused.
        and (silence.machine is None or any(_is_like(silence.machine, name) for name in accused))
    )


def _is_like(pattern: str | None, text: str) -> bool:
    return pattern is None or fnmatchcase(text, pattern)
