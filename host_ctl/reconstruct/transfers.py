# SPDX-License-Identifier: Apache-2.0
"""Joins what the two ends of every flow saw into one table of data transfers.

A *transfer* is one message of training data: the bulk write of a slot together with the zero-length
write-with-immediate that completes it, where the stack uses one. Each carries the times of both ends
and of the credit that allowed it. Small control writes that run against the data of their connection
are credits; nothing about their size or opcode is assumed beyond that they are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import MessageFlag
from host_ctl.align.clock import Alignment, NicClock
from host_ctl.ingest.local import address_text, packed_address
from host_ctl.ingest.series import NicSeries, Table
from host_ctl.reconstruct.credits import find_granting, match_credits, runs_beside_data
from host_ctl.reconstruct.pairing import SEND, FlowKey, View, pair_links

MISSING = np.int64(np.iinfo(np.int64).min)
"""A time that no capture shows."""

UNSEEN = "ip:"
"""Begins the name of an endpoint that no capture was taken at; its address follows."""

_PSN_SPACE = 1 << 24
LIFE_SHIFT = 40
"""A position has the life of its queue pair above this bit."""
_ATOMICS = (0x13, 0x14)

TRANSFER = np.dtype(
    [
        ("tx_start", "<i8"),
        ("tx_end", "<i8"),
        ("rx_start", "<i8"),
        ("rx_end", "<i8"),
        ("credit_tx", "<i8"),
        ("credit_rx", "<i8"),
        ("position", "<i8"),
        ("bytes", "<u8"),
        ("link", "<u4"),
        ("edge", "<u4"),
        ("flags", "u1"),
    ]
)
"""One data message. Times are ns on the common clock, MISSING where the end has no capture.
``position`` counts the packets of the flow before it (the PSN, unwrapped); ``link`` and ``edge`` index
:class:`Traffic`'s lists; the receiver granted it at ``credit_tx``, and the sender knew at ``credit_rx``."""

CREDIT = np.dtype([("tx", "<i8"), ("rx", "<i8"), ("link", "<u4"), ("index", "<u4")])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One NIC of the job, captured or only seen from the other side."""

    machine: str
    nic: str | None
    addresses: tuple[str, ...]
    series: int | None

    @property
    def name(self) -> str:
        """``machine/nic`` as reports name it."""
        return f"{self.machine}/{self.nic}" if self.nic else self.machine


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of one connection: the queue pair ``dest_qpn`` of ``dst`` as written to by ``src``.

    ``sender_flow`` and ``receiver_flow`` are the flow's index in the series of either end, or None;
    ``answering_flow`` and ``answered_flow`` those of the connection's other way at the receiver and at the
    sender, ``granting_flow`` and ``granted_flow`` those of the credits' flow, mostly the same.
    ``credits`` counts the credits seen for it; ``unused_credits`` those granted after its last message.
    """

    src: int
    dst: int
    dest_qpn: int
    sender_flow: int | None
    receiver_flow: int | None
    answering_flow: int | None
    answered_flow: int | None
    granting_flow: int | None
    granted_flow: int | None
    edge: int
    credits: int
    unused_credits: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """All data of the capture on the common clock, ordered by link and position.

    ``edges`` are directed (source endpoint, destination endpoint) pairs that carry data; ``clocks`` are
    those of ``series``.
    """

    endpoints: tuple[Endpoint, ...]
    series: tuple[NicSeries, ...]
    clocks: tuple[NicClock, ...]
    links: tuple[Link, ...]
    edges: tuple[tuple[int, int], ...]
    transfers: Table
    credits: Table


def send_start(transfers: Table) -> NDArray[np.int64]:
    """When each transfer's first packet left, from the best view there is (ns)."""
    return np.where(transfers["tx_start"] != MISSING, transfers["tx_start"], transfers["rx_start"])


def send_end(transfers: Table) -> NDArray[np.int64]:
    """When each transfer's last packet left, from the best view there is (ns)."""
    return np.where(transfers["tx_end"] != MISSING, transfers["tx_end"], transfers["rx_end"])


def arrival(transfers: Table) -> NDArray[np.int64]:
    """When each transfer had arrived whole, from the best view there is (ns)."""
    return np.where(transfers["rx_end"] != MISSING, transfers["rx_end"], transfers["tx_end"])


def grant(transfers: Table) -> NDArray[np.int64]:
    """When the sender knew of the credit, from the best view there is (ns, MISSING without credits)."""
    return np.where(transfers["credit_rx"] != MISSING, transfers["credit_rx"], transfers["credit_tx"])


