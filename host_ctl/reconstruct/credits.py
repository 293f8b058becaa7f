# SPDX-License-Identifier: Apache-2.0
"""Finds the flow that grants the credits of each data flow, and the credit that each message used.

Most stacks write credits on the data's own connection, against the data. Some take a connection of its own
(another traffic class needs one): it carries small writes alone, and they keep step with the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.pairing import FlowKey, View

Pair = tuple[View | None, View | None]
Views = Mapping[FlowKey, Pair]

_FEWEST = 8
_LEAST_PER_CREDIT = 0.8
_MOST_PER_CREDIT = 2.5  # on a connection of its own: fewer might be a barrier before each operator
_IN_STEP = 0.25  # of all credits: how far ahead of the data, at most, beside what the window allows
_WINDOW = 64  # messages that a receiver may grant ahead, at most
_SOME_DRIFT = 4.0
_UNEVEN = 0.2
_MOST_SETS = 100
_MISFIT = 1e9


def find_granting(views: Views, reverse: Mapping[FlowKey, FlowKey]) -> dict[FlowKey, FlowKey]:
    """The flow that grants each data flow's credits, for those that are granted any."""
    granting: dict[FlowKey, FlowKey] = {}
    for key, pair in views.items():
        other = reverse.get(key)
        if _has(pair, "bulk") and other is not None and _has(views[other], "small"):
            granting[key] = other
    apart = [k for k in views if _only_grants(k, views, reverse)]
    data = [k for k in views if _has(views[k], "bulk") and k not in granting]
    for src, dst in sorted({(k[0], k[1]) for k in data}):
        mine = [k for k in data if k[:2] == (src, dst)]
        options = [k for k in apart if k[:2] == (dst, src)]
        if options:
            granting.update(_in_step(mine, options, views))
    return granting


def runs_beside_data(key: FlowKey, views: Views, reverse: Mapping[FlowKey, FlowKey]) -> bool:
    """Whether a flow runs against data: of its connection, else of any connection of the pair."""
    other = reverse.get(key)
    if other is not None:
        return _has(views[other], "bulk")
    return any(k[0] == key[1] and k[1] == key[0] and _has(pair, "bulk") for k, pair in views.items())


def _has(pair: Pair, what: str) -> bool:
    return any(view is not None and len(getattr(view, what)) > 0 for view in pair)


def _only_grants(key: FlowKey, views: Views, reverse: Mapping[FlowKey, FlowKey]) -> bool:
    """Whether a flow carries small writes alone, on a connection that carries no data either way."""
    other = reverse.get(key)
    back = other is not None and (_has(views[other], "bulk") or _has(views[other], "small"))
    return _has(views[key], "small") and not _has(views[key], "bulk") and not back


