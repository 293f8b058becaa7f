# SPDX-License-Identifier: Apache-2.0
"""The critical path of an iteration, found by following waits backwards from its last arrival.

A message arrived when it did because it was sent when it was; it was sent then because its input arrived,
its credit was granted, the message before it left, or the host took its time. Whatever came last is the
link of the chain; the chain ends where the iteration before had ended, so that computing is on it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.gates import NOTHING, Gates, Grants
from host_ctl.attribute.program import Program, iteration_of_rows
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, grant, send_start

_MAX_STEPS = 100_000


class Step(IntEnum):
    """What a stretch of the critical path was spent on."""

    HOST = 1
    TRANSFER = 2
    CREDIT = 3


PATH = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("row", "<i8"),
        ("src", "<i4"),
        ("dst", "<i4"),
        ("iteration", "<i4"),
        ("step", "u1"),
    ]
)
"""One stretch of a critical path: ns on the common clock, and the transfer it belongs to. HOST is time of
``src`` between being ready and sending (or granting), TRANSFER the way to ``dst``, CREDIT that of a grant."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """For every transfer row what it waited for: its input, its credit, the row before it in its lane."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    input_ns: NDArray[np.int64]
    input_row: NDArray[np.int64]
    credit_ns: NDArray[np.int64]
    posted_ns: NDArray[np.int64]
    grant_row: NDArray[np.int64]
    before_ns: NDArray[np.int64]
    before_row: NDArray[np.int64]


def critical_paths(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], grants: tuple[Grants, ...]
) -> Table:
    """The critical path of every iteration, in order of time (PATH)."""
    chain = _chain(traffic, program, gates, grants)
    rows = np.concatenate([lane.rows for lane in program.lanes])
    iteration = iteration_of_rows(traffic, program)[rows]
    begin = int(chain.start[rows].min())
    edges = np.array(traffic.edges).reshape(-1, 2)
    found: list[tuple[int, ...]] = []
    for number in range(program.job.iterations):
        mine = rows[iteration == number]
        if len(mine):
            last = int(mine[np.argmax(chain.end[mine])])
            found.extend(_follow(chain, last, begin, number, edges, traffic))
            begin = max(begin, int(chain.end[last]))
    out = np.array(found, dtype=PATH) if found else np.empty(0, PATH)
    return out[np.argsort(out["start"], kind="stable")]


def _chain(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], grants: tuple[Grants, ...]
) -> _Chain:
    t = traffic.transfers
    n = len(t)
    chain = _Chain(
        start=send_start(t),
        end=arrival(t),
        input_ns=np.full(n, MISSING),
        input_row=np.full(n, NOTHING),
        credit_ns=grant(t),
        posted_ns=np.where(t["credit_tx"] != MISSING, t["credit_tx"], t["credit_rx"]),
        grant_row=np.full(n, NOTHING),
        before_ns=np.full(n, MISSING),
        before_row=np.full(n, NOTHING),
    )
    for lane, gate, given in zip(program.lanes, gates, grants, strict=True):
        chain.grant_row[lane.rows] = given.input_row
        chain.input_ns[lane.rows], chain.input_row[lane.rows] = gate.input_ns, gate.input_row
        chain.before_ns[lane.rows] = gate.before_ns
        chain.before_row[lane.rows[1:]] = lane.rows[:-1]
    return chain


def _follow(
    chain: _Chain, row: int, begin: int, iteration: int, edges: NDArray[np.int64], traffic: Traffic
) -> list[tuple[int, ...]]:
    """Walk back from one row until before the iteration's begin."""
    steps: list[tuple[int, ...]] = []
    until = int(chain.end[row])
    for _ in range(_MAX_STEPS):
        src, dst = (int(e) for e in edges[traffic.transfers["edge"][row]])
        start = min(int(chain.start[row]), until)
        steps.append((max(start, begin), until, row, src, dst, iteration, Step.TRANSFER))
        if start <= begin:
            break
        gates = (int(chain.input_ns[row]), int(chain.credit_ns[row]), int(chain.before_ns[row]))
        ready = max(g for g in (*gates, begin) if g <= start or g == begin)
        if ready < start:
            steps.append((ready, start, row, src, dst, iteration, Step.HOST))
        if ready <= begin:
            break
        row, until = _previous(chain, row, ready, gates, steps, (src, dst, iteration))
        if row == NOTHING:
            break
    return [s for s in steps if s[1] > s[0]]


def _previous(
    chain: _Chain,
    row: int,
    ready: int,
    gates: tuple[int, int, int],
    steps: list[tuple[int, ...]],
    where: tuple[int, int, int],
) -> tuple[int, int]:
    """The row that the chain goes on with, and until when it counts."""
    if ready == gates[0]:
        return int(chain.input_row[row]), ready
    if ready == gates[2]:
        return int(chain.before_row[row]), ready
    src, dst, iteration = where
    posted = min(int(chain.posted_ns[row]), ready)
    steps.append((posted, ready, row, src, dst, iteration, Step.CREDIT))
    after = int(chain.grant_row[row])
    if after == NOTHING:
        return int(NOTHING), posted
    # The receiver's own time between what it needed and its grant.
    reached = min(int(chain.end[after]), posted)
    steps.append((reached, posted, row, dst, src, iteration, Step.HOST))
    return after, reached


def path_time(
    paths: Table, step: Step, column: str, members: list[int], iterations: int
) -> NDArray[np.int64]:
    """Time of each iteration's critical path that one step of some members takes (ns).

    ``column`` says whether the members are the stretch's ``src`` or ``dst``.
    """
    mine = paths[(paths["step"] == step) & np.isin(paths[column], members)]
    out = np.zeros(iterations, dtype=np.int64)
    np.add.at(out, mine["iteration"], mine["end"] - mine["start"])
    return out
