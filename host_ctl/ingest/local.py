# SPDX-License-Identifier: Apache-2.0
"""Learns which addresses are a capture's own, when nothing says so.

A NIC's capture holds packets to and from that NIC only, so that its address is in every packet. Where two
addresses are (a job of two machines), the direction of travel decides between two captures: packets from
the NIC pass its own tap first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address

import numpy as np
from numpy.typing import NDArray

from host_ctl.ingest.series import NicSeries, Table

_NEARLY_ALL = 0.999


def address_text(raw: bytes) -> str:
    """The usual text of a 16-byte address, IPv4 when it is a mapped one."""
    address = ip_address(raw)
    return str(getattr(address, "ipv4_mapped", None) or address)


def packed_address(text: str) -> bytes:
    """The 16 bytes of an address given as text, IPv4 in mapped form."""
    address = ip_address(text)
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def learn_local(series: Sequence[NicSeries]) -> tuple[list[NicSeries], list[str]]:
    """Fill in the addresses of the series that have none, and keep one series per NIC.

    Remarks tell what could not be decided and what was left out.
    """
    options = [(s.addresses and [s.addresses]) or _options(s.flows) for s in series]
    chosen: list[tuple[str, ...]] = [o[0] if len(o) == 1 else () for o in options]
    remarks = []
    for index, one in enumerate(series):
        if chosen[index] or not options[index]:
            continue
        taken = {a for addresses in chosen for a in addresses}
        free = [o for o in options[index] if o[0] not in taken]
        if len(free) == 1:
            chosen[index] = free[0]
            continue
        decided = _by_direction(index, series, options[index])
        if decided is None:
            decided = _by_latency(one)
        if decided is None:
            remarks.append(
                f"{one.name}: both addresses are in every packet and nothing tells which is its own; "
                f"name it in a pulse.toml (addresses = [...])"
            )
            continue
        chosen[index] = (decided,)
    known = [replace(s, addresses=a) for s, a in zip(series, chosen, strict=True)]
    return _one_per_address(known, remarks), remarks


def _one_per_address(series: Sequence[NicSeries], remarks: list[str]) -> list[NicSeries]:
    """Leave out a second view of the same NIC: the same packets would count as those of two.

    Who has one address is sure of it; of several, those that belong to others were learned by mistake.
    """
    owner: dict[str, str] = {}
    kept: dict[int, NicSeries] = {}
    for index, one in sorted(enumerate(series), key=lambda item: (len(item[1].addresses), item[0])):
        own = tuple(a for a in one.addresses if a not in owner)
        if one.addresses and not own:
            shared = one.addresses[0]
            remarks.append(
                f"{one.name} shows the same NIC as {owner[shared]} ({shared}) and was left out; "
                f"if they are ports of one bond, merge their captures into one file"
            )
            continue
        owner |= dict.fromkeys(own, one.name)
        kept[index] = replace(one, addresses=own)
    return [kept[index] for index in sorted(kept)]


def _options(flows: Table) -> list[tuple[str, ...]]:
    """Sets of addresses that may be the capture's own: single ones first, else a few that cover it."""
    packets: dict[bytes, int] = {}
    for row in flows:
        for raw in {row["src"].tobytes(), row["dst"].tobytes()}:
            packets[raw] = packets.get(raw, 0) + int(row["packets"])
    total = int(flows["packets"].sum())
    everywhere = [raw for raw, count in packets.items() if count >= _NEARLY_ALL * total]
    into = {row["dst"].tobytes() for row in flows}
    if len(into) == 1 and len(everywhere) > 1:
        # Only what comes in was captured: the one destination is the NIC itself.
        everywhere = list(into)
    if everywhere:
        return [(address_text(raw),) for raw in sorted(everywhere)]
    return [_cover(flows)]


def _cover(flows: Table) -> tuple[str, ...]:
    """A capture of several NICs at once: the fewest addresses that are in (nearly) every packet."""
    left = [(r["src"].tobytes(), r["dst"].tobytes(), int(r["packets"])) for r in flows]
    chosen: list[bytes] = []
    total = sum(count for _, _, count in left)
    while sum(count for _, _, count in left) > (1 - _NEARLY_ALL) * total:
        weight: dict[bytes, int] = {}
        for src, dst, count in left:
            for raw in {src, dst}:
                weight[raw] = weight.get(raw, 0) + count
        best = max(weight, key=lambda raw: (weight[raw], raw))
        chosen.append(best)
        left = [item for item in left if best not in item[:2]]
    return tuple(sorted(address_text(raw) for raw in chosen))


def _by_direction(index: int, series: Sequence[NicSeries], options: list[tuple[str, ...]]) -> str | None:
    """Compare with another capture of the same packets: own packets pass the own tap first."""
    one = series[index]
    first, second = (packed_address(o[0]) for o in options[:2])
    for other_index, other in enumerate(series):
        if other_index == index:
            continue
        forth, back = _leads(one, other, first, second), _leads(one, other, second, first)
        if not len(forth[0]) or not len(back[0]):
            continue
        # The other's stamp minus the own one is offset + transit for own packets, offset - transit for the
        # rest; interpolating the one at the times of the other takes the drift out.
        difference = forth[1] - np.interp(forth[0], *back)
        return options[0][0] if np.median(difference) > 0 else options[1][0]
    return None


def _leads(
    one: NicSeries, other: NicSeries, src: bytes, dst: bytes
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Own stamps, and the other's minus the own, of the packets from src to dst that both saw."""
    times, leads = [np.empty(0)], [np.empty(0)]
    theirs_by_qpn = _markers(other, src, dst)
    for qpn, own in _markers(one, src, dst).items():
        theirs = theirs_by_qpn.get(qpn)
        if theirs is not None:
            _, a, b = np.intersect1d(own["psn"], theirs["psn"], return_indices=True)
            times.append((own["ns"][a] - one.first_ns).astype(np.float64))
            leads.append((theirs["ns"][b] - own["ns"][a]).astype(np.float64))
    at, lead = np.concatenate(times), np.concatenate(leads)
    order = np.argsort(at)
    return at[order], lead[order]


def _markers(one: NicSeries, src: bytes, dst: bytes) -> dict[int, Table]:
    found = {}
    for row in one.flows:
        if row["src"].tobytes() == src and row["dst"].tobytes() == dst:
            own = one.markers[(one.markers["flow"] == row["flow"]) & (one.markers["kind"] <= 3)]
            found[int(row["dest_qpn"])] = own
    return found


def _by_latency(one: NicSeries) -> str | None:
    """From one capture alone: data to the own NIC is acknowledged sooner than data from it."""
    medians: dict[bytes, float] = {}
    for row in one.flows:
        cells = one.ack_histogram[one.ack_histogram["flow"] == row["flow"]]
        if len(cells):
            weights = np.cumsum(cells["count"][np.argsort(cells["cell"])])
            middle = np.sort(cells["cell"])[np.searchsorted(weights, weights[-1] / 2)]
            medians.setdefault(row["dst"].tobytes(), float(middle))
    if len(medians) != 2:
        return None
    (near, low), (_, high) = sorted(medians.items(), key=lambda item: item[1])
    return address_text(near) if high - low >= 2 else None
