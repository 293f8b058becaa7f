# SPDX-License-Identifier: Apache-2.0
"""Figures of one or of many scored runs, and the goals that they are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.fidelity.cases import CaseScore, GroupScore
from bench.fidelity.score import cost_error, share
from host_ctl.attribute.states import WaitState

Figure = float | None
_NEAR = 0.1  # how far a stated cost may be off


def _groups(cases: Sequence[CaseScore]) -> list[GroupScore]:
    return [group for case in cases for group in case.groups]


def _all_confusion(cases: Sequence[CaseScore]) -> NDArray[np.float64]:
    return np.asarray(sum((case.confusion for case in cases), start=np.zeros((len(WaitState),) * 2)))


def right_share(cases: Sequence[CaseScore]) -> Figure:
    """Share of edge time in the right state; every run counts alike, however long."""
    shares = [share(float(np.trace(c.confusion)), float(c.confusion.sum())) for c in cases]
    known = [s for s in shares if s is not None]
    return float(np.mean(known)) if known else None


def least_right(cases: Sequence[CaseScore]) -> Figure:
    """Share of edge time in the right state in the run where it is least."""
    shares = [right_share([case]) for case in cases]
    return min((s for s in shares if s is not None), default=None)


def right_while_busy(cases: Sequence[CaseScore]) -> Figure:
    """As right_share, but of the time before an edge has moved all of an operator."""
    busy = [np.delete(c.confusion, WaitState.COMPLETE, axis=0) for c in cases]
    right = [np.trace(c.confusion) - c.confusion[WaitState.COMPLETE, WaitState.COMPLETE] for c in cases]
    known = [share(float(a), float(b.sum())) for a, b in zip(right, busy, strict=True) if b.sum()]
    return float(np.mean([k for k in known if k is not None])) if known else None


def unknown_share(cases: Sequence[CaseScore]) -> Figure:
    """Share of edge time about which the analysis says nothing."""
    confusion = _all_confusion(cases)
    return share(float(confusion[:, WaitState.UNKNOWN].sum()), float(confusion.sum()))


def group_share(quality: Callable[[GroupScore], bool], cases: Sequence[CaseScore]) -> Figure:
    """Share of true groups that have a quality; groups too many count as true ones without it."""
    groups = _groups(cases)
    whole = len(groups) + sum(case.extra for case in cases)
    return share(sum(map(quality, groups)), whole)


membership = partial(group_share, lambda g: g.exact)
algorithms = partial(group_share, lambda g: g.algorithm)
kinds = partial(group_share, lambda g: g.kind)


dimensions = partial(group_share, lambda g: g.dimension)


def stages_right(cases: Sequence[CaseScore]) -> Figure:
    """Share of the pipelines whose stages are in the right order."""
    pipelines = [g for g in _groups(cases) if g.true.stages]
    return share(sum(g.stages for g in pipelines), len(pipelines))


def visible_found(cases: Sequence[CaseScore]) -> Figure:
    """Share of the silences between operators at which the analysis has a cut."""
    cuts = [g.cuts for g in _groups(cases) if g.cuts is not None]
    return share(sum(c.found for c in cuts), sum(c.visible for c in cuts))


def false_cuts(cases: Sequence[CaseScore]) -> Figure:
    """Cuts of the analysis that lie inside of true operators, as a share of all its cuts."""
    cuts = [g.cuts for g in _groups(cases) if g.cuts is not None]
    false = sum(c.false for c in cuts)
    return share(false, false + sum(c.found for c in cuts))


def cut_errors_us(cases: Sequence[CaseScore], end: str, quantile: float) -> Figure:
    """A quantile of the errors of operators' begins or ends (us)."""
    errors = [getattr(g.cuts, f"{end}_error_ns") for g in _groups(cases) if g.cuts is not None]
    joined = np.concatenate(errors) if errors else np.empty(0)
    return float(np.quantile(joined, quantile)) / 1e3 if len(joined) else None


def timeline_error(cases: Sequence[CaseScore], quantile: float = 0.99) -> Figure:
    """A quantile of the errors of operators' begins and ends, as a share of the iteration."""
    errors = [
        np.concatenate([g.cuts.begin_error_ns, g.cuts.end_error_ns]) / g.iteration_ns
        for g in _groups(cases)
        if g.cuts is not None and g.iteration_ns
    ]
    joined = np.concatenate(errors) if errors else np.empty(0)
    return float(np.quantile(joined, quantile)) if len(joined) else None


def iterations_right(cases: Sequence[CaseScore]) -> Figure:
    """Share of jobs whose true iterations were all found, and no others."""
    counts = [count for case in cases for count in case.iterations]
    return share(sum(true == found for true, found in counts), len(counts))


def length_error(cases: Sequence[CaseScore], quantile: float = 0.99) -> Figure:
    """A quantile of the errors of iterations' lengths, as shares."""
    errors = [e for case in cases for e in case.length_errors]
    return float(np.quantile(errors, quantile)) if errors else None


def boundary_error(cases: Sequence[CaseScore], quantile: float = 0.99) -> Figure:
    """A quantile of the errors of where iterations begin, as shares of an iteration."""
    errors = [e for case in cases for e in case.boundary_errors]
    return float(np.quantile(errors, quantile)) if errors else None


def costs_near(cases: Sequence[CaseScore]) -> Figure:
    """Share of the jobs that a fault slowed for which the stated cost is near the counterfactual one."""
    costs = [cost for case in cases for cost in case.costs]
    return share(sum(cost_error(*cost) <= _NEAR for cost in costs), len(costs))


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure and what it must reach, None if it is only told; ``steered`` where that has a goal itself."""

    name: str
    figure: Callable[[Sequence[CaseScore]], Figure]
    limit: float | None
    at_least: bool
    steered: float | None = None

    def reached(self, value: Figure, mode: str) -> bool | None:
        """Whether a value reaches the goal; None without a value or a goal."""
        limit = self.limit_in(mode)
        if value is None or limit is None:
            return None
        return value >= limit if self.at_least else value <= limit

    def limit_in(self, mode: str) -> float | None:
        """The limit in a mode of capture."""
        return self.steered if self.steered is not None and mode == "steered" else self.limit


GOALS = (
    Goal("edge time in the right state", right_share, 0.95, True, steered=0.9),
    Goal("the same, of edges not yet done", right_while_busy, None, True),
    Goal("the same, worst run", least_right, 0.95, True, steered=0.9),
    Goal("edge time unknown", unknown_share, 0.02, False),
    Goal("group membership exact", membership, 1.0, True),
    Goal("algorithm right", algorithms, 1.0, True),
    Goal("kinds right", kinds, 1.0, True),
    Goal("dimensions right", dimensions, 1.0, True),
    Goal("order of stages right", stages_right, 1.0, True),
    Goal("visible operator boundaries found", visible_found, None, True),
    Goal("cuts inside of operators", false_cuts, None, False),
    Goal("operator begin and end, p99, of the iteration", timeline_error, 0.001, False),
    Goal("iteration counts right", iterations_right, 1.0, True),
    Goal("iteration length, p99", length_error, 0.001, False),
    Goal("iteration begin, p99, of the iteration", boundary_error, 0.001, False),
    Goal("costs within 10 %", costs_near, 1.0, True),
)