def join_traffic(series: Sequence[NicSeries], alignment: Alignment) -> Traffic:
    """Join the views of all NICs into endpoints, links, edges and transfers."""
    endpoints, by_address = _endpoints(series)
    views = _collect_views(series, alignment, by_address)
    reverse = pair_links(views)
    granting = find_granting(views, reverse)
    grants = set(granting.values())
    links: list[Link] = []
    edges: dict[tuple[int, int], int] = {}
    transfers: list[Table] = []
    credits_out: list[Table] = []
    for key in sorted(views):
        tx, rx = views[key]
        data = _join_data(tx, rx, small_is_data=not (key in grants or runs_beside_data(key, views, reverse)))
        if not len(data):
            continue
        src, dst = by_address[key[0]], by_address[key[1]]
        edge = edges.setdefault((src, dst), len(edges))
        granted = _credits_of(granting.get(key), views)
        unused = use_credits(data, granted)
        data["link"], data["edge"] = len(links), edge
        granted["link"] = len(links)
        links.append(
            Link(
                src=src,
                dst=dst,
                dest_qpn=key[2],
                sender_flow=tx.flow if tx else None,
                receiver_flow=rx.flow if rx else None,
                answering_flow=_flow_of(views, reverse.get(key), 0),
                answered_flow=_flow_of(views, reverse.get(key), 1),
                granting_flow=_flow_of(views, granting.get(key, reverse.get(key)), 0),
                granted_flow=_flow_of(views, granting.get(key, reverse.get(key)), 1),
                edge=edge,
                credits=len(granted),
                unused_credits=unused,
            )
        )
        transfers.append(data)
        credits_out.append(granted)
    return Traffic(
        endpoints=tuple(endpoints),
        series=tuple(series),
        clocks=alignment.clocks,
        links=tuple(links),
        edges=tuple(edges),
        transfers=np.concatenate(transfers) if transfers else np.empty(0, TRANSFER),
        credits=np.concatenate(credits_out) if credits_out else np.empty(0, CREDIT),
    )


def _flow_of(
    views: dict[FlowKey, tuple[View | None, View | None]], key: FlowKey | None, side: int
) -> int | None:
    view = views[key][side] if key is not None else None
    return view.flow if view is not None else None


def _endpoints(series: Sequence[NicSeries]) -> tuple[list[Endpoint], dict[bytes, int]]:
    endpoints: list[Endpoint] = []
    by_address: dict[bytes, int] = {}
    for index, one in enumerate(series):
        for address in one.addresses:
            by_address[packed_address(address)] = len(endpoints)
        endpoints.append(Endpoint(one.machine, one.nic or None, one.addresses, index))
    for one in series:
        for row in one.flows:
            for column in ("src", "dst"):
                raw = row[column].tobytes()
                if raw not in by_address:
                    by_address[raw] = len(endpoints)
                    text = address_text(raw)
                    endpoints.append(Endpoint(f"{UNSEEN}{text}", None, (text,), None))
    return endpoints, by_address


def _collect_views(
    series: Sequence[NicSeries], alignment: Alignment, by_address: dict[bytes, int]
) -> dict[FlowKey, tuple[View | None, View | None]]:
    views: dict[FlowKey, tuple[View | None, View | None]] = {}
    for index, one in enumerate(series):
        local = {packed_address(a) for a in one.addresses}
        clock = alignment.clocks[index]
        messages = one.messages[np.argsort(one.messages["flow"], kind="stable")]
        controls = one.controls[np.argsort(one.controls["flow"], kind="stable")]
        for row in one.flows:
            key = (row["src"].tobytes(), row["dst"].tobytes(), int(row["dest_qpn"]))
            flow = int(row["flow"])
            bulk = messages[slice(*np.searchsorted(messages["flow"], (flow, flow + 1)))]
            small = controls[slice(*np.searchsorted(controls["flow"], (flow, flow + 1)))]
            answers = int(row["acks"])
            numbers = int(row["reverse_flow"]), int(row["udp_sport"]), int(row["packets"]) - answers, answers
            view = View(index, flow, *numbers, *_sends(bulk, small))
            for part in (view.bulk, view.small):
                part["start"] = clock.to_common(part["start"])
                part["end"] = clock.to_common(part["end"])
            tx, rx = views.get(key, (None, None))
            views[key] = (view, rx) if key[0] in local else (tx, view)
    return views


