# SPDX-License-Identifier: Apache-2.0
"""Holds the wait states that the analysis found against the true ones, instant by instant.

The simulator's states (sim/output/wait_states.py) and those of the analysis correspond like this:

- ``transfer`` (posted, not yet delivered): TRANSFER. REPAIR and PACED are transfers that the analysis says
  more about; the simulator's records do not, so that both count as TRANSFER;
- ``host`` (filled, credit there, not yet posted): WAIT_SENDER;
- ``wait_credit`` (filled, no credit): WAIT_CREDIT;
- ``wait_input`` (nothing filled yet) is several states to an analysis. Until the last input of the slot has
  come: WAIT_UPSTREAM. Then its own GPU is what is waited for: WAIT_SENDER. After the last slot of the
  operator: COMPLETE.

Own time (WAIT_SENDER) before the first message of a lane in an operator is NOT_STARTED. Operators are those
of the analysis on both sides: where it merged several, their states are compared as those of one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.fidelity.recording import Gauge, Recorded, analysed_stretches
from bench.fidelity.score import Times, confusion
from bench.fidelity.truth import RunTruth
from host_ctl.attribute.program import Lane
from host_ctl.attribute.states import WaitState
from host_ctl.cli.engine import JobAnalysis
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.coupling import component_of
from host_ctl.reconstruct.jobs import GroupTimeline
from sim.output.records import NEVER

SAME = {WaitState.REPAIR: WaitState.TRANSFER, WaitState.PACED: WaitState.TRANSFER}
_KNOWN = np.array([SAME.get(s, s) for s in WaitState], dtype=np.int64)


def slots_of_rows(recorded: Recorded, truth: RunTruth, lane_of_link: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slot that every transfer carried, -1 where it is not known: both keep the order of their lane.

    Lanes whose slots take turns on several connections are left out, as are connections of which the capture
    lost a message: there the order does not tell.
    """
    links = recorded.analysis.traffic.transfers["link"]
    found = np.full(len(links), -1)
    lanes, uses = np.unique(lane_of_link[lane_of_link >= 0], return_counts=True)
    for link, lane in enumerate(lane_of_link.tolist()):
        rows = np.flatnonzero(links == link)
        if lane < 0 or uses[np.searchsorted(lanes, lane)] > 1:
            continue
        slots = np.arange(*truth.first[lane : lane + 2])
        slots = slots[truth.slots["delivered"][slots] != NEVER]
        if len(slots) == len(rows):
            found[rows] = slots
    return found


def true_stretches(slots: Table, operator: Times, begin: Times, end: Times) -> tuple[Times, Times, Times]:
    """The true states of one lane (start, end, state) within operators of given begins and ends.

    ``slots`` come in order of posting with the number of their ``operator``.
    """
    opened, closed = begin[operator], end[operator]
    reached = np.minimum(np.maximum.accumulate(slots["delivered"]), closed)
    idle_from = np.maximum(np.r_[opened[:1], reached[:-1]], opened)
    posted = np.minimum(np.maximum(slots["posted"], idle_from), closed)
    came = np.clip(slots["input"], idle_from, posted)
    staged = np.clip(slots["staged"], came, posted)
    granted = np.clip(slots["credit"], staged, posted)
    first = np.r_[True, operator[1:] != operator[:-1]]
    own = np.where(first, WaitState.NOT_STARTED, WaitState.WAIT_SENDER)
    parts = [
        (idle_from, came, np.full(len(slots), WaitState.WAIT_UPSTREAM)),
        (came, staged, own),
        (staged, granted, np.full(len(slots), WaitState.WAIT_CREDIT)),
        (granted, posted, own),
        (posted, np.maximum(reached, posted), np.full(len(slots), WaitState.TRANSFER)),
    ]
    last = begin.copy()
    np.maximum.at(last, operator, np.maximum(reached, posted))
    parts.append((last, end, np.full(len(end), WaitState.COMPLETE)))
    start, stop, state = (np.concatenate([part[k] for part in parts]) for k in range(3))
    return start[stop > start], stop[stop > start], state[stop > start].astype(np.int64)


def state_confusion(
    recorded: Recorded,
    job: JobAnalysis,
    slot_of_row: NDArray[np.int64],
    truth: RunTruth,
    gauges: dict[int, Gauge],
) -> NDArray[np.float64]:
    """Time (ns) per true and found state of all edges of a job; channels of one edge share its time."""
    out = np.zeros((len(WaitState), len(WaitState)))
    traffic, program = recorded.analysis.traffic, job.program
    channels: dict[tuple[int, int], int] = {}
    for lane in program.lanes:
        channels[lane.group, lane.edge] = channels.get((lane.group, lane.edge), 0) + 1
    for lane, found in zip(program.lanes, analysed_stretches(recorded.analysis, program), strict=True):
        gauge = gauges.get(component_of(traffic, lane.src))
        rows = slot_of_row[lane.rows]
        if gauge is None or not len(rows) or (rows < 0).any():
            continue
        timeline = job.job.timelines[lane.group]
        true = _true_of_lane(truth.slots[rows], lane, timeline, gauge)
        state = _KNOWN[found["state"]]
        of_lane = confusion(
            true, (gauge.to_true(found["start"]), gauge.to_true(found["end"]), state), len(WaitState)
        )
        out += of_lane / channels[lane.group, lane.edge]
    return out


def _true_of_lane(
    slots: Table, lane: Lane, timeline: GroupTimeline, gauge: Gauge
) -> tuple[Times, Times, Times]:
    begin = gauge.to_true(np.array([o.start_ns for o in timeline.operators]))
    end = gauge.to_true(np.array([o.end_ns for o in timeline.operators]))
    number_of_row = {r: n for n, o in enumerate(timeline.operators) for r in o.rows.tolist()}
    operator = np.array([number_of_row[r] for r in lane.rows.tolist()])
    order = np.lexsort((slots["posted"], operator))
    return true_stretches(slots[order], operator[order], begin, end)
