# SPDX-License-Identifier: Apache-2.0
"""Transfers during which the network signalled congestion: CNPs to the sender, or marks on the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import EventKind
from host_ctl.reconstruct.transfers import Traffic, arrival, send_start


def congested_transfers(traffic: Traffic) -> NDArray[np.bool_]:
    """One flag per transfer. A CNP names the sender's queue pair, a mark travels with the data itself."""
    t = traffic.transfers
    start, end = send_start(t), arrival(t)
    found = np.zeros(len(t), dtype=bool)
    first = np.searchsorted(t["link"], np.arange(len(traffic.links) + 1))
    for number, link in enumerate(traffic.links):
        rows = slice(int(first[number]), int(first[number + 1]))
        for endpoint, flow, kind in (
            (link.src, link.granted_flow, EventKind.CNP),
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
