# SPDX-License-Identifier: Apache-2.0
"""Transfers that the network held back: CNPs to the sender or marks on the data, and what follows from them.

A sender that was told of congestion goes on slowly for a while after the last signal (DCQCN takes
milliseconds to recover, Zhu et al., SIGCOMM 2015), so that what it sends until it is quick again is slow for
the same reason.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import EventKind
from host_ctl.attribute.program import Program
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start

_SLOWER = 0.25


def paced_transfers(traffic: Traffic, program: Program, excess_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """One flag per transfer: congestion was signalled while it was under way, or before it and the lane has
    been slow ever since. ``excess_ns`` is by how much each took longer than usual."""
    paced = congested_transfers(traffic)
    t = traffic.transfers
    took = np.maximum(arrival(t) - send_start(t), 1)
    for lane in program.lanes:
        slow = excess_ns[lane.rows] >= _SLOWER * (took - excess_ns)[lane.rows]
        number = np.arange(len(lane.rows))
        signalled = np.maximum.accumulate(np.where(paced[lane.rows], number, -1))
        recovered = np.maximum.accumulate(np.where(slow, -1, number))
        paced[lane.rows] |= slow & (signalled > recovered)
    return paced


def congested_transfers(traffic: Traffic) -> NDArray[np.bool_]:
    """One flag per transfer. A CNP names the sender's queue pair, a mark travels with the data itself."""
    t = traffic.transfers
    start, end = send_start(t), arrival(t)
    found = np.zeros(len(t), dtype=bool)
    first = np.searchsorted(t["link"], np.arange(len(traffic.links) + 1))
    for number, link in enumerate(traffic.links):
        rows = slice(int(first[number]), int(first[number + 1]))
        for endpoint, flow, kind in (
            (link.src, link.answered_flow, EventKind.CNP),
            (link.dst, link.receiver_flow, EventKind.ECN_CE),
        ):
            series = traffic.endpoints[endpoint].series
            if series is None or flow is None:
                continue
            events = traffic.series[series].events
            chosen = events[(events["flow"] == flow) & (events["kind"] == kind)]
            begun = traffic.clocks[series].to_common(chosen["start_ns"])
            ended = np.sort(traffic.clocks[series].to_common(chosen["end_ns"]))
            # Runs of signals that began before the transfer's end, less those that ended before its start.
            running = np.searchsorted(np.sort(begun), end[rows], "right")
            found[rows] |= running > np.searchsorted(ended, start[rows], "left")
    return found
