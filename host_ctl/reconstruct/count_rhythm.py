# SPDX-License-Identifier: Apache-2.0
"""Finds the iterations of a group that is never silent, by the pauses of each link, counted in messages.

Where the network is the bottleneck, or computing overlaps with it, somebody always sends, and no instant
separates two iterations for the whole group. But every link still pauses before certain messages of an
iteration, all links of a group before the same ones, since all carry the same messages. So the lengths of
these pauses, by the number of the message, repeat with the iteration.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.groups import Group
from host_ctl.reconstruct.operators import Operator, operator_of, rows_in_order
from host_ctl.reconstruct.rhythm import Rhythm
from host_ctl.reconstruct.transfers import Traffic, send_end, send_start

_MIN_UNITS = 4
_LONGEST = 0.95  # pauses beyond this quantile count as long as it: one of a second must not be all of them
_EXPLAINED = 0.5
_CANDIDATES = 256
_COMPARABLE = 0.5


def count_rhythm(traffic: Traffic, group: Group, index: int) -> tuple[tuple[Operator, ...], Rhythm] | None:
    """Units of equally many messages on every link, each an operator of its own; None if nothing repeats.

    Times of units may overlap. The first and the last may hold fewer messages.
    """
    links, strands = np.array(group.links), np.array(group.strands)
    of_strand = [rows_in_order(traffic, links[strands == s].tolist()) for s in range(group.strand_count)]
    counts = np.array([len(rows) for rows in of_strand])
    most = int(counts.max())
    if counts.min() < _MIN_UNITS:
        return None
    pause = _pauses(traffic, of_strand, int(counts.min()))
    period = _period(pause)
    if period is None:
        return None
    phase = _phase(pause, period, most)
    number = [(np.arange(len(rows)) - phase) // period for rows in of_strand]
    rows, unit = np.concatenate(of_strand), np.concatenate(number)
    whole = group.strand_count * period
    parts = [rows[unit == u] for u in np.unique(unit)]
    operators = [operator_of(traffic, index, part, complete=len(part) == whole) for part in parts]
    if len(operators) < _MIN_UNITS:
        return None
    starts = np.array([o.start_ns for o in operators])
    ends = np.array([o.end_ns for o in operators])
    return tuple(operators), Rhythm(np.arange(len(operators)), starts, ends)


def _pauses(traffic: Traffic, of_strand: list[NDArray[np.int64]], length: int) -> NDArray[np.float64]:
    """How long links pause before their k-th message, k from 1 on (ns).

    The low quartile over the links: a link that waits for another one pauses wherever the other is slow, and
    one that is slow itself hardly ever.
    """
    idle = np.empty((len(of_strand), length - 1))
    for number, rows in enumerate(of_strand):
        t = traffic.transfers[rows[:length]]
        idle[number] = np.maximum(send_start(t)[1:] - np.maximum.accumulate(send_end(t))[:-1], 0)
    pause = np.quantile(idle, 0.25, axis=0)
    return np.asarray(pause)


def _period(pause: NDArray[np.float64]) -> int | None:
    """The messages of an iteration: first what repeats most plainly, then what repeats of that.

    Every collective begins with a pause, so that these repeat most plainly; the iteration is the period with
    which the pauses before collectives repeat.
    """
    period, signal = 1, np.asarray(pause)
    while (found := _plainest(np.minimum(signal, np.quantile(signal, _LONGEST)))) is not None:
        period *= found
        signal = signal[_longest_phase(signal, found) :: found]
    return period if period > 1 else None


def _plainest(signal: NDArray[np.float64]) -> int | None:
    """The period that describes a signal best (Bayesian information criterion), None if none explains it."""
    n = len(signal)
    if n < 2 * _MIN_UNITS or not signal.var():
        return None
    best, chosen = 0.0, None
    for p in _candidates(signal):
        repeats = n // p
        part = signal[: repeats * p].reshape(repeats, p)
        total, within = float(part.var()) * part.size, float(part.var(axis=0).sum()) * repeats
        explained = 1.0 - within / max(1, part.size - p) / max(total / part.size, 1e-9)
        score = part.size * log(max(within, 1e-9) / max(total, 1e-9)) + p * log(part.size)
        if explained >= _EXPLAINED and score < best:
            best, chosen = score, p
    return chosen


def _candidates(signal: NDArray[np.float64]) -> list[int]:
    """The lags at which a signal is most like itself, at most a quarter of it."""
    n = len(signal)
    centred = signal - signal.mean()
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    alike = np.fft.irfft(power)[:n] / np.arange(n, 0, -1)
    lags = np.arange(2, n // _MIN_UNITS + 1)
    return sorted(lags[np.argsort(-alike[lags])][:_CANDIDATES].tolist())


def _longest_phase(signal: NDArray[np.float64], period: int) -> int:
    return int(np.argmax([signal[k::period].mean() for k in range(period)]))


def _phase(pause: NDArray[np.float64], period: int, messages: int) -> int:
    """The number of messages before the first boundary, that of the longest pause.

    A run that ends after whole iterations tells it as well, if there is a pause of any length there.
    """
    means = np.array([pause[k::period].mean() for k in range(period)])
    longest, at_end = int(np.argmax(means)), (messages - 1) % period
    chosen = at_end if means[at_end] >= _COMPARABLE * means.max() else longest
    return (chosen + 1) % period
