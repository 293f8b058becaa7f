# SPDX-License-Identifier: Apache-2.0
"""Decides whether one member of a group differs from the others, and since when.

Medians and ranks, because healthy training is noisy with heavy tails: single late steps are common (in a
real imbalanced trace 32 of 43 steps have some worker above 1.3 times its peers), the same worker late in
most steps is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import erfc, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

_MIN_RUN = 3
_TELLING = 0.5  # of a member's own noise: who loses nothing at all tells little of noise
_MIN_PAST = 6  # iterations that tell how much a member varies
_ENOUGH = 24  # samples that tell the spread of healthy iterations
_FALSE_ALARM = 1e-5  # per member and feature, before the effect and rank conditions
_SIGMA_OF_MAD = 1.4826
_SIGMA_OF_P95 = 1.96
_MEDIAN_EFFICIENCY = 1.2533
_FALSE_COUNT = 1e-4
FROM_START = 3.75  # times the least effect of a change
_PERSISTENT = 0.7
_MOSTLY_WORST = 0.6
_TIED = 0.9  # both ends of a slow edge lose by its messages, and which of them loses more is chance


@dataclass(frozen=True, slots=True)
class Shift:
    """A lasting excess of one member: iterations [onset, end), in ns per iteration.

    ``usual_ns`` is what the others lose meanwhile, ``share_worst`` the share of iterations in which it was
    the worst of all, ``p_value`` the chance of such a shift from noise alone.
    """

    member: int
    onset: int
    end: int
    excess_ns: float
    value_ns: float
    usual_ns: float
    share_worst: float
    p_value: float
    detected: int
    over_past: float
    past: int
    lasts: bool


@dataclass(frozen=True, slots=True)
class _Table:
    """What every member lost per iteration, and how much more than the median of the others (ns)."""

    lost: NDArray[np.float64]
    relative: NDArray[np.float64]


def find_shifts(
    lost: NDArray[np.float64],
    *,
    least_ns: float,
    usable: NDArray[np.bool_],
    from_start: float = FROM_START,
    together: bool = False,
) -> list[Shift]:
    """Members of ``lost`` (iterations x members, ns) with a lasting excess of at least ``least_ns``.

    ``usable`` marks the iterations to look at. A shift without a before must be ``from_start`` times as
    large.
    ``together``: several members may shift at once, as those do whose messages share a slow path; then each
    must be worse than all that did not shift.
    """
    rows = np.flatnonzero(usable)
    if len(rows) < 2 * _MIN_RUN or lost.shape[1] < 2:
        return []
    table = _Table(lost[rows], _relative(lost[rows]))
    members = np.flatnonzero((table.lost >= least_ns).sum(axis=0) >= _MIN_RUN).tolist()
    least = {
        m: {True: _least_from_start(table.lost, m, least_ns, from_start), False: least_ns} for m in members
    }
    alike = np.zeros(lost.shape[1], dtype=bool)
    if together:
        every = np.ones(lost.shape[1], dtype=bool)
        alike[[m for m in members if _shift(table, m, every, least[m], 1.0) is not None]] = True
        alike &= bool(2 * alike.sum() <= lost.shape[1])
    tied = _TIED if together else 1.0
    shifts = [_shift(table, m, alike, least[m], tied) for m in members]
    return sorted((_in_iterations(s, rows) for s in shifts if s is not None), key=lambda s: -s.excess_ns)


def _in_iterations(shift: Shift, rows: NDArray[np.int64]) -> Shift:
    """The shift with its times given in the usable iterations ``rows`` as iterations of the job."""
    return replace(
        shift,
        onset=int(rows[shift.onset]),
        end=int(rows[shift.end - 1]) + 1,
        detected=int(rows[min(shift.detected, len(rows) - 1)]),
    )


def _shift(
    table: _Table, member: int, alike: NDArray[np.bool_], least: dict[bool, float], tied: float
) -> Shift | None:
    series = table.relative[:, member]
    whole = (0, len(series))
    for segment in _segments(series):
        found = _shift_of(table, member, segment, alike, least, tied)
        if found is None:
            continue
        outside = np.delete(series, np.arange(*segment))
        if len(outside) and np.median(outside) > found.excess_ns:
            # It was slow before as well, and by more than this: a rise of what has been there all along.
            return _shift_of(table, member, whole, alike, least, tied) or found
        return found
    return None


def _shift_of(
    table: _Table,
    member: int,
    segment: tuple[int, int],
    alike: NDArray[np.bool_],
    least: dict[bool, float],
    tied: float,
) -> Shift | None:
    """The shift of one segment if it is large, lasting and sure.

    ``alike``: members that need not be worse than each other; ``least`` by whether there is no before;
    ``tied``: the share of another's loss from which a loss counts as large as it.
    """
    others, own = np.delete(table.lost, member, axis=1), table.lost[:, member]
    series = table.relative[:, member]
    n = len(series)
    onset, end = segment
    inside = np.zeros(n, dtype=bool)
    inside[onset:end] = True
    before, after = series[~inside], series[inside]
    from_start = len(before) < _MIN_RUN
    # The end of a run may begin anywhere, a stretch in its middle also end anywhere.
    tried = n if from_start or end == n else n * n // 2
    level = 0.0 if from_start else float(np.median(before))
    excess = float(np.median(after)) - max(level, 0.0)
    rest = others[inside][:, ~np.delete(alike, member)]
    worst = float(np.mean(own[inside] >= tied * rest.max(axis=1))) if rest.shape[1] else 1.0
    lasting = np.mean(after - level > excess / 3) >= _PERSISTENT
    if excess < least[from_start] or not lasting or worst < _MOSTLY_WORST:
        return None
    healthy = _healthy(table, member, inside)
    noise, own_noise = float(np.quantile(np.abs(healthy), 0.95)) / _SIGMA_OF_P95, _own_noise(before, after)
    noise = own_noise if noise < _TELLING * own_noise else noise
    past = 0 if from_start else len(before)
    p_value = _p_value(excess, noise, len(after), past, tried)
    if not alike.any():
        p_value = min(p_value, _p_of_rank(table.lost, member, inside, tried))
    if p_value > _FALSE_ALARM or _p_of_count(after - level, healthy, excess, tried) > _FALSE_COUNT:
        return None
    return Shift(
        member=member,
        onset=onset,
        end=end,
        excess_ns=excess,
        value_ns=float(np.median(own[inside])),
        usual_ns=float(np.median(others[inside])),
        share_worst=worst,
        p_value=p_value,
        detected=onset + _first_sure(after - level, noise, past, tried),
        over_past=float(np.mean(own[inside][:, None] > own[~inside][None, :])) if past else 0.0,
        past=past,
        lasts=end == n,
    )


def _own_noise(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """How much a member itself varies: where nothing is wrong if there is enough of that, else anywhere.

    Most members lose nothing at all as a rule, which says little about those that do.
    """
    part = before if len(before) >= _MIN_PAST else after
    return _SIGMA_OF_MAD * float(np.median(np.abs(part - np.median(part))))


def _least_from_start(table: NDArray[np.float64], member: int, least_ns: float, times: float) -> float:
    """What counts when there is no before: healthy machines differ for good, by 1 to 2 % as a rule.

    The members' own usual losses tell by how much these do; a fault must stand out five times as far.
    """
    usual = np.median(np.delete(table, member, axis=1), axis=0)
    spread = _SIGMA_OF_MAD * float(np.median(np.abs(usual - np.median(usual)))) if len(usual) > 2 else 0.0
    return max(times * least_ns, 5.0 * spread)


def _relative(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each member lost more than the median of the others."""
    return np.stack(
        [table[:, m] - np.median(np.delete(table, m, axis=1), axis=1) for m in range(table.shape[1])], axis=1
    )


