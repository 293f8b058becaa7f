# SPDX-License-Identifier: Apache-2.0
"""Iterations that grow together with marked slow messages tell of a busy network, and of nobody's fault."""

from __future__ import annotations

import numpy as np
import pytest

from host_ctl.attribute.charges import CHARGE, Charge
from host_ctl.attribute.features import Features
from host_ctl.diagnose.congested import congested_case
from host_ctl.ingest.series import Table
from tests.host_ctl.made import EPOCH_NS
from tests.host_ctl.made_jobs import MS, US, members_only

ITERATIONS, ONSET = 24, 12
MEMBERS = (0, 1, 2, 3)


def features(rise_ns: int, onset: int = ONSET) -> Features:
    """Iterations of 10 ms that last longer from the onset on."""
    rng = np.random.default_rng(1)
    duration = 10 * MS + rng.integers(0, 50 * US, ITERATIONS)
    duration[onset:] += rise_ns
    nothing = np.zeros((ITERATIONS, len(MEMBERS)))
    return Features(MEMBERS, duration, nothing, nothing, nothing, nothing)


def slow(senders: tuple[int, ...], length_ns: int, *, paced: bool, since: int = ONSET) -> Table:
    """One slow message per sender and iteration."""
    rows = np.zeros((ITERATIONS - since) * len(senders), CHARGE)
    rows["iteration"] = np.repeat(np.arange(since, ITERATIONS), len(senders))
    rows["src"] = np.tile(senders, ITERATIONS - since)
    rows["dst"] = (rows["src"] + 1) % len(MEMBERS)
    rows["start"] = EPOCH_NS + rows["iteration"].astype(np.int64) * MS
    rows["end"] = rows["start"] + length_ns
    rows["kind"], rows["paced"] = Charge.TRANSFER, paced
    return rows


JOB = members_only(MEMBERS, ITERATIONS)


def test_marked_messages_of_several_that_slow_with_the_iterations_are_congestion() -> None:
    case = congested_case(JOB, features(MS), slow((0, 2), 900 * US, paced=True), 0.02)
    assert case is not None
    assert case.shift.onset == ONSET
    assert case.queue is not None
    assert case.queue.receiver is None


@pytest.mark.parametrize(
    ("rise_ns", "charges"),
    [
        (MS, slow((0, 2), 900 * US, paced=False)),
        (MS, slow((0, 2), 300 * US, paced=True)),
        (MS, slow((0, 2), 900 * US, paced=True, since=0)),
        (MS, slow((0,), 900 * US, paced=True)),
        (0, slow((0, 2), 900 * US, paced=True)),
    ],
    ids=["not marked", "too little", "always", "one sender", "no slower"],
)
def test_anything_less_is_not(rise_ns: int, charges: Table) -> None:
    assert congested_case(JOB, features(rise_ns), charges, 0.02) is None


def test_a_few_slower_iterations_at_the_end_are_not() -> None:
    late = ITERATIONS - 5
    charges = slow((0, 2), 900 * US, paced=True, since=late)
    assert congested_case(JOB, features(MS, late), charges, 0.02) is None


def test_a_run_of_a_few_iterations_tells_nothing() -> None:
    few = features(MS)
    short = Features(MEMBERS, few.duration_ns[:4], *([np.zeros((4, 4))] * 4))
    assert congested_case(members_only(MEMBERS, 4), short, slow((0, 2), US, paced=True)[:0], 0.02) is None
