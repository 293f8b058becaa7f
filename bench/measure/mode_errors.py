# SPDX-License-Identifier: Apache-2.0
"""The error of each output of a meter in a partial capture mode, as a share of the full capture's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.estimates import sampled_bytes, sampled_counts, steered_windows
from dpu_app.wire.frame import CaptureKind, CaptureMode
from dpu_app.wire.pieces import spread_pieces
from dpu_app.wire.records import HistogramKind, MarkerKind, MessageFlag
from pulse_native import Interval, decode_series

Key = tuple[bytes, bytes, int]
Error = Callable[["View", "View"], "float | None"]

_PSN_MASK = (1 << 24) - 1
_GONE = -1


@dataclass(frozen=True)
class View:
    """What the meter made of the `packets` that a capture in this mode holds."""

    mode: CaptureMode
    packets: int
    interval: Interval

    @property
    def scale(self) -> int:
        """How many packets each one stands for."""
        return 1 << self.mode.sample_shift

    @cached_property
    def keys(self) -> list[Key]:
        """Who sends to whom, by row of the flows."""
        flows = self.interval.flows
        return [
            (row["src"].tobytes(), row["dst"].tobytes(), int(row["dest_qpn"]))
            for row in flows[["src", "dst", "dest_qpn"]]
        ]

    @cached_property
    def windows(self) -> NDArray[np.void]:
        """WINDOW records: spread over messages in a steered capture, else as counted."""
        interval = self.interval
        if self.mode.kind is CaptureKind.STEERED:
            return steered_windows(interval.messages, interval.controls, interval.window_ns)
        return spread_pieces(decode_series(interval.series, interval.window_ns), interval.window_ns)

    def rows_of(self, full: View) -> NDArray[np.intp]:
        """The row of each of the full view's flows among those of this one, or -1."""
        places = {key: row for row, key in enumerate(self.keys)}
        return np.array([places.get(key, _GONE) for key in full.keys], np.intp)

    def column(self, name: str, full: View) -> NDArray[np.float64]:
        """A count of each of the full view's flows; 0 where nothing of the flow was taken."""
        return np.append(self.interval.flows[name].astype(np.float64), 0.0)[self.rows_of(full)]

    def numbers_in(self, full: View, flow: NDArray[Any]) -> NDArray[np.int64]:
        """The full view's numbers of these flows."""
        own = self.interval.flows["flow"]
        rows = self.rows_of(full)
        theirs = np.full(len(own), _GONE, np.int64)
        theirs[rows[rows != _GONE]] = full.interval.flows["flow"][rows != _GONE]
        numbers: NDArray[np.int64] = theirs[np.searchsorted(own, flow)]
        return numbers


def _relative(estimate: NDArray[Any], truth: NDArray[Any]) -> float | None:
    total = float(np.abs(truth).sum())
    return float(np.abs(estimate - truth).sum()) / total if total else None


def packets_taken(view: View, full: View) -> float | None:
    """Share of the packets that the capture holds: what it costs."""
    return view.packets / full.packets


def flow_bytes(view: View, full: View) -> float | None:
    """Payload of each flow."""
    return _relative(view.column("data_bytes", full) * view.scale, full.column("data_bytes", full))


def flow_bytes_error_bar(view: View, full: View) -> float | None:
    """Share of flows whose payload lies within two standard errors of the estimate; None when it has none."""
    if view.mode.kind is not CaptureKind.SAMPLED:
        return None
    taken = view.column("data_bytes", full)
    estimate = sampled_bytes(taken, _largest_packet(view), view.mode.sample_shift)
    seen = taken > 0
    off = np.abs(estimate.value - full.column("data_bytes", full))
    return float((off <= 2 * estimate.error)[seen].mean())


def _largest_packet(view: View) -> float:
    windows = view.windows[view.windows["packets"] > 0]
    return float((windows["bytes"] / windows["packets"]).max())


def flow_packets(view: View, full: View) -> float | None:
    """Packets of each flow that carry data; a steered capture tells them by the advance of the PSN."""
    truth = full.column("data_packets", full)
    if view.mode.kind is CaptureKind.STEERED:
        first, behind = (view.column(name, full).astype(np.int64) for name in ("psn_first", "psn_next"))
        return _relative((behind - first) & _PSN_MASK, truth)
    taken = view.column("data_packets", full)
    return _relative(sampled_counts(taken, view.mode.sample_shift).value, truth)


