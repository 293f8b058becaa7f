# SPDX-License-Identifier: Apache-2.0
"""Tells the operators of an all-to-all apart by the pauses of every sender, where the group is never silent.

A slow member is still sending when the others, who have got their part, begin the next operator. But nobody
sends for the next before everything for it has come and something has been computed: each sender pauses,
and all of them equally often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.groups import Group
from host_ctl.reconstruct.operators import Operator, operator_of, rows_in_order
from host_ctl.reconstruct.rhythm import Rhythm
from host_ctl.reconstruct.transfers import Traffic, send_end, send_start

_FEWEST = 4
_CLEAR_GAP = 2.0  # as a mean over senders: pauses inside operators, of several causes, have no common gap


def episodes(traffic: Traffic, group: Group, index: int) -> tuple[tuple[Operator, ...], Rhythm] | None:
    """The k-th episodes of all senders as operators, each a unit; times may overlap. None if unclear."""
    links_of = [[i for i in group.links if traffic.links[i].src == member] for member in group.members]
    of_sender = [rows_in_order(traffic, links) for links in links_of]
    of_sender = [rows for rows in of_sender if len(rows)]
    pauses = [_pauses(traffic, rows) for rows in of_sender]
    count = _common_count(pauses)
    if count is None:
        return None
    number = [_numbered(pause, count) for pause in pauses]
    if not _in_step(traffic, of_sender, number):
        return None
    rows, which = np.concatenate(of_sender), np.concatenate(number)
    found = tuple(operator_of(traffic, index, rows[which == k], complete=True) for k in range(count))
    starts, ends = np.array([o.start_ns for o in found]), np.array([o.end_ns for o in found])
    return found, Rhythm(np.arange(count), starts, ends)


def _pauses(traffic: Traffic, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How long a sender sends nothing before each message but its first (ns)."""
    t = traffic.transfers[rows]
    return np.asarray(send_start(t)[1:] - np.maximum.accumulate(send_end(t))[:-1])


def _common_count(pauses: list[NDArray[np.int64]]) -> int | None:
    """The number of episodes after which all senders' pauses, the longest first, become much shorter."""
    length = min(len(one) for one in pauses)
    if length <= _FEWEST:
        return None
    longest = np.stack([np.log(np.maximum(np.sort(one)[::-1][:length], 1)) for one in pauses])
    gap = (longest[:, :-1] - longest[:, 1:]).mean(axis=0)
    best = _FEWEST - 1 + int(np.argmax(gap[_FEWEST - 1 :]))
    return best + 2 if gap[best] >= np.log(_CLEAR_GAP) else None


def _numbered(pause: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The number of the episode of every message."""
    begins = np.zeros(len(pause), dtype=np.int64)
    begins[np.argsort(-pause, kind="stable")[: count - 1]] = 1
    return np.asarray(np.r_[0, np.cumsum(begins)])


def _in_step(traffic: Traffic, of_sender: list[NDArray[np.int64]], number: list[NDArray[np.int64]]) -> bool:
    """Whether nobody begins an episode before all have begun the one before, from which it needs something.

    A long pause inside of an operator, taken for one between two, would put its sender out of step.
    """
    begins = np.stack(
        [
            send_start(traffic.transfers[rows])[np.flatnonzero(np.r_[1, np.diff(which)])]
            for rows, which in zip(of_sender, number, strict=True)
        ]
    )
    return bool((begins[:, 1:].min(axis=0) > begins[:, :-1].max(axis=0)).all())
