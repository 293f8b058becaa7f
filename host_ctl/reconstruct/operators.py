# SPDX-License-Identifier: Apache-2.0
"""Cuts the traffic of a group into operators.

A cut lies where the group is *balanced*: at a silence at which all its strands (links, or several that take
turns) have moved equally many messages since the capture began. Silence alone would be wrong, because a
late rank silences its group inside an operator; volume alone would need the operator's size. Equal
back-to-back operators without a silence between them stay together as one burst, which later stages must
not mind.
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
_PARTS, _THROUGHOUT = 8, 0.8
_ALWAYS_FIRST = 0.95
_NO_GAP = 0.1  # of the usual silence


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
    strands = group.strand_of(t["link"])
    senders = np.array(traffic.edges).reshape(-1, 2)[t["edge"], 0]
    cuts = _balanced_cuts(start, busy_until, strands, senders)
    edges = [0, *(int(c) for c in cuts), len(rows)]
    operators = []
    for a, b in pairwise(edges):
        if a == b:
            continue
        operators.append(operator_of(traffic, index, rows[a:b], complete=True))
    return _mark_incomplete(operators, strands, group.strand_count)


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


@dataclass(frozen=True, slots=True)
class _Silences:
    """The silences of a group, per silence in order of time.

    ``moved``: messages that each strand had begun before it (silences x strands), ``length_ns``, ``first``:
    the member that sends first after it. ``totals``: messages of each strand in the whole capture.
    """

    moved: NDArray[np.int64]
    length_ns: NDArray[np.int64]
    first: NDArray[np.int64]
    totals: NDArray[np.int64]


def _balanced_cuts(
    start: NDArray[np.int64],
    busy_until: NDArray[np.int64],
    strands: NDArray[np.int64],
    senders: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Indices (into the transfers in order of start) at which a new operator begins."""
    silence = start[1:] - busy_until[:-1]
    candidates = np.flatnonzero(silence > 0) + 1
    if len(candidates) > _MAX_CANDIDATES:
        longest = np.argpartition(silence[candidates - 1], -_MAX_CANDIDATES)[-_MAX_CANDIDATES:]
        candidates = np.sort(candidates[longest])
    if not len(candidates):
        return candidates
    totals = np.bincount(strands)
    moved = _moved(strands, len(totals), candidates)
    silences = _Silences(moved, silence[candidates - 1], senders[candidates], totals)
    candidates = candidates[_is_balanced(silences, len(np.unique(senders)) > 2)]
    if not len(candidates):
        return candidates
    length = silence[candidates - 1]
    return np.asarray(candidates[length >= _SHORT_SILENCE * np.percentile(length, 75)])