def _sends(messages: Table, controls: Table) -> tuple[Table, Table]:
    """Data messages (with their zero-length completion merged in) and small writes of one flow."""
    whole = messages[(messages["flags"] & MessageFlag.NO_START) == 0]
    rows = np.zeros(len(whole) + len(controls), SEND)
    is_small = np.r_[np.zeros(len(whole), bool), np.ones(len(controls), bool)]
    rows["start"] = np.r_[whole["start_ns"], controls["ns"]]
    rows["end"] = np.r_[whole["end_ns"], controls["ns"]]
    rows["bytes"] = np.r_[whole["bytes"], controls["bytes"]]
    rows["flags"] = np.r_[whole["flags"], controls["flags"]]
    psn = np.r_[whole["psn"], controls["psn"]].astype(np.int64)
    life = np.r_[whole["life"], controls["life"]].astype(np.int64)
    opcode = np.r_[whole["opcode"], controls["opcode"]]
    order = np.lexsort((psn, rows["start"], life))
    rows["position"][order] = unwrap_psn(psn[order]) + (life[order] << LIFE_SHIFT)
    # A lost first packet shows late: PSNs tell the order of messages better than times.
    order = np.argsort(rows["position"], kind="stable")
    rows, is_small, opcode = rows[order], is_small[order], opcode[order]
    completion = is_small & (rows["bytes"] == 0) & ((rows["flags"] & MessageFlag.IMMEDIATE) != 0)
    follows = completion & np.r_[False, ~completion[:-1] & ~is_small[:-1]]
    bulk_index = np.flatnonzero(follows) - 1
    rows["end"][bulk_index] = np.maximum(rows["end"][bulk_index], rows["end"][follows])
    rows["flags"][bulk_index] |= np.uint8(MessageFlag.IMMEDIATE)
    immediate = (rows["flags"] & MessageFlag.IMMEDIATE) != 0
    # A completion whose bulk this view lost belongs to that bulk, not to a message of its own.
    orphan = completion & ~follows & bool(follows.any())
    sure = ~follows & ~orphan & (~is_small | (immediate & ~np.isin(opcode, _ATOMICS)))
    return rows[sure], rows[is_small & ~immediate]


def unwrap_psn(psn: NDArray[np.int64]) -> NDArray[np.int64]:
    """24-bit PSNs as ever-growing positions: each step is taken the short way round."""
    if not len(psn):
        return psn
    return np.asarray(psn[0] + np.r_[0, np.cumsum(short_way(np.diff(psn)))])


def short_way(difference: NDArray[np.int64]) -> NDArray[np.int64]:
    """Differences of 24-bit PSNs the short way round: -2^23 up to 2^23 - 1."""
    return np.asarray((difference + _PSN_SPACE // 2) % _PSN_SPACE - _PSN_SPACE // 2)


def _join_data(tx: View | None, rx: View | None, *, small_is_data: bool) -> Table:
    """One row per data message of a flow from both views, matched by position."""
    sides = []
    for view in (tx, rx):
        rows = np.empty(0, SEND)
        if view is not None:
            rows = np.concatenate([view.bulk, view.small]) if small_is_data else view.bulk
            rows = rows[np.argsort(rows["position"], kind="stable")]
        sides.append(rows)
    sent, got = sides
    if len(sent) and len(got):
        # Captures that begin a wrap apart still number the same packets alike, modulo 2^24.
        shift = round((int(sent["position"][0]) - int(got["position"][0])) / _PSN_SPACE) * _PSN_SPACE
        got = got.copy()
        got["position"] += shift
    positions = np.union1d(sent["position"], got["position"])
    out = np.zeros(len(positions), TRANSFER)
    for name in ("tx_start", "tx_end", "rx_start", "rx_end", "credit_tx", "credit_rx"):
        out[name] = MISSING
    out["position"] = positions
    for rows, start, end in ((got, "rx_start", "rx_end"), (sent, "tx_start", "tx_end")):
        at = np.searchsorted(positions, rows["position"])
        out[start][at], out[end][at] = rows["start"], rows["end"]
        out["bytes"][at] = rows["bytes"]
        out["flags"][at] |= rows["flags"]
    return out


def _credits_of(key: FlowKey | None, views: dict[FlowKey, tuple[View | None, View | None]]) -> Table:
    """The credits that a flow grants, in order: its small writes."""
    if key is None:
        return np.empty(0, CREDIT)
    posted, seen = views[key]  # the credit's sender is the data's receiver
    joined = _join_data(_only_small(posted), _only_small(seen), small_is_data=True)
    out = np.zeros(len(joined), CREDIT)
    out["tx"], out["rx"] = joined["tx_start"], joined["rx_start"]
    out["index"] = np.arange(len(joined))
    return out


def _only_small(view: View | None) -> View | None:
    if view is None:
        return None
    return replace(view, bulk=np.empty(0, SEND))


def use_credits(data: Table, granted: Table) -> int:
    """Write the times of each message's credit into ``data``; return how many credits stay unused.

    ``data`` are TRANSFER rows in order, ``granted`` CREDIT rows. Messages whose credit was not seen, or of
    which no rule tells it, stay without.
    """
    if not len(granted) or not len(data):
        return 0
    known = np.sort(np.where(granted["rx"] != MISSING, granted["rx"], granted["tx"]))
    index = match_credits(send_start(data), arrival(data), known)
    if index is None:
        return 0
    usable = (index >= 0) & (index < len(granted))
    data["credit_tx"][usable] = granted["tx"][index[usable]]
    data["credit_rx"][usable] = granted["rx"][index[usable]]
    return max(0, len(granted) - 1 - int(index[-1]))
