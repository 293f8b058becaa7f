# SPDX-License-Identifier: Apache-2.0
"""What is right and what is wrong about the verdicts on one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.scenarios.outcome import LOUD, Facts, FaultFacts, SaidVerdict


class Word(StrEnum):
    """The judgement on one fault, or on a control."""

    RIGHT = "right"
    OTHER_CAUSE = "right_machine_other_cause"  # for faults of no machine: no machine named, other cause
    CANDIDATES = "candidates_only"
    UNSURE = "unsure"
    MISSED = "missed"
    WRONG_MACHINE = "wrong_machine"
    QUIET = "allowed_quiet"  # nothing or a notice where nothing needs to be said
    FALSE_ACCUSATION = "false_accusation"
    FALSE_ALARM = "false_alarm"  # something is said to be wrong where nothing is; no machine is named


ALLOWED_WORDS = frozenset({Word.RIGHT, Word.QUIET})


@dataclass(frozen=True, slots=True)
class Accusations:
    """Machines that were named: how many, how many of them innocent, and which guilty ones."""

    named: int
    innocent: int
    found: frozenset[str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One word per fault (a control has one word), and the machines that were named."""

    words: tuple[Word, ...]
    accusations: Accusations


def judge_outcome(facts: Facts, verdicts: Sequence[SaidVerdict], health: str) -> Judgement:
    """Judge a report against the truth. In order: right, right machine, candidates, wrong, quiet, missed."""
    accusations = judge_machines(facts, ((v.severity, v.machine) for v in verdicts))
    if facts.control:
        return Judgement((_control_word(verdicts, health),), accusations)
    words = tuple(_fault_word(fault, facts, verdicts, health) for fault in facts.faults)
    return Judgement(words, accusations)


def judge_machines(facts: Facts, said: Iterable[tuple[str, str | None]]) -> Accusations:
    """Judge pairs of severity and machine; the same for Pulse and for its contenders."""
    named = {machine for severity, machine in said if severity in LOUD and machine is not None}
    return Accusations(len(named), len(named - facts.guilty), frozenset(named & facts.guilty))


def _control_word(verdicts: Sequence[SaidVerdict], health: str) -> Word:
    loud = [v for v in verdicts if v.loud]
    if any(v.machine is not None for v in loud):
        return Word.FALSE_ACCUSATION
    if loud:
        return Word.FALSE_ALARM
    return Word.UNSURE if health == "unsure" else Word.QUIET


def _fault_word(fault: FaultFacts, facts: Facts, verdicts: Sequence[SaidVerdict], health: str) -> Word:
    loud = [v for v in verdicts if v.loud]
    innocent = [v for v in loud if v.machine is not None and v.machine not in facts.guilty]
    if any(fits(fault, v) for v in verdicts):
        return Word.RIGHT
    # Of two faults, what fits the other one says nothing about this one.
    rest = [v for v in loud if not any(fits(other, v) for other in facts.faults if other is not fault)]
    if fault.machine is not None and any(v.machine == fault.machine for v in loud):
        return Word.OTHER_CAUSE
    if _among_candidates(fault, rest):
        return Word.CANDIDATES
    if innocent:
        return Word.WRONG_MACHINE
    if fault.machine is None and any(v.machine is None for v in rest):
        return Word.OTHER_CAUSE
    if not fault.counts and health != "unsure":
        return Word.FALSE_ALARM if rest else Word.QUIET
    return Word.UNSURE if health == "unsure" else Word.MISSED


def fits(fault: FaultFacts, verdict: SaidVerdict) -> bool:
    """Whether a verdict says exactly what may be said: severity, cause, scope, machine, candidates."""
    return (
        verdict.severity in fault.severities
        and verdict.cause in fault.causes
        and verdict.scope in fault.scopes
        and verdict.machine == fault.machine
        and set(fault.candidates) <= set(verdict.candidates)
    )


def _among_candidates(fault: FaultFacts, loud: Sequence[SaidVerdict]) -> bool:
    nobody = [v for v in loud if v.machine is None]
    if fault.machine is not None:
        return any(fault.machine in v.candidates for v in nobody)
    return bool(fault.candidates) and any(set(fault.candidates) & set(v.candidates) for v in nobody)
