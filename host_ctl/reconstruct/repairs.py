# SPDX-License-Identifier: Apache-2.0
"""Finds lost and repeated packets, says between which two points they were lost, and mends the times.

A reliable connection repeats what was lost, so that a hole in one view which is never filled is a loss of
the capture, not of the network. What is filled later was lost for certain: before the sender's tap when
the sender's own view has the hole, between the taps when the sender's view has the packet twice and the
receiver's only once. A packet that the receiver saw twice was repeated without need (its acknowledgement
was late or lost).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import EventKind, MessageFlag
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import MISSING, Traffic, send_start, short_way

_PSN_MASK = 0xFFFFFF
_AT_ONCE = 2.0  # times the spacing of the packets themselves


class LossPlace(IntEnum):
    """Where a repeated packet had been lost."""

    BEFORE_SENDER_TAP = 1
    BETWEEN_TAPS = 2
    NOT_LOST = 3
    UNKNOWN = 4


REPAIR = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("row", "<i8"),
        ("last_row", "<i8"),
        ("position", "<i8"),
        ("link", "<u4"),
        ("packets", "<u4"),
        ("repeated", "<u4"),
        ("place", "u1"),
        ("reverse", "u1"),
    ]
)
"""One run of repeated packets of a link: ns on the common clock, the transfer that it held up first.

