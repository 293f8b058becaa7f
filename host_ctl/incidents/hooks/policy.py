# SPDX-License-Identifier: Apache-2.0
"""What a hook is to be told now, given what it was told last.

Who acknowledged an incident hears of its end alone. A silence holds back everything, except that an incident
that was told before it is told to have ended; one that outlasts it is told then. Alertmanager forgets what it
is not told again, so it hears the same repeatedly, and of a silence as an end.
"""

from __future__ import annotations

from dataclasses import dataclass

from host_ctl.incidents.hooks.config import HookConfig
from host_ctl.incidents.records import Change, DeliveryKind, Incident, Told


@dataclass(frozen=True, slots=True)
class Standing:
    """An incident as it stands: what just changed, if anything, and what people said about it."""

    incident: Incident
    change: Change | None
    acknowledged: bool
    silenced: bool


def due(hook: HookConfig, standing: Standing, told: Told | None, now_ns: int) -> DeliveryKind | None:
    """Return what is to be told, None for nothing."""
    incident, change = standing.incident, standing.change
    firing = told is not None and told.firing
    if incident.state == "ended":
        return "ended" if firing else None
    if not hook.wants(incident):
        return None
    if standing.silenced:
        return "silenced" if firing and hook.keeps_state else None
    quiet = standing.acknowledged and not hook.keeps_state
    if told is None or not firing:
        if quiet:
            return None
        return "reopened" if told is not None and incident.reopened else "opened"
    if quiet:
        return None
    if change is not None and change.kind == "updated" and hook.updates:
        return "updated"
    return "repeated" if _is_stale(hook, told, now_ns) else None


def _is_stale(hook: HookConfig, told: Told, now_ns: int) -> bool:
    # Set back, a clock must not keep repeats away until it has caught up.
    since_ns = now_ns - told.at_ns
    return bool(hook.repeats_s) and not 0 <= since_ns < hook.repeats_s * 1e9
