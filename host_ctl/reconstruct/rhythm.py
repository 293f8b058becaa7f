# SPDX-License-Identifier: Apache-2.0
"""Finds the training iteration in a group's operators.

Balanced cuts lie on a lattice of message counts, and an iteration is the period with which the lengths
of the silences repeat over that lattice: layers, then the optimiser, then layers again. Counting in
messages instead of operators makes the result the same however operators were merged or split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MIN_UNITS = 4
_ON_LATTICE = 0.95
_LATTICE_DENSITY = 0.05
_MAX_LATTICE = 1_000_000
_MAX_PERIOD = 256
_MAX_STEPS = 64
_STRETCHES = 4
_SHORT = 0.02
_FLAT = 0.05
_EXPLAINED = 0.5
_COMPARABLE = 0.5
_FEW_UNITS = 8
_DENSE = 0.9
_A_FEW_TIMES = 2.3  # in the logarithm of the silence


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Repeated units of one group: unit k is the operators ``[first[k], first[k + 1])``.

    ``starts_ns`` and ``ends_ns`` are each unit's first packet and last arrival on the common clock.
    """

    first: NDArray[np.int64]
    starts_ns: NDArray[np.int64]
    ends_ns: NDArray[np.int64]

    @property
    def units(self) -> int:
        """How many repetitions there are."""
        return len(self.starts_ns)

    @property
    def period_ns(self) -> float:
        """Median time from one unit's start to the next."""
        return float(np.median(np.diff(self.starts_ns))) if self.units > 1 else 0.0


def find_rhythm(
    messages: NDArray[np.int64], starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64]
) -> Rhythm | None:
    """The repetition of a group's operators, given their message counts and times; None if there is none."""
    if len(messages) < _MIN_UNITS:
        return None
    cuts = np.cumsum(messages)[:-1]
    silence = np.maximum(starts_ns[1:] - ends_ns[:-1], 1)
    quantum, phase = _quantum(cuts)
    period, offset = _lattice_period(cuts, silence, quantum, phase, int(messages.sum()))
    if period is None:
        bounds = np.arange(len(messages) + 1)
    else:
        on_bound = (cuts - phase) // quantum % period == offset
        on_bound &= (cuts - phase) % quantum == 0
        bounds = np.unique(np.r_[0, np.flatnonzero(on_bound) + 1, len(messages)])
    if len(bounds) - 1 < _MIN_UNITS:
        return None
    first = bounds[:-1]
    return Rhythm(first, starts_ns[first], ends_ns[bounds[1:] - 1])


def _quantum(cuts: NDArray[np.int64]) -> tuple[int, int]:
    """The largest step (and its phase) such that nearly all cuts lie on its lattice."""
    differences = np.unique(np.diff(cuts))
    commonest = differences[:_MAX_STEPS]
    steps = np.unique(np.r_[differences, np.gcd(commonest[:, None], commonest[None, :]).ravel()])
    for step in steps[::-1]:
        phases, hits = np.unique(cuts % step, return_counts=True)
        if hits.max() >= _ON_LATTICE * len(cuts):
            return int(step), int(phases[np.argmax(hits)])
    return 1, 0


def _lattice_period(
    cuts: NDArray[np.int64], silence: NDArray[np.int64], quantum: int, phase: int, total: int
) -> tuple[int | None, int]:
    """The period of the silences over the lattice, and the phase of the longest; None without a lattice.

    A lattice point that is no cut counts as no silence, so that merged operators weaken the pattern
    instead of shifting it.
    """
    on = (cuts - phase) % quantum == 0
    at = (cuts[on] - phase) // quantum
    at -= at[0]
    length = int(at[-1]) + 1
    if length > _MAX_LATTICE or len(at) < _LATTICE_DENSITY * length:
        return None, 0
    signal = np.zeros(length)
    signal[at] = np.log1p(silence[on] / (_SHORT * np.percentile(silence[on], 75)))
    first = int((cuts[on][0] - phase) // quantum)
    explained, best = _periods(signal)
    period = 1
    if best >= _EXPLAINED:
        period = min(p for p, share in explained.items() if share >= 0.9 * best)
        if length // period < _FEW_UNITS and len(at) >= _DENSE * length and _only_pauses(signal, period):
            period = 1
    means = np.array([signal[k::period].mean() for k in range(period)])
    offset = int(np.argmax(means))
    if (total - phase) % quantum == 0:
        # A run that ends after whole iterations tells the phase, if there is a silence of any length there.
        at_end = ((total - phase) // quantum - first) % period
        offset = at_end if means[at_end] >= _COMPARABLE * means.max() else offset
    return period, (offset + first) % period


def _periods(signal: NDArray[np.float64]) -> tuple[dict[int, float], float]:
    """What every period explains of the silences, and what the best does.

    Stretches of the run are compared with themselves as well: a fault that begins in its midst gives the
    iterations other silences, but these go on repeating after as many messages. One beginning spoils one
    stretch of several; in the run as a whole, it makes several iterations look like one.
    """
    periods = range(2, min(_MAX_PERIOD, len(signal) // _MIN_UNITS) + 1)
    explained = {p: max(_explained(signal, p, 1), _explained(signal, p, _STRETCHES)) for p in periods}
    return explained, max(explained.values(), default=0.0)


def _only_pauses(signal: NDArray[np.float64], period: int) -> bool:
    """Whether a period's longest silence is a few times its others: iterations with a pause now and then."""
    means = np.sort([signal[k::period].mean() for k in range(period)])
    return bool(means[-1] - np.median(means[:-1]) < _A_FEW_TIMES)


def _explained(signal: NDArray[np.float64], period: int, stretches: int) -> float:
    """Share of the variance within stretches of a run that a repetition with this period explains (adj. R^2).

    A stretch has as many repetitions as tell a pattern, so that long periods get fewer of them.
    """
    repeats = len(signal) // period
    usable = signal[: repeats * period].reshape(-1, period)
    parts = np.array_split(usable, np.clip(repeats // _MIN_UNITS, 1, stretches))
    total = sum(part.size * float(part.var()) for part in parts) / usable.size
    if total <= _FLAT:
        return 0.0
    within = sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in parts)
    return 1.0 - within / max(1, usable.size - len(parts) * period) / total