def _matched(table: str, time: str, view: View, full: View) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Rows of both views that begin at the same PSN and flow."""

    def keyed(one: View) -> dict[tuple[int, int, int], int]:
        rows = getattr(one.interval, table)
        flow = one.numbers_in(full, rows["flow"])
        return {
            key: row
            for row, key in enumerate(
                zip(flow.tolist(), rows["psn"].tolist(), rows["life"].tolist(), strict=True)
            )
        }

    ours, theirs = keyed(view), keyed(full)
    both = [(ours[key], row) for key, row in theirs.items() if key in ours]
    picked = np.array(both, np.intp).reshape(-1, 2)
    return getattr(view.interval, table)[picked[:, 0]], getattr(full.interval, table)[picked[:, 1]]


def messages_missing(view: View, full: View) -> float | None:
    """Share of messages of which start, end or length is not known as in the full capture."""
    ours, theirs = _matched("messages", "start_ns", view, full)
    if not len(full.interval.messages):
        return None
    same = np.ones(len(ours), np.bool_)
    for name in ("start_ns", "end_ns", "bytes"):
        same &= ours[name] == theirs[name]
    ends = MessageFlag.NO_START | MessageFlag.NO_END
    same &= (ours["flags"] & ends) == (theirs["flags"] & ends)
    return 1 - float(same.sum()) / len(full.interval.messages)


def controls_missing(view: View, full: View) -> float | None:
    """Share of control messages that are not there."""
    if not len(full.interval.controls):
        return None
    return 1 - len(_matched("controls", "ns", view, full)[0]) / len(full.interval.controls)


def windows_error(view: View, full: View) -> float | None:
    """Bytes of each flow in each window: half of this share lies in the wrong window."""
    sums: dict[tuple[int, int], float] = {}
    for one, sign in ((view, view.scale), (full, -1)):
        rows = one.windows
        flow = one.numbers_in(full, rows["flow"])
        keys = zip(
            flow.tolist(), rows["start_ns"].tolist(), (rows["bytes"] * float(sign)).tolist(), strict=True
        )
        for number, start_ns, size in keys:
            sums[number, start_ns] = sums.get((number, start_ns), 0.0) + size
    total = float(full.windows["bytes"].sum(dtype=np.float64))
    return sum(abs(size) for size in sums.values()) / total if total else None


def bursts_error(view: View, full: View) -> float | None:
    """Number of bursts of each flow."""

    def counts(one: View) -> NDArray[np.int64]:
        numbers = one.numbers_in(full, one.interval.bursts["flow"])
        return np.array([(numbers == flow).sum() for flow in full.interval.flows["flow"]], np.int64)

    return _relative(counts(view), counts(full))


def burst_time_error(view: View, full: View) -> float | None:
    """Time within bursts, all flows together."""
    active = [
        float((one.interval.bursts["last_ns"] - one.interval.bursts["first_ns"]).sum())
        for one in (view, full)
    ]
    return abs(active[0] - active[1]) / active[1] if active[1] else None


def markers_missing(kinds: tuple[MarkerKind, ...], view: View, full: View) -> float | None:
    """Share of markers of these kinds that are not there."""
    wanted = [int(kind) for kind in kinds]

    def keys(one: View) -> set[tuple[Any, ...]]:
        rows = one.interval.markers
        rows = rows[np.isin(rows["kind"], wanted)]
        flow = one.numbers_in(full, rows["flow"])
        return set(zip(flow.tolist(), *(rows[n].tolist() for n in ("ns", "psn", "kind")), strict=True))

    truth = keys(full)
    return len(truth - keys(view)) / len(truth) if truth else None


def count_error(names: tuple[str, ...], view: View, full: View) -> float | None:
    """Counts of the flows of these names."""
    estimate = sum(view.column(name, full) for name in names) * float(view.scale)
    return _relative(np.asarray(estimate), np.asarray(sum(full.column(name, full) for name in names)))


def histogram_error(kind: HistogramKind, view: View, full: View) -> float | None:
    """Share of a histogram of all flows that lies in another cell, each histogram scaled to 1."""

    def shares(one: View) -> NDArray[np.float64] | None:
        rows = one.interval.histograms
        rows = rows[rows["kind"] == int(kind)]
        cells = np.bincount(rows["cell"], weights=rows["count"], minlength=64)
        return cells / cells.sum() if cells.sum() else None

    ours, theirs = shares(view), shares(full)
    if theirs is None:
        return None
    return 1.0 if ours is None else float(np.abs(ours - theirs).sum()) / 2


ERRORS: Mapping[str, Error] = {
    "share of packets taken": packets_taken,
    "bytes per flow": flow_bytes,
    "within two standard errors": flow_bytes_error_bar,
    "data packets per flow": flow_packets,
    "messages without start, end or length": messages_missing,
    "bytes per window": windows_error,
    "bursts per flow": bursts_error,
    "time within bursts": burst_time_error,
    "controls missing": controls_missing,
    "markers missing, messages": partial(
        markers_missing, (MarkerKind.FIRST, MarkerKind.ONLY, MarkerKind.CONTROL)
    ),
    "markers missing, ACK and NAK": partial(markers_missing, (MarkerKind.ACK, MarkerKind.NAK)),
    "markers missing, data": partial(markers_missing, (MarkerKind.DATA,)),
    "repeated packets": partial(count_error, ("repeat_packets",)),
    "missing or late packets": partial(count_error, ("gap_psns", "late_packets")),
    "NAK and RNR": partial(count_error, ("nak_sequence", "nak_other", "rnr")),
    "CNP": partial(count_error, ("cnp",)),
    "ECN marks": partial(count_error, ("ecn_ce",)),
    "histogram of gaps": partial(histogram_error, HistogramKind.GAP_NS),
    "histogram of message sizes": partial(histogram_error, HistogramKind.MESSAGE_BYTES),
    "histogram of ACK latencies": partial(histogram_error, HistogramKind.ACK_NS),
}
"""By output; None where the full capture, or the mode, has nothing to compare."""
