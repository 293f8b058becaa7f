# SPDX-License-Identifier: Apache-2.0
"""Recall against severity, as an SVG: by cost, and along each fault's ladder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from bench.scenarios.judge import Word
from bench.scenarios.rates import Rate, rate
from bench.scenarios.score import Judged

_COSTS = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, float("inf"))


def by_cost(runs: Sequence[Judged]) -> list[tuple[float, float, Rate]]:
    """Share of slow faults with an allowed verdict, by what they cost (0.1 = 10 % longer iterations)."""
    faults = [
        (fault.slowdown - 1.0, word is Word.RIGHT)
        for run in runs
        for fault, word in run.words()
        if fault is not None and fault.slowdown is not None
    ]
    rows = []
    for low, high in pairwise(_COSTS):
        inside = [right for cost, right in faults if low <= max(0.0, cost) < high]
        if inside:
            rows.append((low, high, rate(inside)))
    return rows


def by_rung(runs: Sequence[Judged]) -> dict[str, list[tuple[int, Rate]]]:
    """By fault and rung of the ladder of severities (0 = far below the usual, 4 = strongest)."""
    found: dict[str, dict[int, list[bool]]] = {}
    for run in runs:
        if run.case.rung is not None:
            right = Word.RIGHT in run.judgement.words
            found.setdefault(run.case.scenario, {}).setdefault(run.case.rung, []).append(right)
    return {
        name: [(rung, rate(flags)) for rung, flags in sorted(rungs.items())] for name, rungs in found.items()
    }


def draw(runs: Sequence[Judged], path: Path) -> bool:
    """Draw the figure; False when matplotlib (extra ``bench``) is not there."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return False
    mpl.rcParams["svg.hashsalt"] = "pulse"  # equal results, equal files
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.2))
    rows = by_cost(runs)
    places = range(len(rows))
    shares = [one.value or 0.0 for _, _, one in rows]
    bars = [
        [max(0.0, share - one.interval[0]) for share, (_, _, one) in zip(shares, rows, strict=True)],
        [max(0.0, one.interval[1] - share) for share, (_, _, one) in zip(shares, rows, strict=True)],
    ]
    left.errorbar(places, shares, yerr=bars, fmt="o-", capsize=3)
    labels = [f"{low:.1%}+\nn={one.of}" for low, _, one in rows]
    left.set_xticks(list(places), labels, fontsize=7)
    left.set(ylim=(-0.03, 1.03), xlabel="longer iterations", ylabel="share with an allowed verdict")
    left.set_title("by what the fault costs")
    ladder = by_rung(runs)
    names = sorted(ladder)
    width = 1 + max((rung for steps in ladder.values() for rung, _ in steps), default=0)
    grid = [[dict(_values(ladder[name])).get(rung, float("nan")) for rung in range(width)] for name in names]
    if grid:
        image = right.imshow(grid, vmin=0.0, vmax=1.0, aspect="auto", cmap="viridis")
        figure.colorbar(image, ax=right, label="share with an allowed verdict")
    right.set_xticks(range(width))
    right.set_yticks(range(len(names)), names, fontsize=7)
    right.set(xlabel="rung of the ladder, weak to strong", title="by severity")
    figure.savefig(path, metadata={"Date": None})
    return True


def _values(steps: Sequence[tuple[int, Rate]]) -> list[tuple[int, float]]:
    return [(rung, one.value or 0.0) for rung, one in steps]
