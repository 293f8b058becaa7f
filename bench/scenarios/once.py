# SPDX-License-Identifier: Apache-2.0
"""Every scenario of the catalogue once, on the default cluster: what may be said, what was said, is it so?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bench.scenarios.cases import Case
from bench.scenarios.judge import judge_outcome
from bench.scenarios.outcome import FaultFacts, Outcome
from bench.scenarios.work import run_case
from sim.scenarios.catalogue import CATALOGUE, entries_named
from sim.scenarios.presets import DEFAULT_CLUSTER, DEFAULT_WORKLOAD


@dataclass(frozen=True, slots=True)
class OnceRow:
    """One run and the judgement on it, a word per fault."""

    scenario: str
    allowed: str
    slowdown: str
    said: str
    judged: str


def report_once(seed: int, scenarios: list[str], capture: str, *, as_json: bool) -> int:
    """Print a row per scenario as soon as it is known; 0 = done."""
    rows = []
    for row in once_rows(seed, scenarios or list(CATALOGUE), capture):
        rows.append(row)
        if not as_json:
            print(" | ".join(asdict(row).values()), flush=True)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def once_rows(seed: int, scenarios: list[str], capture: str) -> Iterator[OnceRow]:
    """Run scenarios with the workload that suits each best."""
    for name in scenarios:
        needed = [entry.workloads[0] for entry in entries_named(name) if entry.workloads]
        workload = needed[0] if needed else DEFAULT_WORKLOAD
        size = DEFAULT_CLUSTER.machines, DEFAULT_CLUSTER.nics_per_machine
        outcome = run_case(Case(name, workload, *size, seed, capture=capture), ())
        judged = judge_outcome(outcome.facts, outcome.verdicts, outcome.health)
        faults = outcome.facts.faults
        yield OnceRow(
            name,
            "; ".join(map(_allowed, faults)) or "nothing",
            ", ".join("-" if fault.slowdown is None else f"{fault.slowdown:.2f}" for fault in faults),
            _said(outcome),
            ", ".join(judged.words),
        )


def _allowed(fault: FaultFacts) -> str:
    who = fault.machine or "no machine"
    severities = "/".join("nothing" if severity == "none" else severity for severity in fault.severities)
    return f"{severities} {'/'.join(fault.causes)} {who}"


def _said(outcome: Outcome) -> str:
    texts = [
        f"{v.severity} {v.cause} {v.machine or ' or '.join(v.candidates) or 'no machine'}"
        for v in outcome.verdicts
    ]
    return "; ".join(texts) or outcome.health
