# SPDX-License-Identifier: Apache-2.0
"""The wait states of every edge of every operator: where each nanosecond went.

From the first packet of an operator in its group to the last, each instant of each edge is in exactly one
state, so that an edge's states sum to the operator's duration:

- ``TRANSFER``: a message is under way; ``REPAIR`` when it had to be repeated, ``PACED`` when congestion
  was signalled for it and it took longer than usual;
- ``WAIT_UPSTREAM``: the sender has not yet got what it needs for its next message;
- ``WAIT_CREDIT``: it has, but the receiver has granted no credit;
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
from host_ctl.attribute.program import Lane, Program
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


def wait_states(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], repairs: Table
) -> tuple[StateTimes, ...]:
    """The wait states of all operators of a job, one table per group."""
    lost = np.unique(repairs["row"][repairs["place"] != LossPlace.NOT_LOST])
    congested = congested_transfers(traffic)
    found = []
    for number, timeline in enumerate(program.job.timelines):
        edges = timeline.group.edges
        ns = np.zeros((len(timeline.operators), len(edges), len(WaitState)), dtype=np.int64)
        mine = [(lane, gate) for lane, gate in zip(program.lanes, gates, strict=True) if lane.group == number]
        for position, edge in enumerate(edges):
            channels = [(lane, gate) for lane, gate in mine if lane.edge == edge]
            whole = sum(
                (_lane_states(traffic, timeline, lane, gate, lost, congested) for lane, gate in channels),
                start=ns[:, position],
            )
            ns[:, position] = _shared_out(whole, len(channels))
        found.append(StateTimes(number, edges, ns))
    return tuple(found)


def _shared_out(ns: NDArray[np.int64], channels: int) -> NDArray[np.int64]:
    """The mean over an edge's channels, in whole ns, with what rounding leaves in the largest state."""
    mean = ns // channels
    rest = ns.sum(axis=1) // channels - mean.sum(axis=1)
    mean[np.arange(len(mean)), mean.argmax(axis=1)] += rest
    return mean


def _lane_states(
    traffic: Traffic,
    timeline: GroupTimeline,
    lane: Lane,
    gate: Gates,
    lost: NDArray[np.int64],
    congested: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """One lane's time per state, ``ns[operator, state]``."""
    ns = np.zeros((len(timeline.operators), len(WaitState)), dtype=np.int64)
    t = traffic.transfers[lane.rows]
    operator = _operator_of(timeline, lane)
    begin = np.array([o.start_ns for o in timeline.operators])[operator]
    finish = np.array([o.end_ns for o in timeline.operators])
    reached = np.minimum(np.maximum.accumulate(arrival(t)), finish[operator])
    idle_from = np.maximum(np.r_[begin[0], reached[:-1]], begin)
    start = np.minimum(np.maximum(send_start(t), idle_from), finish[operator])
    known = (gate.input_ns != MISSING) | (gate.credit_ns != MISSING)
    has_input = np.clip(gate.input_ns, idle_from, start)
    has_credit = np.clip(gate.credit_ns, has_input, start)
    first = np.r_[True, operator[1:] != operator[:-1]]
    own = np.where(first, WaitState.NOT_STARTED, WaitState.WAIT_SENDER)
    parts = (
        (np.where(known, WaitState.WAIT_UPSTREAM, WaitState.UNKNOWN), has_input - idle_from),
        (np.where(known, WaitState.WAIT_CREDIT, WaitState.UNKNOWN), has_credit - has_input),
        (np.where(known, own, WaitState.UNKNOWN), start - has_credit),
        (_transfer_state(traffic, lane, lost, congested), np.maximum(reached - start, 0)),
    )
    for state, length in parts:
        np.add.at(ns, (operator, state), length)
    # What is left of each operator after the lane's last message; all of it where the lane had none.
    ns[:, WaitState.COMPLETE] += finish - np.array([o.start_ns for o in timeline.operators]) - ns.sum(axis=1)
    return ns


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
