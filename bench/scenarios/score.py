# SPDX-License-Identifier: Apache-2.0
"""What a campaign adds up to: rates over its runs, delays, costs, confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.contenders import ContenderVerdict
from bench.scenarios.cases import Case
from bench.scenarios.judge import (
    ALLOWED_WORDS,
    Accusations,
    Judgement,
    Word,
    fits,
    judge_machines,
    judge_outcome,
)
from bench.scenarios.outcome import FaultFacts, Outcome, SaidVerdict
from bench.scenarios.rates import Rate, rate
from bench.scenarios.results import Result

_LEAST_DELAY = 3
_NAMED = frozenset({Word.RIGHT, Word.OTHER_CAUSE})
CONFIDENCE_BINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with its outcome and the judgement on it."""

    case: Case
    outcome: Outcome
    judgement: Judgement

    def words(self) -> list[tuple[FaultFacts | None, Word]]:
        """Each fault with its word; a control has one word."""
        if self.outcome.facts.control:
            return [(None, self.judgement.words[0])]
        return list(zip(self.outcome.facts.faults, self.judgement.words, strict=True))


def judged(cases: Sequence[Case], results: Sequence[Result]) -> list[Judged]:
    """The cases that have an outcome."""
    found = []
    for case, result in zip(cases, results, strict=True):
        if result.outcome is not None:
            outcome = result.outcome
            judgement = judge_outcome(outcome.facts, outcome.verdicts, outcome.health)
            found.append(Judged(case, outcome, judgement))
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """The rates over some runs.

    ``recall``: counting faults that got an allowed verdict. ``named``: separable counting faults whose
    machine was named, whatever the cause. ``precision``: machines that a fault touches, of all named.
    ``allowed``: faults and controls that got an allowed answer, quiet where quiet is allowed. ``accused``:
    controls in which a machine was named. ``alarmed``: controls in which anything was said to be wrong.
    """

    runs: int
    recall: Rate
    named: Rate
    precision: Rate
    allowed: Rate
    accused: Rate
    alarmed: Rate


def summarize(runs: Iterable[Judged]) -> Summary:
    """The rates over ``runs``."""
    runs = list(runs)
    pairs = [(fault, word) for run in runs for fault, word in run.words()]
    counting = [(fault, word) for fault, word in pairs if fault is not None and fault.counts]
    controls = [run for run in runs if run.outcome.facts.control]
    return Summary(
        runs=len(runs),
        recall=rate(word is Word.RIGHT for _, word in counting),
        named=rate(word in _NAMED for fault, word in counting if fault.separable),
        precision=_precision([run.judgement.accusations for run in runs]),
        allowed=rate(word in ALLOWED_WORDS for _, word in pairs),
        accused=rate(run.judgement.accusations.named > 0 for run in controls),
        alarmed=rate(any(v.loud for v in run.outcome.verdicts) for run in controls),
    )


def _precision(accusations: Sequence[Accusations]) -> Rate:
    named = sum(one.named for one in accusations)
    return Rate(named - sum(one.innocent for one in accusations), named)


def grouped(runs: Sequence[Judged], key: Callable[[Case], str]) -> dict[str, Summary]:
    """A summary for each value of a key, in the order of the values."""
    parts: dict[str, list[Judged]] = {}
    for run in runs:
        parts.setdefault(key(run.case), []).append(run)
    return {name: summarize(parts[name]) for name in sorted(parts)}


# ---- machines alone, beside other methods


@dataclass(frozen=True, slots=True)
class MachineScore:
    """One method by the machines that it named."""

    method: str
    recall: Rate
    precision: Rate
    alone: Rate
    accused: Rate


def machine_scores(runs: Sequence[Judged]) -> list[MachineScore]:
    """Pulse and its contenders, by the same rule on the same runs."""
    scores = [_machine_score("pulse", [(run, run.outcome.verdicts) for run in runs])]
    names = sorted({name for run in runs for name in run.outcome.contenders})
    for name in names:
        judged = [(run, run.outcome.contenders[name]) for run in runs if name in run.outcome.contenders]
        scores.append(_machine_score(name, judged))
    return scores


