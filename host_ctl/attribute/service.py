# SPDX-License-Identifier: Apache-2.0
"""How long messages take by themselves: what they share a port with taken out.

Messages that leave or enter one port at the same time share its rate, so that each takes long although
nothing is slow: what a late rank has piled up, the two children of a node in a tree, several channels. By
itself a message takes the part of its time that falls to it when all that is under way through the port
gets an equal part. Of its two ports the busier one decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.program import Program
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start

_QUICKEST = 0.01


def service_times(traffic: Traffic, program: Program) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For every transfer of the job how long it was under way beyond its edge's quickest, and how long it
    would have been with its ports for itself (ns); 0 for transfers of other jobs."""
    rows = np.concatenate([lane.rows for lane in program.lanes])
    t = traffic.transfers[rows]
    start = send_start(t)
    end = np.maximum(arrival(t) - _least_transit(t), start)
    ends = np.array(traffic.edges).reshape(-1, 2)[t["edge"]]
    own = np.minimum(_own_part(start, end, ends[:, 0]), _own_part(start, end, ends[:, 1]))
    took, alone = np.zeros(len(traffic.transfers), np.int64), np.zeros(len(traffic.transfers))
    took[rows], alone[rows] = end - start, own
    return took, alone


def _own_part(
    start: NDArray[np.int64], end: NDArray[np.int64], port: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The integral over each message's time of 1 / (messages under way through its port)."""
    out = np.zeros(len(start))
    for one in np.unique(port):
        mine = np.flatnonzero(port == one)
        begin = int(start[mine].min())
        times = np.concatenate([start[mine], end[mine]]) - begin
        change = np.r_[np.ones(len(mine)), -np.ones(len(mine))]
        order = np.lexsort((-change, times))
        active = np.cumsum(change[order])[:-1]
        at = times[order].astype(np.float64)
        part = np.r_[0.0, np.cumsum(np.diff(at) / np.maximum(active, 1.0))]
        # Where several events share a time, the integral is the same at all of them.
        out[mine] = np.interp(end[mine] - begin, at, part) - np.interp(start[mine] - begin, at, part)
    return out


def _least_transit(t: np.ndarray) -> NDArray[np.int64]:
    """The least time from an edge's sender to its receiver, per transfer (ns), 0 where one end is unseen.

    Two clocks can be compared to within the asymmetry of their paths only, and that error is the same for
    every message of an edge. Its least transit is therefore taken out: what counts is how much longer a
    message takes than the quickest.
    """
    seen = (t["tx_start"] != MISSING) & (t["rx_start"] != MISSING)
    transit = np.where(seen, t["rx_start"] - t["tx_start"], 0)
    out = np.zeros(len(t), dtype=np.int64)
    for edge in np.unique(t["edge"]):
        mine = (t["edge"] == edge) & seen
        if mine.any():
            out[mine] = np.quantile(transit[mine], _QUICKEST).astype(np.int64)
    return out
