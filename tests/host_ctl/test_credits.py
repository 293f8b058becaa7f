# SPDX-License-Identifier: Apache-2.0
"""Every message finds its credit, on whatever connection credits come and however many each covers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from dpu_app.wire.records import NO_FLOW
from host_ctl.reconstruct.credits import find_granting, match_credits
from host_ctl.reconstruct.pairing import SEND, FlowKey, View

A, B = b"a", b"b"
OPERATOR, SPACING, LONG, WAY = 10_000_000, 50_000, 40_000, 1_000


def sends(starts: ArrayLike, size: int) -> NDArray[np.void]:
    rows = np.zeros(len(np.atleast_1d(starts)), SEND)
    rows["start"] = rows["end"] = starts
    rows["bytes"] = size
    return rows


def flow(number: int, bulk: ArrayLike = (), small: ArrayLike = ()) -> tuple[View, View]:
    """A flow as both its ends saw it, on one clock."""
    views = [
        View(side, number, NO_FLOW, 49_152, 0, 0, sends(bulk, 262_144), sends(small, 64)) for side in (0, 1)
    ]
    return views[0], views[1]


def operators(
    messages: list[int], at_once: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Starts of messages and times of credits, and the credit of each message.

    Each operator's receiver grants as it enters, ``at_once`` messages with each credit and fewer at the end.
    """
    starts: list[int] = []
    granted: list[int] = []
    used: list[int] = []
    for number, count in enumerate(messages):
        begin = number * OPERATOR
        for k in range(0, count, at_once):
            granted.append(begin + k * SPACING)
            used += [len(granted) - 1] * min(at_once, count - k)
        starts += [begin + k * SPACING + WAY for k in range(count)]
    return np.array(starts), np.array(granted), used


def credited(starts: NDArray[np.int64], granted: NDArray[np.int64]) -> list[int]:
    """The number of the credit of each message, below 0 where that came before the capture."""
    found = match_credits(starts, starts + LONG, granted)
    assert found is not None
    return [int(k) for k in found]


@given(st.lists(st.integers(1, 12), min_size=20, max_size=40), st.sampled_from([1, 2, 4]))
def test_no_message_uses_a_credit_before_it_came(messages: list[int], at_once: int) -> None:
    starts, granted, _ = operators(messages, at_once)
    found = credited(starts, granted)
    assert all(k < 0 or granted[k] <= start for k, start in zip(found, starts, strict=True))


def test_credits_of_single_messages_are_used_in_turn() -> None:
    starts, granted, used = operators([4] * 20)
    assert credited(starts, granted) == used


def test_a_credit_for_two_messages_that_ends_with_its_operator_shifts_no_other() -> None:
    starts, granted, used = operators([1, 1, 6, 1, 3] * 20, at_once=2)
    assert credited(starts, granted) == used


def test_a_capture_that_begins_in_mid_job_lacks_the_first_credits() -> None:
    starts, granted, used = operators([4] * 20)
    assert credited(starts, granted[2:]) == [-2, -1, *used[: len(starts) - 2]]


def test_small_writes_that_keep_step_with_data_grant_it_on_a_connection_of_their_own() -> None:
    starts, granted, _ = operators([6, 2, 4] * 10)
    data, answers, grants = (A, B, 1), (B, A, 2), (B, A, 3)
    barrier = np.arange(30) * OPERATOR
    views: dict[FlowKey, tuple[View | None, View | None]] = {
        data: flow(1, bulk=starts),
        answers: flow(2)[::-1],
        grants: flow(3, small=granted)[::-1],
        (A, B, 4): flow(4),
        (B, A, 5): flow(5, small=barrier)[::-1],
    }
    reverse = {data: answers, answers: data, grants: (A, B, 4), (A, B, 4): grants}
    assert find_granting(views, reverse) == {data: grants}


def test_queue_pairs_that_take_turns_share_the_credits_of_one_connection() -> None:
    starts, granted, _ = operators([6, 2, 4] * 10)
    first, second, grants = (A, B, 1), (A, B, 2), (B, A, 9)
    views: dict[FlowKey, tuple[View | None, View | None]] = {
        first: flow(1, bulk=starts[::2]),
        second: flow(2, bulk=starts[1::2]),
        grants: flow(9, small=granted)[::-1],
    }
    assert find_granting(views, {}) == {first: grants}


def test_messages_split_over_two_queue_pairs_use_each_credit_on_both() -> None:
    starts, granted, _ = operators([6, 2, 4] * 10)
    first, second, grants = (A, B, 1), (A, B, 2), (B, A, 9)
    views: dict[FlowKey, tuple[View | None, View | None]] = {
        first: flow(1, bulk=starts),
        second: flow(2, bulk=starts + 5),
        grants: flow(9, small=granted)[::-1],
    }
    assert find_granting(views, {}) == {first: grants, second: grants}


def test_credits_on_the_connection_of_the_data_stand_before_any_other() -> None:
    starts, granted, _ = operators([6, 2, 4] * 10)
    data, answers = (A, B, 1), (B, A, 2)
    views: dict[FlowKey, tuple[View | None, View | None]] = {
        data: flow(1, bulk=starts),
        answers: flow(2, small=granted)[::-1],
        (B, A, 3): flow(3, small=granted)[::-1],
    }
    assert find_granting(views, {data: answers, answers: data}) == {data: answers}