def _moved(strands: NDArray[np.int64], n_strands: int, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Messages that each strand had begun before each candidate: (candidates, strands)."""
    moved = np.empty((len(candidates), n_strands), dtype=np.int64)
    for strand in range(n_strands):
        moved[:, strand] = np.searchsorted(np.flatnonzero(strands == strand), candidates, side="left")
    return moved


def _is_balanced(silences: _Silences, several: bool) -> NDArray[np.bool_]:
    """``several``: there are more than two members, whose strands do not move equally much by chance."""
    most, least = silences.totals.max(), silences.totals.min()
    if most - least <= max(_EQUAL_COUNTS * most, 2):
        alike = _same_difference(silences, several)
        # Links whose messages change every time may have moved about as many in all, but no state repeats.
        if alike.sum() >= _MIN_EVEN or most - least <= 2:
            return alike
    # Unequal all-to-all: balanced at a long silence once every link has moved since the cut before.
    moved, length_ns = silences.moved, silences.length_ns
    every_link = np.zeros(len(moved), dtype=bool)
    last = np.zeros(moved.shape[1], dtype=np.int64)
    threshold = _long_silence(length_ns)
    for i in np.flatnonzero(length_ns >= threshold):
        if np.mean(moved[i] > last) >= _NEARLY_EVERY:
            every_link[i] = True
            last = moved[i]
    return every_link


def _same_difference(silences: _Silences, several: bool) -> NDArray[np.bool_]:
    """Balanced silences of equal links: those at which the links' counts differ as between operators.

    They differ by nothing when the capture began between two operators, by constants when it began inside
    one. A capture that ended between operators tells the constants by its totals; equal ones show that it
    began and ended so. A pipeline has states of its own in every iteration, as common as the even one, so
    that the most silence is only the last resort.
    """
    totals, length_ns = silences.totals, silences.length_ns
    difference = silences.moved - silences.moved[:, :1]
    if several and totals.max() == totals.min():
        return np.asarray((difference == 0).all(axis=1))
    _, which = np.unique(difference, axis=0, return_inverse=True)
    total_ns = np.bincount(which.ravel(), weights=length_ns.astype(np.float64))
    longest = which.ravel() == np.argmax(total_ns)
    even, final = ((difference == k).all(axis=1) for k in (np.zeros_like(totals), totals - totals[0]))
    usual = float(np.median(length_ns[longest]))
    known = [k for k in (even, final) if _pauses_there(length_ns[k], total_ns.max(), usual)]
    known = [k for k in known if _anybody_begins(silences, k) or not _anybody_begins(silences, longest)]
    if known:
        # Who became late in the midst of the run stops its group in a state that never was before. Between
        # operators the ranks compute: of two kinds of silence throughout the run that is the longer one.
        parts = [_parts_of_run(k & (length_ns >= _NO_GAP * _usual_length(length_ns))) for k in known]
        lasting = [k for k, found in zip(known, parts, strict=True) if found >= _THROUGHOUT * max(parts)]
        return np.asarray(max(lasting, key=lambda k: float(np.median(length_ns[k]))))
    return np.asarray(longest)


def _anybody_begins(silences: _Silences, chosen: NDArray[np.bool_]) -> bool:
    """Whether it is not always the same member that sends first after some silences.

    Between operators everybody may; inside one it is always the one that the others wait for.
    """
    first = silences.first[chosen]
    return bool(np.unique(first, return_counts=True)[1].max(initial=0) < _ALWAYS_FIRST * len(first))


def _pauses_there(own: NDArray[np.int64], most: float, usual: float) -> bool:
    """Whether a group pauses in a state: a fair share of the most silence in any, or each time as long.

    A pipeline with a slow stage is silent in one state once per micro-batch, and between its iterations only
    once per iteration, but then no shorter.
    """
    return bool(own.sum() >= most / 4 or (len(own) >= _MIN_EVEN and np.median(own) >= usual))


def _usual_length(silence: NDArray[np.int64]) -> int:
    """The length such that half of all silence is in longer ones: of gaps between messages there are many."""
    ordered = np.sort(silence)
    return int(ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)])


def _parts_of_run(chosen: NDArray[np.bool_]) -> int:
    """In how many of equal parts of the run there are chosen silences."""
    return int(sum(part.any() for part in np.array_split(chosen, _PARTS)))


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
    operators: list[Operator], strands: NDArray[np.int64], n_strands: int
) -> tuple[Operator, ...]:
    """The last operator is incomplete when its links have moved unlike those of all operators before."""
    if len(operators) < 2:
        return tuple(operators)
    at = np.cumsum([0, *(o.messages for o in operators)])
    counts = [np.bincount(strands[a:b], minlength=n_strands) for a, b in pairwise(at)]
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
    strands = group.strand_of(t["link"])
    usual = np.median([b.start_ns - a.end_ns for a, b in pairwise(operators)]) if len(operators) > 1 else 0
    pauses = np.flatnonzero(start[1:] - busy_until[:-1] >= _LONG_PAUSE * max(usual, 1)) + 1
    if not len(pauses):
        return False
    moved = _moved(strands, group.strand_count, pauses)
    totals = np.bincount(strands, minlength=group.strand_count)
    alike = (moved - moved[:, :1] == totals - totals[0]).all(axis=1)
    return bool(alike.sum() >= max(_MIN_EVEN, _OFTEN * units))


def strand_counts(rows: NDArray[np.int64], transfers: Table, group: Group) -> NDArray[np.int64]:
    """How many of some rows of a group's transfers each of its strands moved."""
    return np.bincount(group.strand_of(transfers["link"][rows]), minlength=group.strand_count)
