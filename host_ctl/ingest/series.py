# SPDX-License-Identifier: Apache-2.0
"""What one NIC saw, joined over its frames: the input of every later stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire import records
from dpu_app.wire.frame import ClockInfo, Frame

Table = NDArray[np.void]

_UNKNOWN_CLOCK = ClockInfo("unknown")

JOINED_TABLES = ("flows", "messages", "controls", "markers", "events", "histograms")
"""What is joined over frames; the other tables stay in them until a view asks for them."""

# Totals that add up over intervals; identity and state fields are taken from the last frame.
_ADDITIVE = (
    "packets",
    "wire_bytes",
    "data_bytes",
    "repeat_bytes",
    "data_packets",
    "repeat_packets",
    "gap_psns",
    "late_packets",
    "messages",
    "controls",
    "read_requests",
    "acks",
    "duplicate_acks",
    "nak_sequence",
    "nak_other",
    "rnr",
    "cnp",
    "ecn_ce",
)


@dataclass(frozen=True, slots=True)
class NicSeries:
    """One NIC's records over the whole time, in its own clock.

    ``flows`` has one row per flow (totals), ordered by its ``flow`` index; the other tables are in time
    order and refer to it. ``addresses`` are the NIC's own; empty means that they are not known.
    ``witness_ns`` is the latest time at which the capture is known to have been running. ``clock_pairs`` are
    readings (NIC clock, system clock), ``clock`` is what drives the NIC's clock, as the last frame has it.
    """

    machine: str
    nic: str
    addresses: tuple[str, ...]
    mode: str
    flows: Table
    messages: Table
    controls: Table
    markers: Table
    events: Table
    ack_histogram: Table
    packets: int
    lost: int
    first_ns: int
    last_ns: int
    witness_ns: int
    frames: tuple[Frame, ...] = field(repr=False, default=())
    clock_pairs: tuple[tuple[int, int], ...] = field(repr=False, default=())
    clock: ClockInfo = _UNKNOWN_CLOCK
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``machine/nic``, or the machine alone when its only NIC has no name."""
        return f"{self.machine}/{self.nic}" if self.nic else self.machine


def join_frames(
    frames: Sequence[Frame],
    *,
    named: tuple[str, str, tuple[str, ...]] | None = None,
    witness_ns: int | None = None,
    packets: int = 0,
) -> NicSeries:
    """Join the frames of one NIC, in any order and with duplicates, into one series.

    ``named`` (machine, NIC, its addresses) goes before what the frames say of themselves. Raises ValueError
    when there is no frame or when they belong to different NICs.
    """
    if not frames:
        raise ValueError("a NIC without a single frame has no series")
    unique = {(f.boot_id, f.sequence): f for f in frames}
    ordered = sorted(unique.values(), key=lambda f: (f.begin_ns, f.sequence))
    names = {(f.nic.machine, f.nic.nic) for f in ordered}
    if len(names) != 1:
        raise ValueError(f"frames of different NICs cannot be joined: {sorted(names)}")
    machine, nic = names.pop()
    addresses: tuple[str, ...] = ()
    if named is not None:
        machine, nic, addresses = named
    tables = {name: _concatenated([getattr(f.tables, name) for f in ordered]) for name in JOINED_TABLES}
    flows = _sum_flows(tables["flows"])
    first = int(flows["first_ns"].min()) if len(flows) else ordered[0].begin_ns
    last = int(flows["last_ns"].max()) if len(flows) else ordered[-1].end_ns
    histogram = tables["histograms"]
    return NicSeries(
        machine=machine,
        nic=nic,
        addresses=addresses or tuple(sorted({a for f in ordered for a in f.nic.addresses})),
        mode=str(ordered[0].mode),
        flows=flows,
        messages=_by_time(tables["messages"], "start_ns"),
        controls=_by_time(tables["controls"], "ns"),
        markers=_by_time(tables["markers"], "ns"),
        events=_by_time(tables["events"], "start_ns"),
        ack_histogram=histogram[histogram["kind"] == records.HistogramKind.ACK_NS],
        packets=packets or int(flows["packets"].sum()),
        lost=sum(sum(f.losses.values()) for f in ordered),
        first_ns=first,
        last_ns=last,
        witness_ns=max(last, witness_ns or last),
        frames=tuple(ordered),
        clock_pairs=tuple(pair for f in ordered for pair in f.clock_pairs),
        clock=max(ordered, key=lambda f: f.sequence).clock,
    )


def _concatenated(tables: Sequence[Table]) -> Table:
    """Tables of one layout one after the other, as plain bytes: NumPy compares layouts field by field."""
    dtype = tables[0].dtype
    plain = np.concatenate([np.ascontiguousarray(t).view(f"V{dtype.itemsize}") for t in tables])
    joined: Table = plain.view(dtype)
    return joined


def _by_time(table: Table, column: str) -> Table:
    times = table[column]
    if bool((times[1:] >= times[:-1]).all()):
        return table  # as a rule: frames are in order, and so is what they hold
    return table[np.argsort(times, kind="stable")]


def _sum_flows(rows: Table) -> Table:
    """One row per flow index: sums of the additive totals, extremes of the times, last state."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows["last_ns"], rows["flow"]))]
    starts = np.flatnonzero(np.r_[True, rows["flow"][1:] != rows["flow"][:-1]])
    ends = np.r_[starts[1:], len(rows)] - 1
    out: Table = rows[ends].copy()
    for name in _ADDITIVE:
        out[name] = np.add.reduceat(rows[name], starts)
    out["first_ns"] = np.minimum.reduceat(rows["first_ns"], starts)
    out["psn_first"] = rows["psn_first"][starts]
    out["seen"] = np.bitwise_or.reduceat(rows["seen"], starts)
    return out