def _healthy(table: _Table, member: int, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Deviations of healthy iterations: of everybody outside the shift, else of the others inside.

    One fault shows at several members (both ends of a slow edge), so that what the others do meanwhile
    says little about noise while there is a before.
    """
    outside = ~inside
    enough = outside.sum() * table.lost.shape[1] >= _ENOUGH and outside.sum() >= _MIN_RUN
    quiet = table.relative[outside] if enough else np.delete(table.relative, member, axis=1)
    return np.asarray((quiet - np.median(quiet, axis=0)).ravel())


def _segments(relative: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Where a lasting excess may lie, the likeliest first: the whole run, its end, or a stretch of it."""
    n = len(relative)
    spread = _SIGMA_OF_MAD * float(np.median(np.abs(relative - np.median(relative))))
    clipped = np.clip(relative, np.median(relative) - 4 * spread, np.quantile(relative, 0.95) + spread)
    total = np.r_[0.0, np.cumsum(clipped)]
    scored = [(_misfit(clipped, 0, n, 1), (0, n))]
    onsets = np.arange(_MIN_RUN, n - _MIN_RUN + 1)
    if len(onsets):
        mean_after = (total[n] - total[onsets]) / (n - onsets)
        mean_before = total[onsets] / onsets
        gain = (mean_after - mean_before) * np.sqrt(onsets * (n - onsets) / n)
        candidates = [(int(onsets[np.argmax(gain)]), n), *_best_stretch(total, n)]
        for number, (a, b) in enumerate(candidates):
            scored.append((_misfit(clipped, a, b, 3 + number), (a, b)))
    return [segment for _, segment in sorted(scored)]


def _misfit(series: NDArray[np.float64], onset: int, end: int, parameters: int) -> float:
    """Bayesian information criterion of two levels, inside and outside of a segment."""
    n = len(series)
    inside = np.zeros(n, dtype=bool)
    inside[onset:end] = True
    error = sum(float(((p - p.mean()) ** 2).sum()) for p in (series[inside], series[~inside]) if len(p))
    return n * log(max(error, 1.0) / n) + parameters * log(n)


def _best_stretch(total: NDArray[np.float64], n: int) -> list[tuple[int, int]]:
    """The stretch [a, b) that stands out most from the rest of the run."""
    step = max(1, n // 400)
    edges = np.arange(0, n + 1, step)
    a, b = np.meshgrid(edges, edges, indexing="ij")
    length = b - a
    valid = (length >= _MIN_RUN) & (n - length >= _MIN_RUN)
    inside = np.where(valid, (total[b] - total[a]) / np.maximum(length, 1), 0.0)
    outside = np.where(valid, (total[n] - total[b] + total[a]) / np.maximum(n - length, 1), 0.0)
    gain = np.where(valid, (inside - outside) * np.sqrt(np.maximum(length * (n - length), 0) / n), -np.inf)
    at = np.unravel_index(int(np.argmax(gain)), gain.shape)
    return [(int(edges[at[0]]), int(edges[at[1]]))] if np.isfinite(gain[at]) else []


def _p_of_count(after: NDArray[np.float64], healthy: NDArray[np.float64], excess: float, tried: int) -> float:
    """Chance that so many iterations exceed half the shift, given how often healthy ones do.

    This is what keeps a few long pauses from counting as a lasting shift, whatever their size. How often is
    estimated with Jeffreys' prior, since few or none do.
    """
    rate = (np.sum(healthy > excess / 2) + 0.5) / (len(healthy) + 1.0)
    return min(1.0, tried * float(binom.sf(np.sum(after > excess / 2) - 1, len(after), rate)))


def _p_of_rank(lost: NDArray[np.float64], member: int, inside: NDArray[np.bool_], tried: int) -> float:
    """Chance to lose most of all so often, if everybody were the one equally often, or as often as before.

    Medians of few peers that vary widely tell little; who is last again and again tells.
    """
    last = (np.argmax(lost, axis=1) == member) & (lost[:, member] > 0)
    before = float(np.mean(last[~inside])) if (~inside).sum() >= _MIN_PAST else 0.0
    rate = max(1.0 / lost.shape[1], before)
    return min(1.0, tried * float(binom.sf(int(last[inside].sum()) - 1, int(inside.sum()), rate)))


def _p_value(excess: float, noise: float, after: int, before: int, tried: int) -> float:
    """Chance that noise alone lifts a median of ``after`` iterations so far, in any of the segments tried."""
    size = 1.0 / after + (1.0 / before if before else 0.0)
    z = excess / (_MEDIAN_EFFICIENCY * max(noise, 1.0) * sqrt(size))
    return min(1.0, tried * 0.5 * erfc(z / sqrt(2.0)))


def _first_sure(after: NDArray[np.float64], noise: float, before: int, tried: int) -> int:
    """How many iterations after the onset the same decision was already possible."""
    for seen in range(_MIN_RUN, len(after) + 1):
        if _p_value(float(np.median(after[:seen])), noise, seen, before, tried) <= _FALSE_ALARM:
            return seen - 1
    return len(after) - 1
