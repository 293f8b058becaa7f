# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run: the truth in short, the verdicts on it, what it took. Goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.contenders import ContenderVerdict

LOUD = ("fail_slow", "fail_stop")
"""Severities that say that something is wrong; a notice accuses nobody."""


@dataclass(frozen=True, slots=True)
class FaultFacts:
    """One fault or control: what may be said of it, and what it cost.

    ``slowdown`` is the mean iteration from the onset on over that of the same seed without this fault,
    ``spread`` the per-iteration spread of the healthy run (log-ratio), ``iterations`` how many there were.
    ``counts`` tells whether it must be found. ``onset_iteration`` is the onset as the analysis numbers
    iterations.
    """

    name: str
    row: int
    severities: tuple[str, ...]
    causes: tuple[str, ...]
    scopes: tuple[str, ...]
    separable: bool
    machine: str | None
    candidates: tuple[str, ...]
    onset_step: int | None
    onset_iteration: int | None
    slowdown: float | None
    spread: float | None
    iterations: int
    counts: bool

    @property
    def stops(self) -> bool:
        """Whether the job stands still for it."""
        return self.severities == ("fail_stop",)


@dataclass(frozen=True, slots=True)
class Facts:
    """The truth about a run; a healthy run has no faults, a control one that needs no verdict."""

    control: bool
    faults: tuple[FaultFacts, ...]
    iterations: int
    iteration_ms: float

    @property
    def guilty(self) -> frozenset[str]:
        """Machines that a fault touches."""
        return frozenset(fault.machine for fault in self.faults if fault.machine is not None)


@dataclass(frozen=True, slots=True)
class SaidVerdict:
    """One verdict of a report, as far as it is judged."""

    severity: str
    cause: str
    scope: str
    machine: str | None
    nic: str | None
    candidates: tuple[str, ...]
    onset_iteration: int
    detected_iteration: int
    slowdown: float | None
    confidence: float

    @property
    def loud(self) -> bool:
        """Whether it says that something is wrong."""
        return self.severity in LOUD


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished case. ``contenders`` holds the other methods' verdicts by their names."""

    case: str
    facts: Facts
    verdicts: tuple[SaidVerdict, ...]
    health: str
    contenders: Mapping[str, tuple[ContenderVerdict, ...]]
    simulate_s: float
    analyse_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    """The outcome of ``as_dict``, perhaps after a way through JSON. Raises KeyError or TypeError."""
    facts = data["facts"]
    faults = tuple(FaultFacts(**_tuples(fault)) for fault in facts["faults"])
    contenders = {
        name: tuple(ContenderVerdict(**verdict) for verdict in verdicts)
        for name, verdicts in data["contenders"].items()
    }
    return Outcome(
        data["case"],
        Facts(facts["control"], faults, facts["iterations"], facts["iteration_ms"]),
        tuple(SaidVerdict(**_tuples(verdict)) for verdict in data["verdicts"]),
        data["health"],
        contenders,
        data["simulate_s"],
        data["analyse_s"],
    )


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
