# SPDX-License-Identifier: Apache-2.0
"""Matches what two NICs saw of the same packets: pairs of events of which one came before the other.

A packet is sent before it is received. And what a NIC has received it acknowledges afterwards: of a data
packet and its ACK both receive stamps are known without any stamp of a sent packet, which may be missing or,
being that of a copy, late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import NO_FLOW, MarkerKind
from host_ctl.ingest.local import packed_address
from host_ctl.ingest.series import NicSeries, Table

Times = NDArray[np.int64]

_GROSS = 20.0
_LAP_NS = 1_000_000_000
_FEWEST_OF_LEVEL = 8
_FEWEST_ACKNOWLEDGED = 8
_SURELY_PAIRED = 0.5
_CLEARLY_BETTER = 1.25
_ACKNOWLEDGED = (MarkerKind.ACK, MarkerKind.NAK)


@dataclass(frozen=True, slots=True)
class Matched:
    """Events at one NIC and what followed from each at another, in the order of the former's time.

    ``acknowledged``: both stamps are of received packets, the first of data, the second of its ACK.
    """

    before: int
    after: int
    acknowledged: bool
    before_ns: Times
    after_ns: Times

    def __len__(self) -> int:
        return len(self.before_ns)


@dataclass(slots=True)
class _Flows:
    """The marked flows of all NICs by their key, split by direction."""

    sent: dict[bytes, list[tuple[int, Table]]] = field(default_factory=dict)
    got: dict[bytes, list[tuple[int, Table]]] = field(default_factory=dict)
    reverse: dict[bytes, bytes] = field(default_factory=dict)


def match_markers(series: Sequence[NicSeries]) -> list[Matched]:
    """All directed pairs of NICs that saw the same packets, by stamps of sending and by those of receipt."""
    flows = _split(series)
    pairs: dict[tuple[bool, int, int], list[tuple[Times, Times]]] = {}
    for key in flows.sent.keys() & flows.got.keys():
        for a, tx in flows.sent[key]:
            for b, rx in flows.got[key]:
                if a != b:
                    pairs.setdefault((False, a, b), []).append(_common(tx, rx, _identity))
    for b, a, data, acks in _conversations(flows):
        pairs.setdefault((True, b, a), []).append(_common(data, acks, _number))
    found = []
    for (acknowledged, first, second), parts in sorted(pairs.items()):
        before = np.concatenate([p[0] for p in parts])
        after = np.concatenate([p[1] for p in parts])
        order = np.argsort(before, kind="stable")
        if len(order) >= (_FEWEST_ACKNOWLEDGED if acknowledged else 1):
            found.append(Matched(first, second, acknowledged, before[order], after[order]))
    return found


def _split(series: Sequence[NicSeries]) -> _Flows:
    flows = _Flows()
    for index, one in enumerate(series):
        local = {packed_address(a) for a in one.addresses}
        flow = np.ascontiguousarray(one.markers["flow"])
        if len(flow) and int(flow.max()) < 1 << 16:
            flow = flow.astype(np.uint16)  # sorts in linear time
        order = np.argsort(flow, kind="stable")
        flow, markers = flow[order], one.markers[order]
        keys = {int(row["flow"]): _key(row) for row in one.flows}
        for row in one.flows:
            number = int(row["flow"])
            part = markers[np.searchsorted(flow, number) : np.searchsorted(flow, number, side="right")]
            if not len(part):
                continue
            key = keys[int(row["flow"])]
            reverse = int(row["reverse_flow"])
            if reverse != NO_FLOW and reverse in keys:
                flows.reverse[key] = keys[reverse]
            if row["src"].tobytes() in local:
                flows.sent.setdefault(key, []).append((index, part))
            if row["dst"].tobytes() in local:
                flows.got.setdefault(key, []).append((index, part))
    return flows


def _key(row: np.void) -> bytes:
    key: bytes = row["src"].tobytes() + row["dst"].tobytes() + int(row["dest_qpn"]).to_bytes(4, "big")
    return key


def _conversations(flows: _Flows) -> Iterator[tuple[int, int, Table, Table]]:
    """Receiver of data, receiver of its acknowledgements, and what each of them received.

    Which flow acknowledges which the meter has paired where it saw both directions; else the numbers tell.
    """
    data, acks = {}, {}
    for key, views in flows.got.items():
        index, markers = views[0]
        is_ack = np.isin(markers["kind"], _ACKNOWLEDGED)
        if not is_ack.all():
            data[key] = (index, markers[~is_ack])
        if is_ack.any():
            acks[key] = (index, markers[is_ack])
    by_path: dict[bytes, list[bytes]] = {}
    for key in acks:
        by_path.setdefault(key[:32], []).append(key)
    for key, (b, received) in data.items():
        reverse = flows.reverse.get(key)
        choices = by_path.get(key[16:32] + key[:16], [])
        chosen = reverse if reverse in acks else _acknowledging(received, {k: acks[k][1] for k in choices})
        if chosen is not None and acks[chosen][0] != b:
            yield b, acks[chosen][0], received, acks[chosen][1]


def _acknowledging(data: Table, choices: dict[bytes, Table]) -> bytes | None:
    """The flow whose acknowledgements carry the numbers of the data; None when several do or none."""
    shares = sorted(
        ((float(np.isin(acks["psn"], data["psn"]).mean()), key) for key, acks in choices.items()),
        reverse=True,
    )
    if not shares or shares[0][0] < _SURELY_PAIRED:
        return None
    clear = len(shares) == 1 or shares[0][0] > _CLEARLY_BETTER * shares[1][0]
    return shares[0][1] if clear else None


def _identity(markers: Table) -> NDArray[np.uint64]:
    """A number per marker that both ends give to the same packet."""
    is_ack = np.isin(markers["kind"], _ACKNOWLEDGED)
    key = _number(markers) | is_ack.astype(np.uint64) << np.uint64(63)
    return np.asarray(key ^ (np.where(is_ack, markers["msn"], 0).astype(np.uint64) << np.uint64(24)))


def _number(markers: Table) -> NDArray[np.uint64]:
    """A number that a data packet shares with its acknowledgement."""
    return np.asarray(markers["psn"].astype(np.uint64) | (markers["life"].astype(np.uint64) << np.uint64(48)))


def _common(first: Table, second: Table, name: object) -> tuple[Times, Times]:
    """Stamps of what both tables name exactly once."""
    assert callable(name)
    numbers, rows = [], []
    for markers in (first, second):
        unique, index, counts = np.unique(name(markers), return_index=True, return_counts=True)
        numbers.append(unique[counts == 1])
        rows.append(index[counts == 1])
    if not len(numbers[0]) or not len(numbers[1]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(numbers[1], numbers[0]), len(numbers[1]) - 1)
    both = numbers[1][at] == numbers[0]
    before, after = first["ns"][rows[0][both]], second["ns"][rows[1][at[both]]]
    usual = _usual(after - before)
    return before[usual], after[usual]


def _usual(transit: Times) -> NDArray[np.bool_]:
    """Which differences are plausible.

    A PSN that came round again pairs packets of different laps: few, and far from all others. Where many lie
    far from the rest at one level, a clock was set.
    """
    if not len(transit) or int(transit.max()) - int(transit.min()) <= _LAP_NS:
        return np.ones(len(transit), np.bool_)
    away = np.abs(transit - np.median(transit))
    good = away <= max(_GROSS * float(np.median(away)), _LAP_NS)
    if good.all():
        return np.asarray(good)
    order = np.argsort(transit)
    level = np.cumsum(np.r_[0, np.diff(transit[order]) > _LAP_NS])
    sizes = np.bincount(level)
    kept = sizes >= max(_FEWEST_OF_LEVEL, 0.05 * len(transit))
    out = np.zeros(len(transit), np.bool_)
    out[order] = kept[level]
    return out | good
