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

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from bench.fidelity.recording import Gauge, Recorded, analysed_stretches
from bench.fidelity.score import Times, confusion
from bench.fidelity.truth import RunTruth
from host_ctl.attribute.program import Lane
from host_ctl.attribute.states import STRETCH, WaitState
from host_ctl.ingest.series import Table
from host_ctl.pipeline import JobAnalysis
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


def true_stretches(slots: Table, operator: Times, begin: Times, end: Times) -> Table:
    """The true states of one lane over time (STRETCH) within operators of given begins and ends.

    ``slots`` come in order of posting within each ``operator``.
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
    last = begin.copy()
    np.maximum.at(last, operator, np.maximum(reached, posted))
    parts = (
        (idle_from, came, operator, WaitState.WAIT_UPSTREAM),
        (came, staged, operator, own),
        (staged, granted, operator, WaitState.WAIT_CREDIT),
        (granted, posted, operator, own),
        (posted, np.maximum(reached, posted), operator, WaitState.TRANSFER),
        (last, end, np.arange(len(end)), WaitState.COMPLETE),
    )
    found = np.zeros(sum(len(part[0]) for part in parts), STRETCH)
    at = 0
    for start, stop, number, state in parts:
        mine = found[at : at + len(start)]
        mine["start"], mine["end"], mine["operator"], mine["state"] = start, stop, number, state
        at += len(start)
    return found[found["end"] > found["start"]]


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
    channels = Counter((lane.group, lane.edge) for lane in program.lanes)
    for lane, stretches in zip(program.lanes, analysed_stretches(recorded.analysis, program), strict=True):
        gauge = gauges.get(component_of(traffic, lane.src))
        rows = slot_of_row[lane.rows]
        if gauge is None or not len(rows) or (rows < 0).any():
            continue
        timeline = job.job.timelines[lane.group]
        begin = gauge.to_true(np.array([o.start_ns for o in timeline.operators]))
        end = gauge.to_true(np.array([o.end_ns for o in timeline.operators]))
        true = _true_of_lane(truth.slots[rows], lane, timeline, begin, end)
        found = stretches.copy()
        found["start"], found["end"] = gauge.to_true(found["start"]), gauge.to_true(found["end"])
        found["state"] = _KNOWN[found["state"]]
        of_lane = confusion(_in_a_row(true, begin, end), _in_a_row(found, begin, end), len(WaitState))
        out += of_lane / channels[lane.group, lane.edge]
    return out


def _true_of_lane(slots: Table, lane: Lane, timeline: GroupTimeline, begin: Times, end: Times) -> Table:
    number_of_row = {r: n for n, o in enumerate(timeline.operators) for r in o.rows.tolist()}
    operator = np.array([number_of_row[r] for r in lane.rows.tolist()])
    order = np.lexsort((slots["posted"], operator))
    return true_stretches(slots[order], operator[order], begin, end)


def _in_a_row(stretches: Table, begin: Times, end: Times) -> tuple[Times, Times, Times]:
    """Stretches (start, end, state) with operators laid end to end, as their times may overlap."""
    shift = np.r_[0, np.cumsum(end - begin)[:-1]] - begin
    of_each = shift[stretches["operator"]]
    return (
        stretches["start"] + of_each,
        stretches["end"] + of_each,
        stretches["state"].astype(np.int64),
    )