def _machine_score(
    method: str, judged: Sequence[tuple[Judged, Sequence[SaidVerdict] | Sequence[ContenderVerdict]]]
) -> MachineScore:
    recalled, alone, accused, all_named = [], [], [], []
    for run, verdicts in judged:
        facts = run.outcome.facts
        named = judge_machines(facts, ((v.severity, v.machine) for v in verdicts))
        all_named.append(named)
        if facts.control:
            accused.append(named.named > 0)
        for fault in facts.faults:
            if fault.counts and fault.separable and fault.machine is not None:
                recalled.append(fault.machine in named.found)
                alone.append(fault.machine in named.found and named.innocent == 0)
    return MachineScore(method, rate(recalled), _precision(all_named), rate(alone), rate(accused))


# ---- delay, cost, confidence, smallest severity


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a fault that was found had been there: iterations, beside what the design allows."""

    case: Case
    fault: FaultFacts
    iterations: int
    allowed: int
    seconds: float


def delays(runs: Sequence[Judged]) -> list[Delay]:
    """Of every counting slow fault that was found; 1 = known within the iteration of the onset."""
    found = []
    for run in runs:
        for fault, word in run.words():
            if fault is None or word is not Word.RIGHT or not fault.counts or fault.stops:
                continue
            verdict = next(v for v in run.outcome.verdicts if fits(fault, v))
            if fault.onset_iteration is None or fault.slowdown is None or fault.spread is None:
                continue
            taken = max(1, verdict.detected_iteration - fault.onset_iteration + 1)
            seconds = taken * run.outcome.facts.iteration_ms / 1e3
            found.append(Delay(run.case, fault, taken, allowed_delay(fault.slowdown, fault.spread), seconds))
    return found


def allowed_delay(slowdown: float, spread: float) -> int:
    """The design's bound on the iterations until a slowdown (1.2 = 20 %) is named."""
    return max(_LEAST_DELAY, math.ceil(100.0 * (spread / math.log(slowdown)) ** 2))


def cost_errors(runs: Sequence[Judged]) -> list[tuple[Case, float, float]]:
    """Case, slowdown told and true slowdown of single slow faults that were found and count."""
    found = []
    for run in runs:
        if len(run.outcome.facts.faults) != 1:
            continue
        for fault, word in run.words():
            if fault is None or word is not Word.RIGHT or not fault.counts or fault.slowdown is None:
                continue
            told = next(v.slowdown for v in run.outcome.verdicts if fits(fault, v))
            if told is not None:
                found.append((run.case, told, fault.slowdown))
    return found


def calibration(runs: Sequence[Judged]) -> list[tuple[float, float, float, Rate]]:
    """By bins of confidence: bounds, mean confidence, and how many loud verdicts were as they may be."""
    said = [
        (verdict.confidence, any(fits(fault, verdict) for fault in run.outcome.facts.faults))
        for run in runs
        for verdict in run.outcome.verdicts
        if verdict.loud
    ]
    rows = []
    for low, high in pairwise(CONFIDENCE_BINS):
        inside = [(c, ok) for c, ok in said if low <= c < high or (high == 1.0 and c == 1.0)]
        if inside:
            mean = sum(c for c, _ in inside) / len(inside)
            rows.append((low, high, mean, rate(ok for _, ok in inside)))
    return rows


def smallest_found(runs: Sequence[Judged]) -> dict[str, tuple[float | None, float | None]]:
    """By fault: the smallest severity on a ladder that was found, the largest counting one that was not."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for run in runs:
        if run.case.rung is None or run.case.severity is None:
            continue
        least, most = found.get(run.case.scenario, (None, None))
        severity = run.case.severity
        if Word.RIGHT in run.judgement.words:
            least = severity if least is None else min(least, severity)
        elif any(fault.counts for fault in run.outcome.facts.faults):
            most = severity if most is None else max(most, severity)
        found[run.case.scenario] = (least, most)
    return found
