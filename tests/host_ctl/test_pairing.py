# SPDX-License-Identifier: Apache-2.0
"""The directions of connections that the meter could not pair are told by how much each of them answers."""

from __future__ import annotations

import numpy as np

from dpu_app.wire.records import NO_FLOW
from host_ctl.reconstruct.pairing import SEND, FlowKey, View, pair_links

A, B = b"a", b"b"


def view(series: int, flow: int, requests: int, answers: int, reverse: int = NO_FLOW) -> View:
    """One end of a flow on a port that says nothing."""
    none = np.empty(0, SEND)
    return View(series, flow, reverse, 49_152 + flow, requests, answers, none, none)


def both(flow: int, requests: int, answers: int) -> tuple[View, View]:
    """A flow that both ends have seen."""
    return view(0, flow, requests, answers), view(1, flow, requests, answers)


def back(flow: int, requests: int, answers: int) -> tuple[View, View]:
    """The same, of the other direction."""
    tx, rx = both(flow, requests, answers)
    return rx, tx


def test_a_bulk_flow_is_answered_by_the_one_flow_that_acknowledges_as_much() -> None:
    bulk, barrier = (A, B, 1), (A, B, 2)
    grants, idle, other = (B, A, 3), (B, A, 4), (B, A, 5)
    views: dict[FlowKey, tuple[View | None, View | None]] = {
        bulk: both(1, 10_000, 340),
        barrier: both(2, 10, 10),
        grants: back(3, 340, 2_900),
        idle: back(4, 10, 10),
        other: back(5, 10, 10),
    }
    found = pair_links(views)
    assert found[bulk] == grants
    assert found[grants] == bulk
    assert barrier not in found  # two flows may answer it


def test_nothing_is_paired_where_several_fit() -> None:
    views: dict[FlowKey, tuple[View | None, View | None]] = {
        (A, B, 1): both(1, 1_000, 100),
        (A, B, 2): both(2, 1_000, 100),
        (B, A, 3): back(3, 100, 1_000),
        (B, A, 4): back(4, 100, 1_000),
    }
    assert not pair_links(views)
