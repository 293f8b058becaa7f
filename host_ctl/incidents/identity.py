# SPDX-License-Identifier: Apache-2.0
"""Which verdicts are about the same thing.

A verdict that accuses a machine is about that machine, whatever it names as the cause; one that accuses
nobody is about its candidates, or about the job as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from host_ctl.diagnose.verdict import Cause, Verdict
from host_ctl.incidents.records import Identity

_FAMILIES: dict[str, tuple[Cause, ...]] = {
    "host": ("compute_slow", "input_stall", "cpu_contention"),
    "nic": ("nic_slow", "receiver_slow", "nic_dead"),
    "network": ("link_slow", "link_loss", "link_down", "congestion", "path_collision", "switch_port"),
    "stop": ("hang", "crash", "op_mismatch"),
    "unknown": ("unknown",),
}
_FAMILY_OF = {cause: family for family, causes in _FAMILIES.items() for cause in causes}
# Each is a family of its own, and the whole job has it.
_PATTERNS: tuple[Cause, ...] = ("stage_imbalance", "data_imbalance", "random_pauses", "periodic_pause")
_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A verdict in one look, and what it is about."""

    identity: Identity
    verdict: Verdict


def sightings_of(job: str, verdicts: Iterable[Verdict]) -> list[Sighting]:
    """Return one sighting for each thing that verdicts are about: of several the surest, in a fixed order."""
    best: dict[Identity, Verdict] = {}
    for verdict in verdicts:
        identity = _identity(job, verdict)
        other = best.get(identity)
        if other is None or _weight(verdict) > _weight(other):
            best[identity] = verdict
    order = sorted(best, key=lambda each: (each.severity, each.family, each.place))
    return [Sighting(identity, _finite(best[identity])) for identity in order]


def match(
    sightings: Sequence[Sighting], kept: Sequence[_Kept], identity_of: Callable[[_Kept], Identity]
) -> dict[int, _Kept]:
    """Return by its position which of ``kept`` each sighting goes on with, if any; none is given twice.

    What is exactly the same comes first. What is left then may have been refined: another cause on the same
    machine, or a path of which an end is the same.
    """
    found: dict[int, _Kept] = {}
    free = list(kept)
    for fits in (Identity.__eq__, _same_machine, _overlap):
        for position, sighting in enumerate(sightings):
            if position in found:
                continue
            for each in free:
                if fits(sighting.identity, identity_of(each)):
                    found[position] = each
                    free.remove(each)
                    break
    return found


def is_part_of(name: str, place: str) -> bool:
    """Whether a machine or NIC is, or belongs to, another."""
    return name == place or name.startswith(f"{place}/")


def _identity(job: str, verdict: Verdict) -> Identity:
    if verdict.cause in _PATTERNS:
        return Identity(job, verdict.severity, verdict.cause, ())
    place = {verdict.machine} if verdict.machine else {_name(c.machine, c.nic) for c in verdict.candidates}
    return Identity(job, verdict.severity, _FAMILY_OF[verdict.cause], tuple(sorted(place)))


def _name(machine: str, nic: str | None) -> str:
    return f"{machine}/{nic}" if nic else machine


def _same_machine(one: Identity, other: Identity) -> bool:
    return _comparable(one, other) and len(one.place) == 1 and one.place == other.place


def _overlap(one: Identity, other: Identity) -> bool:
    if not _comparable(one, other):
        return False
    if one.severity == "fail_stop":
        return True  # a job stops once; who is to blame becomes clear with time
    # A late host says nothing about a link, even if it is the host of one of its ends.
    if (one.family == "host") != (other.family == "host") and "unknown" not in (one.family, other.family):
        return False
    return any(is_part_of(a, b) or is_part_of(b, a) for a in one.place for b in other.place)


def _comparable(one: Identity, other: Identity) -> bool:
    patterns = {one.family, other.family} & set(_PATTERNS)
    return not patterns and (one.job, one.severity) == (other.job, other.severity)


def _weight(verdict: Verdict) -> tuple[float, float, str]:
    return verdict.confidence, verdict.lost_gpu_seconds, repr(verdict)


def _finite(verdict: Verdict) -> Verdict:
    """A verdict whose figures JSON can carry."""
    evidence = tuple(
        replace(
            each,
            value=each.value if math.isfinite(each.value) else 0.0,
            peers=each.peers if each.peers is not None and math.isfinite(each.peers) else None,
        )
        for each in verdict.evidence
    )
    slowdown = verdict.slowdown if verdict.slowdown is not None and math.isfinite(verdict.slowdown) else None
    return replace(verdict, evidence=evidence, slowdown=slowdown)