def _in_step(data: list[FlowKey], options: list[FlowKey], views: Views) -> dict[FlowKey, FlowKey]:
    """Which of some flows of small writes grants which data flows, as far as they keep step.

    Where there are fewer of them than data flows a connection has several queue pairs, numbered in a row
    most likely: its messages are split over these, so that a credit is for a part on each, or take turns.
    Then the first stands for all.
    """
    bundle = max(1, len(data) // len(options))
    data = sorted(data)
    in_a_row = [tuple(data[i : i + bundle]) for i in range(0, len(data) - bundle + 1, bundle)]
    sets = in_a_row + [s for s in combinations(data, bundle) if s not in in_a_row][:_MOST_SETS]
    fits = sorted(
        (s >= len(in_a_row), cost, s, g, split)
        for s, links in enumerate(sets)
        for g, option in enumerate(options)
        for cost, split in _misfits([views[k] for k in links], views[option])
        if cost < _MISFIT
    )
    granting: dict[FlowKey, FlowKey] = {}
    done: set[FlowKey] = set()
    for _, _, s, g, split in fits:
        if options[g] in done or not done.isdisjoint(sets[s]):
            continue
        done.update(sets[s], (options[g],))
        granting.update(dict.fromkeys(sets[s] if split else sets[s][:1], options[g]))
    return granting


def _misfits(data: Sequence[Pair], small: Pair) -> list[tuple[float, bool]]:
    """How badly small writes keep step with data flows: with each of them, and with them taking turns."""
    apart = [_misfit([one], small) for one in data]
    return [(max(apart), True)] + ([(_misfit(data, small), False)] if len(data) > 1 else [])


def _misfit(data: Sequence[Pair], small: Pair) -> float:
    """How far small writes run ahead of messages, and fall behind, at the most, seen at one NIC's clock.

    Credits are granted a window ahead and used up; what else is small keeps no step with the data.
    """
    for side, other in ((0, 1), (1, 0)):
        mine, back = [one[side] for one in data], small[other]
        if back is None or any(view is None for view in mine):
            continue
        sent = np.sort(np.concatenate([view.bulk["start"] for view in mine if view is not None]))
        known = np.sort(back.small["start"])
        if min(len(sent), len(known)) < _FEWEST:
            return _MISFIT
        at_send = np.searchsorted(known, sent, side="right")
        ratio = len(sent) / (1 + int(at_send[-1] - at_send[0]))
        ahead = at_send - np.arange(len(sent)) / ratio
        spread = float(ahead.max() - ahead.min())
        in_step = spread <= min(_WINDOW, max(_FEWEST, _IN_STEP * len(known)))
        return spread if in_step and _LEAST_PER_CREDIT <= ratio <= _MOST_PER_CREDIT else _MISFIT
    return _MISFIT


def match_credits(
    start: NDArray[np.int64], end: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """The number of the credit that each message used, which may lie before those seen; None if no rule fits.

    ``start`` and ``end`` are the messages' times (ns) in order, ``known`` is when their sender knew of each
    credit, sorted. The k-th message uses the k-th credit, or every m-th message one credit when a credit
    covers m messages. A capture that begins in mid-job has missed some credits: causality (no message before
    its credit) tells how many. Where a receiver grants up to m messages at once, but fewer at an operator's
    end, the count begins anew after each pause.
    """
    ratio = len(start) / len(known)
    per_credit = max(1, round(ratio))
    # Credits are granted ahead, never taken back: at each send, how many had been granted?
    at_send = np.searchsorted(known, start, side="right")
    needed = np.arange(len(start)) // per_credit
    if ratio > 1 and _drifts(at_send - 1 - needed):
        return _anew_after_pauses(start, end, known)
    shift = min(0, int((at_send - 1 - needed).min()))
    slots_ahead = len(known) - (len(start) + per_credit - 1) // per_credit - shift
    if abs(ratio - per_credit) > _UNEVEN and slots_ahead > max(_WINDOW, len(known) // 4):
        return None
    return needed + shift


def _drifts(spare: NDArray[np.int64]) -> bool:
    """Whether credits get fewer or more, message for message, all the time: the rule does not fit."""
    if len(spare) < 2 * _FEWEST:
        return False
    order = np.arange(len(spare))
    slope, begin = np.polyfit(order, spare, 1)
    rest = spare - (begin + slope * order)
    return bool(abs(slope) * len(spare) > max(_SOME_DRIFT, float(rest.max() - rest.min())))


def _anew_after_pauses(
    start: NDArray[np.int64], end: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The credit of each message, counted anew where a pause ends with a credit.

    A receiver that enters the next operator has taken in all of the last, so that its first credit comes
    after that. Within an operator credits are spread evenly over the messages, none used before it came.
    """
    finished = np.maximum.accumulate(end)[:-1]
    pause = start[1:] - finished
    first = np.searchsorted(known, finished, side="right")
    granted_in_pause = np.searchsorted(known, start[1:], side="right") > first
    begins = np.flatnonzero((pause > np.median(end - start)) & granted_in_pause) + 1
    index = np.empty(len(start), dtype=np.int64)
    bounds = np.r_[0, begins, len(start)]
    credit = np.r_[0, first[begins - 1], len(known)]
    for a, b, low, high in zip(bounds[:-1], bounds[1:], credit[:-1], credit[1:], strict=True):
        index[a:b] = low + np.arange(b - a) * (high - low) // max(1, b - a)
    return np.minimum(index, np.searchsorted(known, start, side="right") - 1)
