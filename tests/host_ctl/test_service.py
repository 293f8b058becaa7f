# SPDX-License-Identifier: Apache-2.0
"""Messages that share a port share its time: by itself each takes its part of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_ctl.attribute.program import Program
from host_ctl.attribute.service import service_times
from host_ctl.reconstruct.transfers import MISSING, Traffic
from tests.host_ctl.made_jobs import bare_lane, members_only, traffic_of

Sent = tuple[tuple[int, int], int, int]
"""Sender and receiver, start, arrival."""


def made(*messages: Sent) -> tuple[Traffic, Program]:
    """Traffic of single messages, each on a connection of its own."""
    nodes = 1 + max(max(pair) for pair, _, _ in messages)
    traffic = traffic_of(nodes, [m[0] for m in messages], [[(m[1], m[2] - 1, m[2])] for m in messages])
    lanes = tuple(
        bare_lane(number, *pair, np.array([number])) for number, (pair, _, _) in enumerate(messages)
    )
    return traffic, Program(members_only(range(nodes), 1), lanes, (), {}, {})


def alone(*messages: Sent) -> list[float]:
    """How long each would have taken with its ports for itself."""
    return list(service_times(*made(*messages))[1])


def busy(spans: list[tuple[int, int]]) -> int:
    """How long at least one of the spans lasts."""
    return len({at for begin, end in spans for at in range(begin, end)})


def test_a_message_alone_takes_its_whole_time() -> None:
    took, own = service_times(*made(((0, 1), 1000, 1400)))
    assert (took.tolist(), own.tolist()) == ([400], [400])


def test_two_messages_that_share_a_port_count_half_each() -> None:
    assert alone(((0, 1), 0, 400), ((0, 2), 0, 400)) == [200, 200]
    assert alone(((1, 0), 0, 400), ((2, 0), 0, 400)) == [200, 200]


def test_messages_of_one_connection_share_its_port_too() -> None:
    assert alone(((0, 1), 0, 300), ((0, 1), 0, 300), ((0, 1), 0, 300)) == pytest.approx([100, 100, 100])


def test_only_the_time_that_two_share_is_halved() -> None:
    assert alone(((0, 1), 0, 400), ((0, 2), 300, 500)) == [350, 150]


def test_what_one_port_sends_does_not_share_with_what_it_gets() -> None:
    assert alone(((0, 1), 0, 400), ((2, 0), 0, 400)) == [400, 400]


def test_of_two_ports_the_busier_one_decides() -> None:
    found = alone(((0, 1), 0, 600), ((0, 2), 0, 600), ((3, 1), 0, 600), ((4, 1), 0, 600))
    assert found[0] == pytest.approx(200)
    assert found[1:] == pytest.approx([300, 200, 200])


def test_messages_of_other_jobs_count_for_nothing() -> None:
    traffic, program = made(((0, 1), 0, 400), ((0, 2), 0, 400))
    took, own = service_times(traffic, replace(program, lanes=program.lanes[:1]))
    assert (took.tolist(), own.tolist()) == ([400, 0], [400, 0])


def test_how_far_apart_two_clocks_are_does_not_count() -> None:
    """Between two NICs every message has the same error; only what exceeds the quickest is its own."""
    times = [(0, 100), (1000, 1100), (2000, 2300)]
    traffic = traffic_of(2, [(0, 1)], [[(a, b - 1, b) for a, b in times]])
    program = Program(members_only((0, 1), 1), (bare_lane(0, 0, 1, np.arange(3)),), (), {}, {})
    exact = service_times(traffic, program)
    for error in (-70, 5_000):
        moved = traffic.transfers.copy()
        moved["rx_start"] += error
        moved["rx_end"] += error
        found = service_times(replace(traffic, transfers=moved), program)
        assert [a.tolist() for a in found] == [a.tolist() for a in exact]
    assert exact[0].tolist() == [100, 100, 300]


def test_where_one_end_has_no_capture_the_other_ends_times_count() -> None:
    traffic, program = made(((0, 1), 100, 400))
    unseen = traffic.transfers.copy()
    unseen["rx_start"] = unseen["rx_end"] = MISSING
    took, own = service_times(replace(traffic, transfers=unseen), program)
    assert (took.tolist(), own.tolist()) == ([299], [299])


spans = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 80)), min_size=1, max_size=12)


@given(spans)
def test_the_parts_of_all_messages_are_the_time_in_which_their_port_is_busy(
    times: list[tuple[int, int]],
) -> None:
    """Every message goes to another receiver, so that only the sender's port is shared."""
    outs = [((0, n + 1), at, at + length) for n, (at, length) in enumerate(times)]
    assert sum(alone(*outs)) == pytest.approx(busy([(at, at + length) for at, length in times]))
    ins = [((b, a), at, end) for (a, b), at, end in outs]
    assert alone(*ins) == pytest.approx(alone(*outs))


@given(spans, st.lists(st.tuples(st.integers(0, 3), st.integers(4, 6)), min_size=12, max_size=12))
def test_no_message_takes_longer_by_itself_than_it_did(
    times: list[tuple[int, int]], pairs: list[tuple[int, int]]
) -> None:
    messages = [(pair, at, at + length) for pair, (at, length) in zip(pairs, times, strict=False)]
    took, own = service_times(*made(*messages))
    assert (own <= took + 1e-6).all()
    assert (own >= took / len(messages) - 1e-6).all()
    for end in (0, 1):
        for port in {pair[end] for pair, _, _ in messages}:
            mine = [n for n, (pair, _, _) in enumerate(messages) if pair[end] == port]
            assert own[mine].sum() <= busy([messages[n][1:] for n in mine]) + 1e-6
