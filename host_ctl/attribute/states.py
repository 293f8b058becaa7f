# SPDX-License-Identifier: Apache-2.0
"""The wait states of every edge of every operator: where each nanosecond went.

From the first packet of an operator in its group to the last, each instant of each edge is in exactly one
state, so that an edge's states sum to the operator's duration:

- ``TRANSFER``: a message is under way; ``REPAIR`` when it had to be repeated, ``PACED`` when congestion
  was signalled for it and it took longer than usual;
- ``WAIT_UPSTREAM``: the sender has not yet got what it needs for its next message;
- ``WAIT_CREDIT``: it could send, but the receiver has granted no credit;
- ``NOT_STARTED`` (before the edge's first message) or ``WAIT_SENDER`` (later): input and credit are there;
- ``COMPLETE``: the edge has moved all that it had to;
- ``UNKNOWN``: outside the learned program, so that nothing tells what the sender needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.congestion import congested_transfers
from host_ctl.attribute.gates import Gates
from host_ctl.attribute.needs import Sharing
from host_ctl.attribute.program import Lane, Program
from host_ctl.attribute.readiness import ready_times
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import GroupTimeline
from host_ctl.reconstruct.repairs import LossPlace
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start


class WaitState(IntEnum):
    """States of an edge inside an operator."""

    TRANSFER = 0
    NOT_STARTED = 1
    WAIT_CREDIT = 2
    WAIT_UPSTREAM = 3
    WAIT_SENDER = 4
    REPAIR = 5
    PACED = 6
    COMPLETE = 7
    UNKNOWN = 8


@dataclass(frozen=True, slots=True)
class StateTimes:
    """Time per state of one group: ``ns[operator, edge, state]``, edges in the group's order.

    An edge of several channels has the mean of their times."""

    group: int
    edges: tuple[int, ...]
    ns: NDArray[np.int64]


STRETCH = np.dtype([("start", "<i8"), ("end", "<i8"), ("operator", "<u4"), ("state", "u1")])
"""A stretch of one lane in one state: ns on the common clock, the number of the operator in its group."""


def wait_states(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], sharing: Sharing, repairs: Table
) -> tuple[StateTimes, ...]:
    """The wait states of all operators of a job, one table per group."""
    stretches = state_stretches(traffic, program, gates, sharing, repairs)
    found = []
    for number, timeline in enumerate(program.job.timelines):
        edges = timeline.group.edges
        ns = np.zeros((len(timeline.operators), len(edges), len(WaitState)), dtype=np.int64)
        mine = [
            (lane, part) for lane, part in zip(program.lanes, stretches, strict=True) if lane.group == number
        ]
        for position, edge in enumerate(edges):
            channels = [part for lane, part in mine if lane.edge == edge]
            for part in channels:
                np.add.at(ns[:, position], (part["operator"], part["state"]), part["end"] - part["start"])
            ns[:, position] = _shared_out(ns[:, position], len(channels))
        found.append(StateTimes(number, edges, ns))
    return tuple(found)


def state_stretches(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], sharing: Sharing, repairs: Table
) -> tuple[Table, ...]:
    """The states of every lane of a program over time (STRETCH), in the order of its lanes."""
    lost = np.unique(repairs["row"][repairs["place"] != LossPlace.NOT_LOST])
    congested = congested_transfers(traffic)
    ready = ready_times(traffic, program, gates, sharing)
    return tuple(
        _lane_stretches(
            program.job.timelines[lane.group],
            lane,
            gate,
            ready_ns,
            traffic,
            _transfer_state(traffic, lane, lost, congested),
        )
        for lane, gate, ready_ns in zip(program.lanes, gates, ready, strict=True)
    )


def _shared_out(ns: NDArray[np.int64], channels: int) -> NDArray[np.int64]:
    """The mean over an edge's channels, in whole ns, with what rounding leaves in the largest state."""
    mean = ns // channels
    rest = ns.sum(axis=1) // channels - mean.sum(axis=1)
    mean[np.arange(len(mean)), mean.argmax(axis=1)] += rest
    return mean


def _lane_stretches(
    timeline: GroupTimeline,
    lane: Lane,
    gate: Gates,
    ready_ns: NDArray[np.int64],
    traffic: Traffic,
    under_way: NDArray[np.int64],
) -> Table:
    """One lane's states over time; within each operator they follow each other without a gap."""
    t = traffic.transfers[lane.rows]
    operator = _operator_of(timeline, lane)
    opened = np.array([o.start_ns for o in timeline.operators])
    closed = np.array([o.end_ns for o in timeline.operators])
    begin, finish = opened[operator], closed[operator]
    reached = np.minimum(np.maximum.accumulate(arrival(t)), finish)
    # An operator that overlaps the one before may end before this lane has ended that.
    idle_from = np.minimum(np.maximum(np.r_[begin[0], reached[:-1]], begin), finish)
    start = np.minimum(np.maximum(send_start(t), idle_from), finish)
    known = (gate.input_ns != MISSING) | (gate.credit_ns != MISSING)
    has_input = np.clip(gate.input_ns, idle_from, start)
    is_ready = np.clip(ready_ns, has_input, start)
    has_credit = np.clip(gate.credit_ns, is_ready, start)
    first = np.r_[True, operator[1:] != operator[:-1]]
    own = np.where(first, WaitState.NOT_STARTED, WaitState.WAIT_SENDER)
    waits = (
        (idle_from, has_input, WaitState.WAIT_UPSTREAM),
        (has_input, is_ready, own),
        (is_ready, has_credit, WaitState.WAIT_CREDIT),
        (has_credit, start, own),
    )
    parts = [_stretches(a, b, operator, np.where(known, state, WaitState.UNKNOWN)) for a, b, state in waits]
    parts.append(_stretches(start, np.maximum(reached, start), operator, under_way))
    # After the lane's last message of an operator, or where the lane had none, and before its first while
    # it still sends what belongs to an operator that overlaps this one.
    last = opened.copy()
    np.maximum.at(last, operator, np.maximum(reached, start))
    numbers = np.arange(len(closed))
    parts.append(_stretches(last, closed, numbers, WaitState.COMPLETE))
    parts.append(_stretches(begin[first], idle_from[first], operator[first], WaitState.COMPLETE))
    return np.concatenate(parts)


def _stretches(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    operator: NDArray[np.int64],
    state: NDArray[np.int64] | WaitState,
) -> Table:
    out = np.zeros(len(start), STRETCH)
    out["start"], out["end"], out["operator"], out["state"] = start, end, operator, state
    return out[end > start]


def _operator_of(timeline: GroupTimeline, lane: Lane) -> NDArray[np.int64]:
    """The operator of each of a lane's messages."""
    rows = np.concatenate([o.rows for o in timeline.operators])
    number = np.repeat(np.arange(len(timeline.operators)), [len(o.rows) for o in timeline.operators])
    order = np.argsort(rows)
    return number[order[np.searchsorted(rows[order], lane.rows)]]


def _transfer_state(
    traffic: Traffic, lane: Lane, lost: NDArray[np.int64], congested: NDArray[np.bool_]
) -> NDArray[np.int64]:
    t = traffic.transfers[lane.rows]
    took = arrival(t) - send_start(t)
    slow = took > np.median(took)
    state = np.where(slow & congested[lane.rows], WaitState.PACED, WaitState.TRANSFER)
    return np.where(np.isin(lane.rows, lost), WaitState.REPAIR, state)
