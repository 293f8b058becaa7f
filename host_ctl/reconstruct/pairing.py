# SPDX-License-Identifier: Apache-2.0
"""Finds the two directions of each connection where the meters could not, by what may answer what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpu_app.wire.records import NO_FLOW
from host_ctl.ingest.series import Table

SEND = np.dtype([("start", "<i8"), ("end", "<i8"), ("position", "<i8"), ("bytes", "<u8"), ("flags", "u1")])

FlowKey = tuple[bytes, bytes, int]
"""Source and destination address, and the queue pair written to."""

_CUT_OFF = 64  # packets that are answered, or were sent, outside of the capture


@dataclass(frozen=True, slots=True)
class View:
    """One end's records of one flow, positions unwrapped, times on the common clock.

    ``requests`` counts its packets that may want an answer, ``answers`` its acknowledgements of the other
    way. ``bulk`` are SEND rows that are data for certain, ``small`` those that may be credits.
    """

    series: int
    flow: int
    reverse: int
    sport: int
    requests: int
    answers: int
    bulk: Table
    small: Table


def pair_links(views: dict[FlowKey, tuple[View | None, View | None]]) -> dict[FlowKey, FlowKey]:
    """The other direction of each connection, by the meter's pairing, else when only one fits."""
    by_flow = {
        (view.series, view.flow): key for key, pair in views.items() for view in pair if view is not None
    }
    reverse: dict[FlowKey, FlowKey] = {}
    for key, pair in views.items():
        for view in pair:
            if view is not None and view.reverse != NO_FLOW and (view.series, view.reverse) in by_flow:
                other = by_flow[view.series, view.reverse]
                reverse.setdefault(key, other)
                reverse.setdefault(other, key)
    for key in sorted(views):
        found = _only_answer(key, views, reverse)
        # What answers only this may itself be answered by another as well.
        if found is not None and _only_answer(found, views, reverse) == key:
            reverse[key], reverse[found] = found, key
    return reverse


def _only_answer(
    key: FlowKey, views: dict[FlowKey, tuple[View | None, View | None]], reverse: dict[FlowKey, FlowKey]
) -> FlowKey | None:
    """The one flow not paired yet that may be the other way of this one, by its port if several may."""
    if key in reverse:
        return None
    sport = next(v.sport for v in views[key] if v is not None)
    options = [
        k
        for k in views
        if k[0] == key[1] and k[1] == key[0] and k not in reverse and _may_answer(views[key], views[k])
    ]
    same_port = [k for k in options if any(v is not None and v.sport == sport for v in views[k])]
    chosen = same_port if len(same_port) == 1 else options
    return chosen[0] if len(chosen) == 1 else None


def _may_answer(one: tuple[View | None, View | None], other: tuple[View | None, View | None]) -> bool:
    """Whether two flows may be the two ways of a connection: nothing is acknowledged twice."""
    return not any(
        mine is not None
        and back is not None
        and mine.series == back.series
        and (back.answers > mine.requests + _CUT_OFF or mine.answers > back.requests + _CUT_OFF)
        for mine, back in zip(one, reversed(other), strict=True)
    )
