# SPDX-License-Identifier: Apache-2.0
"""The result of a campaign as Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import mean, median

from bench.scenarios.data import Campaign
from bench.scenarios.judge import ALLOWED_WORDS
from bench.scenarios.rates import Rate, rate
from bench.scenarios.real import RealRow
from bench.scenarios.results import Result
from bench.scenarios.score import (
    Judged,
    Summary,
    calibration,
    cost_errors,
    delays,
    grouped,
    judged,
    machine_scores,
    smallest_found,
    summarize,
)
from bench.scenarios.sets import SEEDS

_COST_GOAL = 0.1


def markdown(campaign: Campaign) -> str:
    """All tables."""
    runs = judged(campaign.cases, campaign.results)
    parts = [
        _head(campaign, runs),
        _totals(summarize(runs), runs),
        _methods(runs),
        _breakdown("By scenario", grouped(runs, lambda case: case.scenario)),
        _breakdown("By workload", grouped(runs, lambda case: case.workload)),
        _breakdown("By stamps of sent packets", grouped(runs, lambda case: case.tx_stamp)),
        _breakdown("By clocks", grouped(runs, lambda case: case.clocks)),
        _breakdown("By capture", grouped(runs, lambda case: case.capture)),
        _breakdown("By cluster (machines x NICs)", grouped(runs, lambda case: case.cluster)),
        _delay_table(runs),
        _cost_table(runs),
        _calibration_table(runs),
        _severity_table(runs),
        _ablation_table(campaign),
        _real_table(campaign.real),
        _not_allowed(runs),
        _failures([*campaign.results, *campaign.ablation_results]),
    ]
    return "\n".join(part for part in parts if part)


# ---- parts


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _head(campaign: Campaign, runs: Sequence[Judged]) -> str:
    used, other = campaign.seeds, next(name for name in SEEDS if name != campaign.seeds)
    controls = sum(run.outcome.facts.control for run in runs)
    counting = sum(f.counts for run in runs for f in run.outcome.facts.faults)
    number = max(1, len(runs))
    analysis_s = sum(run.outcome.analyse_s for run in runs)
    core_s = sum(run.outcome.simulate_s for run in runs) + analysis_s
    return (
        f"# Scenarios: set {campaign.set_name}\n\n"
        f"{len(runs)} runs: {len(runs) - controls} with faults ({counting} faults count), "
        f"{controls} controls. {used.capitalize()} seeds, from {SEEDS[used]}; {other} seeds, from "
        f"{SEEDS[other]}, have no seed in common with them. {core_s / number:.2f} core seconds per run "
        f"({analysis_s / number:.2f} of them analysis).\n\n"
        "A fault counts when it stops the job, or when the mean iteration from its onset on is longer than "
        "in the same seed without it by at least max(2 %, 3 s / sqrt(n)). In brackets: number of runs or "
        "verdicts and 95 % interval (Wilson).\n"
    )


def _totals(total: Summary, runs: Sequence[Judged]) -> str:
    long_runs = [run for run in runs if run.case.long]
    rows = [
        ("faults that count, with an allowed verdict (recall)", total.recall.text()),
        ("separable faults that count, right machine named", total.named.text()),
        ("machines named that a fault touches (precision)", total.precision.text()),
        ("faults and controls with an allowed answer", total.allowed.text()),
        ("controls in which a machine was named", total.accused.text()),
        ("controls in which anything was said to be wrong", total.alarmed.text()),
        (
            "healthy runs of 200 iterations in which a machine was named",
            rate(run.judgement.accusations.named > 0 for run in long_runs).text(),
        ),
    ]
    words = Counter(str(word) for run in runs for _, word in run.words())
    counted = ", ".join(f"{word} {number}" for word, number in words.most_common())
    return table(("what", "rate"), rows) + f"\nJudgements: {counted}.\n"


def _methods(runs: Sequence[Judged]) -> str:
    rows = [
        (s.method, s.recall.text(), s.precision.text(), s.alone.text(), s.accused.text())
        for s in machine_scores(runs)
    ]
    head = (
        "method",
        "guilty machines named",
        "precision",
        "named and nobody else",
        "controls with an accused",
    )
    return "## By machines alone\n\n" + table(head, rows)


def _breakdown(title: str, groups: dict[str, Summary]) -> str:
    rows = [
        (name, str(s.runs), *(_short(r) for r in (s.recall, s.named, s.precision, s.allowed, s.accused)))
        for name, s in groups.items()
    ]
    head = ("", "runs", "recall", "right machine", "precision", "allowed answer", "controls accused")
    return f"## {title}\n\n" + table(head, rows)


def _short(one: Rate) -> str:
    if not one.of:
        return "-"
    low, high = one.interval
    return f"{one.hits}/{one.of} ({low:.0%}-{high:.0%})"


def _delay_table(runs: Sequence[Judged]) -> str:
    found = delays(runs)
    if not found:
        return ""
    taken = sorted(d.iterations for d in found)
    p99 = taken[min(len(taken) - 1, math.ceil(0.99 * len(taken)) - 1)]
    in_time = rate(d.iterations <= d.allowed for d in found)
    rows = [
        ("within max(3, ceil(100 (s / ln(1+d))^2)) iterations", in_time.text()),
        ("iterations: median, 99th percentile", f"{median(taken):g}, {p99}"),
        ("simulated seconds: median", f"{median(d.seconds for d in found):.3f}"),
    ]
    late = [f"- {d.case.id}: {d.iterations}, allowed {d.allowed}" for d in found if d.iterations > d.allowed]
    return "## Delay of slow faults that were found\n\n" + table(("what", "value"), rows) + _listed(late)


def _cost_table(runs: Sequence[Judged]) -> str:
    found = cost_errors(runs)
    if not found:
        return ""
    added = [(told - 1) / (true - 1) - 1 for _, told, true in found]
    whole = [told / true - 1 for _, told, true in found]
    rows = [
        ("added time within 10 % of the counterfactual's", _near(added).text()),
        ("iteration time within 10 % of the counterfactual's", _near(whole).text()),
        ("error of the added time: median", f"{median(added):+.1%}"),
        ("error of the added time: mean of its size", f"{mean(map(abs, added)):.1%}"),
    ]
    return "## Cost\n\n" + table(("what", "value"), rows)


def _near(errors: Sequence[float]) -> Rate:
    return rate(abs(error) <= _COST_GOAL for error in errors)


def _calibration_table(runs: Sequence[Judged]) -> str:
    rows = [
        (
            f"{low:.2f} to {high:.2f}",
            f"{middle:.3f}",
            right.text(),
            f"{100 * ((right.value or 0.0) - middle):+.1f}",
        )
        for low, high, middle, right in calibration(runs)
    ]
    head = ("confidence", "mean", "verdicts as allowed", "gap in points (goal: 5 at most)")
    return "## Confidence\n\n" + table(head, rows) if rows else ""


def _severity_table(runs: Sequence[Judged]) -> str:
    rows = [
        (name, "-" if least is None else f"{least:.4g}", "-" if most is None else f"{most:.4g}")
        for name, (least, most) in sorted(smallest_found(runs).items())
    ]
    head = ("fault", "smallest severity found", "largest counting one not found")
    return "## Ladder of severities\n\n" + table(head, rows) if rows else ""


def _ablation_table(campaign: Campaign) -> str:
    runs = judged(campaign.ablations, campaign.ablation_results)
    return (
        _breakdown("Ablations, on fixed cases", grouped(runs, lambda c: c.variant or "base")) if runs else ""
    )


def _real_table(rows: Sequence[RealRow]) -> str:
    if not rows:
        return ""
    shown = [(r.name, r.truth, r.said, "right" if r.right else "wrong") for r in rows]
    right = rate(r.right for r in rows)
    return (
        "## Real captures and replayed traces\n\n"
        + right.text()
        + "\n\n"
        + table(("what", "truth", "said", ""), shown)
    )


def _not_allowed(runs: Sequence[Judged]) -> str:
    lines = [
        f"- {word}: {run.case.id} ({'control' if fault is None else fault.name}); said {_said(run)}"
        for run in runs
        for fault, word in run.words()
        if word not in ALLOWED_WORDS and (fault is None or fault.counts or word != "unsure")
    ]
    return "## Answers that are not allowed\n" + _listed(lines) if lines else ""


def _said(run: Judged) -> str:
    loud = [v for v in run.outcome.verdicts if v.loud]
    return "; ".join(f"{v.cause} {v.scope} {v.machine or 'nobody'}" for v in loud) or run.outcome.health


def _failures(results: Sequence[Result]) -> str:
    lines = [f"- {result.case}: {result.failure}" for result in results if result.failure is not None]
    return "## Cases that could not be run\n" + _listed(lines) if lines else ""


def _listed(lines: Sequence[str]) -> str:
    return "\n" + "\n".join(lines) + "\n" if lines else ""