``position`` is that of the first repeated packet, ``last_row`` the last transfer of which packets were
repeated with it. ``packets`` counts those that were lost, or all where none was, ``repeated`` all of the run.
``reverse`` marks repeats of credits, which travel from the link's destination to its source.
"""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Repeated or late packets of one view of one link, positions unwrapped, times common."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    position: NDArray[np.int64]
    count: NDArray[np.int64]
    late: NDArray[np.bool_]


def mend(traffic: Traffic) -> tuple[Traffic, Table]:
    """The traffic with the true ends of repaired transfers, and the table of repairs (REPAIR)."""
    transfers = traffic.transfers.copy()
    first_row = np.searchsorted(transfers["link"], np.arange(len(traffic.links) + 1))
    parts = []
    for number, link in enumerate(traffic.links):
        rows = slice(int(first_row[number]), int(first_row[number + 1]))
        table = transfers[rows]
        sent = _runs(traffic, link.src, link.sender_flow, table)
        got = _runs(traffic, link.dst, link.receiver_flow, table)
        for runs, end in ((sent, "tx_end"), (got, "rx_end")):
            if runs is not None:
                _extend(table, runs, end)
        parts.append(_repairs(number, int(first_row[number]), table, sent, got))
        _wait_for_receiver(table, sent, got, _refusals(traffic, number))
        parts.append(_credit_repairs(traffic, number, int(first_row[number]), table))
    repairs = np.concatenate(parts) if parts else np.empty(0, REPAIR)
    return replace(traffic, transfers=transfers), repairs[np.argsort(repairs["start"], kind="stable")]


def _runs(traffic: Traffic, endpoint: int, flow: int | None, table: Table) -> _Runs | None:
    series = traffic.endpoints[endpoint].series
    if series is None or flow is None or not len(table):
        return None
    events = traffic.series[series].events
    events = events[events["flow"] == flow]
    disorder = _only_disorder(events)
    events = events[np.isin(events["kind"], (EventKind.REPEAT, EventKind.LATE)) & ~disorder]
    start = traffic.clocks[series].to_common(events["start_ns"])
    end = traffic.clocks[series].to_common(events["end_ns"])
    began = send_start(table)
    near = np.clip(np.searchsorted(began, start, side="right") - 1, 0, len(table) - 1)
    reference = table["position"][near]
    step = short_way(events["psn"].astype(np.int64) - reference)
    late = events["kind"] == EventKind.LATE
    return _Runs(start, end, reference + step, events["count"].astype(np.int64), late)


def _only_disorder(events: Table) -> NDArray[np.bool_]:
    """Late packets that no repair can have brought, since they follow the jump that made them late at once.

    One packet far ahead of the rest is a header damaged in the capture, or a path of its own through the
    fabric: what it jumped over comes right behind it. A repair takes a round trip at the least.
    """
    found = np.zeros(len(events), dtype=bool)
    gaps = events[events["kind"] == EventKind.GAP]
    for k in np.flatnonzero((events["kind"] == EventKind.LATE) & (events["count"] > 1)):
        run = events[k]
        spacing_ns = (run["end_ns"] - run["start_ns"]) / (run["count"] - 1)
        # The damaged packet itself is missing where it belongs, at the beginning.
        begins = (run["psn"].astype(np.int64) - gaps["psn"] & _PSN_MASK) <= 1
        waited_ns = run["start_ns"] - gaps["start_ns"][begins]
        found[k] = bool(((waited_ns >= 0) & (waited_ns <= _AT_ONCE * spacing_ns)).any())
    return found


def _extend(table: Table, runs: _Runs, column: str) -> None:
    """A transfer has arrived (left) only when its repeated packets have: move its end, flag it."""
    for k in range(len(runs.start)):
        first = int(np.searchsorted(table["position"], runs.position[k], side="right")) - 1
        last = int(np.searchsorted(table["position"], runs.position[k] + runs.count[k], side="left"))
        part = table[max(first, 0) : max(last, first + 1)]
        part["flags"] |= np.uint8(MessageFlag.REPEATED)
        known = part[column] != MISSING
        # Repeats of one run leave in order; each transfer in it ends by the end of the run at the latest.
        part[column][known] = np.maximum(part[column][known], runs.start[k])


def _refusals(traffic: Traffic, number: int) -> NDArray[np.int64]:
    """When the receiver of a link said that it is not ready (RNR), as its sender saw that (common ns)."""
    link = traffic.links[number]
    series = traffic.endpoints[link.src].series
    if series is None or link.answered_flow is None:
        return np.empty(0, np.int64)
    events = traffic.series[series].events
    refused = events[(events["flow"] == link.answered_flow) & (events["kind"] == EventKind.RNR)]
    return np.sort(traffic.clocks[series].to_common(refused["end_ns"]))


def _wait_for_receiver(
    table: Table, sent: _Runs | None, got: _Runs | None, refused: NDArray[np.int64]
) -> None:
    """A transfer that was refused is under way from when it was sent again; until then it waited for credit.

    Of a run of repeats that were refused in between only the end is known to have been taken.
    """
    for runs, start, credit in ((sent, "tx_start", "credit_rx"), (got, "rx_start", "credit_tx")):
        if runs is None or not len(refused):
            continue
        at = np.searchsorted(table["position"], runs.position, side="right") - 1
        by_start, by_end = (np.searchsorted(refused, t, side="right") for t in (runs.start, runs.end))
        sent_again = np.where(by_end > by_start, runs.end, runs.start)
        before = np.searchsorted(refused, sent_again, side="right")
        for k in np.flatnonzero((at >= 0) & ~runs.late):
            row = table[at[k] : at[k] + 1]
            first = row[start][0]
            if first != MISSING and before[k] > np.searchsorted(refused, first, side="left"):
                row[start] = row[credit] = max(first, sent_again[k])


def _credit_repairs(traffic: Traffic, number: int, first_row: int, table: Table) -> Table:
    """Repeats of the credits of a link; each holds up the transfer that was granted next."""
    link = traffic.links[number]
    granted = np.where(table["credit_rx"] != MISSING, table["credit_rx"], table["credit_tx"])
    granted = np.maximum.accumulate(granted)
    sent = _runs(traffic, link.dst, link.granting_flow, table)
    got = _runs(traffic, link.src, link.granted_flow, table)
    out = _repairs(number, first_row, table, sent, got)
    out["row"] = first_row + np.clip(np.searchsorted(granted, out["start"]), 0, max(0, len(table) - 1))
    out["last_row"] = out["row"]
    out["reverse"] = 1
    return out


def _repairs(number: int, first_row: int, table: Table, sent: _Runs | None, got: _Runs | None) -> Table:
    runs = sent if sent is not None else got
    if runs is None or not len(runs.start):
        return np.empty(0, REPAIR)
    out = np.zeros(len(runs.start), REPAIR)
    out["start"], out["end"], out["packets"] = runs.start, runs.end, runs.count
    out["repeated"] = runs.count
    out["link"], out["position"] = number, runs.position
    at = np.clip(np.searchsorted(table["position"], runs.position, side="right") - 1, 0, None)
    out["row"] = first_row + at
    last = np.searchsorted(table["position"], runs.position + runs.count, side="left") - 1
    out["last_row"] = first_row + np.maximum(last, at)
    if sent is None:
        out["place"] = np.where(runs.late, LossPlace.UNKNOWN, LossPlace.NOT_LOST)
        return out
    out["place"] = LossPlace.UNKNOWN
    out["place"][sent.late] = LossPlace.BEFORE_SENDER_TAP
    if got is not None:
        for k in np.flatnonzero(~sent.late):
            again = _seen_again(sent, got, int(k))
            lost = again < sent.count[k]
            out["place"][k] = LossPlace.BETWEEN_TAPS if lost else LossPlace.NOT_LOST
            out["packets"][k] = sent.count[k] - again if lost else sent.count[k]
    return out


def _seen_again(sent: _Runs, got: _Runs, k: int) -> int:
    """How many packets of one run of repeats the receiver saw that it had seen before.

    What is lost again is repeated again: of several runs that cover the same packets each brought what came
    after it and before the next.
    """
    position, count = int(sent.position[k]), int(sent.count[k])
    covers = (sent.position < position + count) & (sent.position + sent.count > position)
    later = sent.start[covers & (sent.start > sent.start[k])]
    until = int(later.min()) if len(later) else int(np.iinfo(np.int64).max)
    low = np.maximum(got.position, position)
    high = np.minimum(got.position + got.count, position + count)
    mine = ~got.late & (got.start >= sent.start[k]) & (got.start < until)
    return int(np.minimum(np.maximum(high - low, 0)[mine].sum(), count))
