# SPDX-License-Identifier: Apache-2.0
"""Summaries of a group's operators for reports: what kind, how often, how large, how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from host_ctl.reconstruct.jobs import GroupTimeline
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """Operators of one group and size together: medians of duration and of active time."""

    kind: str
    group: str
    count: int
    bytes: int
    duration_ns: float
    active_ns: float


def summarize_operators(timeline: GroupTimeline, traffic: Traffic, kind: str) -> list[OperatorSummary]:
    """One summary per size of operator of a group, the commonest first; ``bytes`` is the whole group's."""
    by_size: dict[int, list[tuple[int, int]]] = {}
    for operator in timeline.operators:
        t = traffic.transfers[operator.rows]
        active = _union(send_start(t), arrival(t))
        by_size.setdefault(operator.bytes, []).append((operator.end_ns - operator.start_ns, active))
    found = []
    for size, times in sorted(by_size.items(), key=lambda item: -len(item[1])):
        duration, active = np.median(np.array(times), axis=0)
        found.append(
            OperatorSummary(
                kind,
                timeline.group.id,
                len(times),
                size,
                float(duration),
                float(active),
            )
        )
    return found


def _union(start: np.ndarray, end: np.ndarray) -> int:
    """Total length of the union of intervals (ns)."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begin = np.maximum(start, np.r_[start[0], end[:-1]])
    return int(np.maximum(end - begin, 0).sum())
