# SPDX-License-Identifier: Apache-2.0
"""Cuts the traffic of a group into operators.

A cut lies where the group is *balanced*: at a silence at which all its links have moved equally many
messages since the capture began. Silence alone would be wrong, because a late rank silences its group
inside an operator; volume alone would need the operator's size. Equal back-to-back operators without a
silence between them stay together as one burst, which later stages must not mind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from host_ctl.ingest.series import Table
from host_ctl.reconstruct.groups import Group
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start

_EQUAL_COUNTS = 0.15
_SHORT_SILENCE = 0.1
_MIN_EVEN = 3
_LONG_PAUSE = 0.25
_OFTEN = 0.3
_CLEAR_GAP = 3.0
_NEARLY_EVERY = 0.9  # a share may be empty once
_MAX_CANDIDATES = 20_000


@dataclass(frozen=True, slots=True)
class Operator:
    """One collective, or a burst of them, of one group.

    ``rows`` index the group's transfers in :class:`Traffic`; times are ns on the common clock, from the
    first packet sent to the last one arrived; ``complete`` is False when the group was cut unbalanced,
    which only the last operator of a capture can be.
    """

    group: int
    rows: NDArray[np.int64]
    start_ns: int
    end_ns: int
    messages: int
    bytes: int
    complete: bool


def cut_operators(traffic: Traffic, group: Group, index: int) -> tuple[Operator, ...]:
    """Cut one group's transfers into operators, in order of time."""
    rows = rows_in_order(traffic, group.links)
    t = traffic.transfers[rows]
    start = send_start(t)
    busy_until = np.maximum.accumulate(arrival(t))
    links = np.searchsorted(np.array(group.links), t["link"])
    cuts = _balanced_cuts(start, busy_until, links, len(group.links))
    edges = [0, *(int(c) for c in cuts), len(rows)]
    operators = []
    for a, b in pairwise(edges):
        if a == b:
            continue
        operators.append(operator_of(traffic, index, rows[a:b], complete=True))
    return _mark_incomplete(operators, links, len(group.links))


def operator_of(traffic: Traffic, group: int, rows: NDArray[np.int64], *, complete: bool) -> Operator:
    """The operator that some transfers of a group make up."""
    t = traffic.transfers[rows]
    order = np.argsort(send_start(t), kind="stable")
    return Operator(
        group=group,
        rows=rows[order],
        start_ns=int(send_start(t).min()),
        end_ns=int(arrival(t).max()),
        messages=len(rows),
        bytes=int(t["bytes"].sum()),
        complete=complete,
    )


def rows_in_order(traffic: Traffic, links: Sequence[int]) -> NDArray[np.int64]:
    """The rows of some links' transfers, in order of their start."""
    rows = np.flatnonzero(np.isin(traffic.transfers["link"], links))
    return rows[np.argsort(send_start(traffic.transfers[rows]), kind="stable")]


def _balanced_cuts(
    start: NDArray[np.int64],
    busy_until: NDArray[np.int64],
    links: NDArray[np.int64],
    n_links: int,
) -> NDArray[np.int64]:
    """Indices (into the transfers in order of start) at which a new operator begins."""
    silence = start[1:] - busy_until[:-1]
    candidates = np.flatnonzero(silence > 0) + 1
    if len(candidates) > _MAX_CANDIDATES:
        longest = np.argpartition(silence[candidates - 1], -_MAX_CANDIDATES)[-_MAX_CANDIDATES:]
        candidates = np.sort(candidates[longest])
    if not len(candidates):
        return candidates
    moved = _moved(links, n_links, candidates)
    balanced = _is_balanced(moved, np.bincount(links, minlength=n_links), silence[candidates - 1])
    candidates = candidates[balanced]
    if not len(candidates):
        return candidates
    length = silence[candidates - 1]
    return np.asarray(candidates[length >= _SHORT_SILENCE * np.percentile(length, 75)])


