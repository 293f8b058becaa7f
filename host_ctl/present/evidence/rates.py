# SPDX-License-Identifier: Apache-2.0
"""What NICs sent in every part of a short time: from the windows of their frames, or from their messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.errors import FrameFormatError
from dpu_app.wire.pieces import spread_pieces
from host_ctl.ingest.series import NicSeries
from host_ctl.reconstruct.transfers import MISSING, Traffic

_NO_RATE = np.empty(0)


@dataclass(frozen=True, slots=True)
class Rate:
    """Gbit/s per bin of one NIC; empty when no capture has windows of what it sent."""

    endpoint: int
    gbps: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of several NICs in bins of ``bin_ns`` from ``begin_ns`` on (common clock)."""

    begin_ns: int
    bin_ns: int
    bins: int
    curves: tuple[Rate, ...]


def window_ns(traffic: Traffic) -> int:
    """The widest of the windows that the frames carry; 0 when there are none."""
    widths = [f.tables.window_blob.window_ns for s in traffic.series for f in s.frames[:1]]
    return max(widths, default=0)


def rates(traffic: Traffic, endpoints: list[int], begin_ns: int, end_ns: int, most_bins: int) -> Rates:
    """What NICs sent in [begin, end), in bins of whole windows, no more than ``most_bins``."""
    width = max(1, window_ns(traffic))
    bin_ns = width * max(1, -(-(end_ns - begin_ns) // (width * most_bins)))
    bins = max(1, -(-(end_ns - begin_ns) // bin_ns))
    curves = [Rate(e, _sent(traffic, e, begin_ns, bin_ns, bins)) for e in endpoints]
    return Rates(begin_ns, bin_ns, bins, tuple(curves))


def message_rates(
    traffic: Traffic, endpoints: list[int], begin_ns: int, end_ns: int, most_bins: int
) -> Rates:
    """The same without windows: every message is spread evenly from its start to its end, at its sender."""
    bin_ns = max(1, -(-(end_ns - begin_ns) // most_bins))
    bins = max(1, -(-(end_ns - begin_ns) // bin_ns))
    t = traffic.transfers
    start = np.where(t["tx_start"] != MISSING, t["tx_start"], t["rx_start"])
    end = np.maximum(np.where(t["tx_end"] != MISSING, t["tx_end"], t["rx_end"]), start + 1)
    near = (start < begin_ns + bins * bin_ns) & (end > begin_ns)
    source = np.array(traffic.edges).reshape(-1, 2)[t["edge"], 0]
    curves = []
    for endpoint in endpoints:
        mine = near & (source == endpoint)
        sent = _spread(start[mine] - begin_ns, end[mine] - begin_ns, t["bytes"][mine], bin_ns, bins)
        curves.append(Rate(endpoint, sent * 8.0 / bin_ns))
    return Rates(begin_ns, bin_ns, bins, tuple(curves))


def _spread(
    start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.uint64], bin_ns: int, bins: int
) -> NDArray[np.float64]:
    """Bytes in every bin: what has been sent by a time is straight between begins and ends of messages."""
    if not len(start):
        return np.zeros(bins)
    rate = size / (end - start)
    times, rates = np.concatenate([start, end]), np.concatenate([rate, -rate])
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(rates[order])
    sent = np.r_[0.0, np.cumsum(slope[:-1] * np.diff(times))]
    return np.asarray(np.diff(np.interp(np.arange(bins + 1) * bin_ns, times, sent)))


def _sent(traffic: Traffic, endpoint: int, begin_ns: int, bin_ns: int, bins: int) -> NDArray[np.float64]:
    """As the NIC's own capture saw it; what that does not show, as the receivers' did."""
    flows: dict[int, set[int]] = {}
    for link in traffic.links:
        if link.src != endpoint:
            continue
        own, far = traffic.endpoints[link.src].series, traffic.endpoints[link.dst].series
        if own is not None and link.sender_flow is not None:
            flows.setdefault(own, set()).add(link.sender_flow)
        elif far is not None and link.receiver_flow is not None:
            flows.setdefault(far, set()).add(link.receiver_flow)
    total, seen = np.zeros(bins), False
    for series, chosen in flows.items():
        for at, size in _windows(traffic, series, chosen, begin_ns, begin_ns + bins * bin_ns):
            place = (at - begin_ns) // bin_ns
            inside = (place >= 0) & (place < bins)
            total += np.bincount(place[inside], weights=size[inside], minlength=bins)
            seen = True
    return total * 8.0 / bin_ns if seen else _NO_RATE


def _windows(
    traffic: Traffic, number: int, flows: set[int], begin_ns: int, end_ns: int
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Middles (common ns) and bytes of the windows of some flows, frame by frame."""
    series: NicSeries = traffic.series[number]
    clock, found = traffic.clocks[number], []
    for frame in series.frames:
        span = clock.to_common(np.array([frame.begin_ns, frame.end_ns]))
        if span[1] < begin_ns or span[0] > end_ns:
            continue
        try:
            pieces = frame.tables.pieces()
        except FrameFormatError:
            continue  # a frame with damaged windows counts as one without
        if not len(pieces):
            continue
        width = frame.tables.window_blob.window_ns
        at = clock.to_common(pieces["start_ns"])
        near = (at < end_ns) & (at + pieces["windows"].astype(np.int64) * width > begin_ns)
        windows = spread_pieces(pieces[near & np.isin(pieces["flow"], list(flows))], width)
        middle = clock.to_common(windows["start_ns"] + width // 2)
        found.append((middle, windows["bytes"].astype(np.float64)))
    return found
