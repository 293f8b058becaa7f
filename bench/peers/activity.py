# SPDX-License-Identifier: Apache-2.0
"""Bytes over time, from the frames of software DPUs: what port counters and per-QP byte counters would show.

Every message of a NIC, sent or received, with its beginning, end and bytes; within a message bytes are taken
to flow evenly, which holds to well below the resolutions used here. Times are those of one perfect clock: the
error of each NIC's clock is taken out by means of the truth, as methods that poll from the host need none of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.operator_log import Table
from dpu_app.wire.frame_file import read_frames
from host_ctl.ingest.series import NicSeries, join_frames

NOBODY = -1
MESSAGE = np.dtype(
    [
        ("port", "<u4"),  # index into Activity.ports
        ("sent", "?"),  # else received
        ("rank", "<i4"),  # whose data it is, when sent by a connection of a job; else NOBODY
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("bytes", "<i8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Port:
    """One NIC that was measured."""

    machine: str
    nic: str
    jobs: frozenset[int]


@dataclass(frozen=True, slots=True)
class Activity:
    """All messages of all ports, in the order of their beginning."""

    ports: tuple[Port, ...]
    messages: Table


def activity(truth: Mapping[str, Any], frames: Sequence[Path]) -> Activity:
    """What went through every port of a simulated run."""
    owners = _owners(truth)
    ports: list[Port] = []
    parts: list[Table] = []
    for path in sorted(frames):
        with path.open("rb") as file:
            series = join_frames(list(read_frames(file)))
        nic = next(n for n in truth["nics"] if _measured_at(n, series))
        here = [r for r in truth["ranks"] if (r["node"], r["rail"]) == (nic["node"], nic["rail"])]
        parts.append(_messages(truth, nic, series, owners, len(ports)))
        ports.append(Port(series.machine, series.nic, frozenset(r["job"] for r in here)))
    messages = np.concatenate(parts) if parts else np.zeros(0, MESSAGE)
    return Activity(tuple(ports), messages[np.argsort(messages["begin_ns"], kind="stable")])


def _measured_at(nic: Mapping[str, Any], series: NicSeries) -> bool:
    return not nic["external"] and (
        f"node{nic['node']}" == series.machine and series.nic in ("", nic["device"])
    )


def _owners(truth: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """The rank that sends on each connection, by where it goes; known from how connections are set up."""
    return {
        (pair["peer_ip"], pair["peer_qpn"]): rank["number"]
        for rank in truth["ranks"]
        for pair in rank["qps"]
        if pair["role"] == "data_sender"
    }


def _messages(
    truth: Mapping[str, Any],
    nic: Mapping[str, Any],
    series: NicSeries,
    owners: Mapping[tuple[str, int], int],
    port: int,
) -> Table:
    flows = {int(flow["flow"]): flow for flow in series.flows}
    sent = {number: _text(flow["src"]) == nic["ip"] for number, flow in flows.items()}
    rank = {
        number: owners.get((_text(flow["dst"]), int(flow["dest_qpn"])), NOBODY) if sent[number] else NOBODY
        for number, flow in flows.items()
    }
    rows = series.messages
    out = np.zeros(len(rows), MESSAGE)
    out["port"] = port
    out["sent"] = [sent[flow] for flow in rows["flow"].tolist()]
    out["rank"] = [rank[flow] for flow in rows["flow"].tolist()]
    name = f"node{nic['node']}/{nic['device']}"
    out["begin_ns"] = true_ns(truth, name, rows["start_ns"])
    out["end_ns"] = np.maximum(true_ns(truth, name, rows["end_ns"]), out["begin_ns"])
    out["bytes"] = rows["bytes"]
    return out


def _text(address: NDArray[np.uint8]) -> str:
    return ".".join(str(part) for part in address[12:].tolist())


def true_ns(truth: Mapping[str, Any], nic: str, shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Times of a NIC's clock as true ones."""
    clock = truth["clock_error"]
    true_points, shown_points = (
        np.array(side) for side in zip(*clock["per_nic"][nic]["points"], strict=True)
    )
    since = (shown.astype(np.int64) - shown_points[0]).astype(np.float64)
    points = (shown_points - shown_points[0]).astype(np.float64)
    inside = np.interp(since, points, true_points.astype(np.float64))
    beyond = np.maximum(since - points[-1], 0.0) + np.minimum(since - points[0], 0.0)
    result: NDArray[np.int64] = (inside + beyond).astype(np.int64) + clock["t_start_ns"]
    return result


def spread(rows: Table, begin_ns: int, width_ns: float, bins: int) -> NDArray[np.float64]:
    """The bytes of messages per time bin."""
    edges = width_ns * np.arange(bins + 1)
    if not len(rows):
        return np.zeros(bins)
    # The sum of ramps, one per message, at every edge; bins are differences of it. Times since the beginning
    # of the bins, as floats cannot hold epoch nanoseconds.
    begin = (rows["begin_ns"] - begin_ns).astype(np.float64)
    end = (rows["end_ns"] - begin_ns + 1).astype(np.float64)
    rate = rows["bytes"] / (end - begin)
    times = np.r_[begin, end]
    slopes = np.r_[rate, -rate]
    order = np.argsort(times, kind="stable")
    times, slopes = times[order], np.cumsum(slopes[order])
    totals = np.r_[0.0, np.cumsum(slopes[:-1] * np.diff(times))]
    filled: NDArray[np.float64] = np.diff(np.interp(edges, times, totals))
    return filled