def _moved(links: NDArray[np.int64], n_links: int, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Messages that each link had begun before each candidate: (candidates, links)."""
    moved = np.empty((len(candidates), n_links), dtype=np.int64)
    for link in range(n_links):
        moved[:, link] = np.searchsorted(np.flatnonzero(links == link), candidates, side="left")
    return moved


def _is_balanced(
    moved: NDArray[np.int64], totals: NDArray[np.int64], silence: NDArray[np.int64]
) -> NDArray[np.bool_]:
    if totals.max() - totals.min() <= max(_EQUAL_COUNTS * totals.max(), 2):
        alike = _same_difference(moved, totals, silence)
        # Links whose messages change every time may have moved about as many in all, but no state repeats.
        if alike.sum() >= _MIN_EVEN or totals.max() - totals.min() <= 2:
            return alike
    # Unequal all-to-all: balanced at a long silence once every link has moved since the cut before.
    every_link = np.zeros(len(moved), dtype=bool)
    last = np.zeros(moved.shape[1], dtype=np.int64)
    threshold = _long_silence(silence)
    for i in np.flatnonzero(silence >= threshold):
        if np.mean(moved[i] > last) >= _NEARLY_EVERY:
            every_link[i] = True
            last = moved[i]
    return every_link


def _same_difference(
    moved: NDArray[np.int64], totals: NDArray[np.int64], silence: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Balanced silences of equal links: those at which the links' counts differ as between operators.

    They differ by nothing when the capture began between two operators, by constants when it began inside
    one. A capture that ended between operators tells the constants by its totals. A pipeline has states of
    its own in every iteration, as common as the even one, so that the most silence is only the last resort.
    """
    difference = moved - moved[:, :1]
    kinds, which = np.unique(difference, axis=0, return_inverse=True)
    length = np.bincount(which.ravel(), weights=silence.astype(np.float64))
    even, final = ((difference == k).all(axis=1) for k in (np.zeros_like(totals), totals - totals[0]))
    usual = np.median(silence[which.ravel() == np.argmax(length)])
    known = [k for k in (even, final) if _pauses_there(silence[k], length.max(), usual)]
    if known:
        # Between operators the ranks compute: of two kinds of silence that is the longer one.
        return np.asarray(max(known, key=lambda k: float(np.median(silence[k]))))
    return np.asarray((difference == kinds[np.argmax(length)]).all(axis=1))


def _pauses_there(own: NDArray[np.int64], most: float, usual: float) -> bool:
    """Whether a group pauses in a state: a fair share of the most silence in any, or each time as long.

    A pipeline with a slow stage is silent in one state once per micro-batch, and between its iterations only
    once per iteration, but then no shorter.
    """
    return bool(own.sum() >= most / 4 or (len(own) >= _MIN_EVEN and np.median(own) >= usual))


def _long_silence(silence: NDArray[np.int64]) -> float:
    """What separates the silences between operators from those inside: the widest gap in their sizes."""
    ordered = np.sort(silence[silence > 0].astype(np.float64))[::-1]
    if len(ordered) < 2 * _MIN_EVEN:
        return float(ordered[-1]) if len(ordered) else 0.0
    ratio = ordered[_MIN_EVEN - 1 : -1] / ordered[_MIN_EVEN:]
    widest = int(np.argmax(ratio))
    # Without a clear gap nothing pauses inside an operator, and every silence may lie between two.
    return float(ordered[_MIN_EVEN - 1 + widest] if ratio[widest] >= _CLEAR_GAP else ordered[-1])


def _mark_incomplete(
    operators: list[Operator], links: NDArray[np.int64], n_links: int
) -> tuple[Operator, ...]:
    """The last operator is incomplete when its links have moved unlike those of all operators before."""
    if len(operators) < 2:
        return tuple(operators)
    at = np.cumsum([0, *(o.messages for o in operators)])
    counts = [np.bincount(links[a:b], minlength=n_links) for a, b in pairwise(at)]
    last = counts[-1]
    known = any(np.array_equal(last, c) for c in counts[:-1])
    proportional = last.max() == last.min() and all(c.max() == c.min() for c in counts[1:-1])
    if known or (proportional and last.min() >= min(c.min() for c in counts[:-1])):
        return tuple(operators)
    final = operators[-1]
    operators[-1] = Operator(
        final.group, final.rows, final.start_ns, final.end_ns, final.messages, final.bytes, complete=False
    )
    return tuple(operators)


def ends_as_it_pauses(traffic: Traffic, group: Group, operators: tuple[Operator, ...], units: int) -> bool:
    """Whether a group's last state is one in which it paused in many of its units: it may be done for good.

    The state is by how much the links' message counts differ; a pause is as long as one between operators.
    """
    t = traffic.transfers[np.concatenate([o.rows for o in operators])]
    order = np.argsort(send_start(t), kind="stable")
    t = t[order]
    start, busy_until = send_start(t), np.maximum.accumulate(arrival(t))
    links = np.searchsorted(np.array(group.links), t["link"])
    usual = np.median([b.start_ns - a.end_ns for a, b in pairwise(operators)]) if len(operators) > 1 else 0
    pauses = np.flatnonzero(start[1:] - busy_until[:-1] >= _LONG_PAUSE * max(usual, 1)) + 1
    if not len(pauses):
        return False
    moved = _moved(links, len(group.links), pauses)
    totals = np.bincount(links, minlength=len(group.links))
    alike = (moved - moved[:, :1] == totals - totals[0]).all(axis=1)
    return bool(alike.sum() >= max(_MIN_EVEN, _OFTEN * units))


def link_counts(rows: NDArray[np.int64], transfers: Table, group: Group) -> NDArray[np.int64]:
    """How many of some rows of a group's transfers each of its links moved."""
    links = np.searchsorted(np.array(group.links), transfers["link"][rows])
    return np.bincount(links, minlength=len(group.links))
