# SPDX-License-Identifier: Apache-2.0
"""Matches packets that two NICs both saw, and keeps the quickest ones of every stretch of time.

The least transit in a stretch is the one with the least queueing: it constrains how far the two clocks
can be apart. Both directions, or a ring of one-way edges, close the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import MarkerKind
from host_ctl.ingest.local import packed_address
from host_ctl.ingest.series import NicSeries, Table

_WINDOWS = 64
_GROSS = 20.0


@dataclass(frozen=True, slots=True)
class Transits:
    """Quickest transits from one NIC to another: receive stamp minus send stamp, each in its own clock.

    ``at_ns`` is the sender's stamp, ``transit_ns`` the difference.
    """

    sender: int
    receiver: int
    at_ns: NDArray[np.int64]
    transit_ns: NDArray[np.int64]


def match_markers(series: Sequence[NicSeries]) -> list[Transits]:
    """All directed pairs of NICs that saw the same packets."""
    sent: dict[bytes, list[tuple[int, Table]]] = {}
    got: dict[bytes, list[tuple[int, Table]]] = {}
    for index, one in enumerate(series):
        local = {packed_address(a) for a in one.addresses}
        order = np.argsort(one.markers["flow"], kind="stable")
        markers = one.markers[order]
        for row in one.flows:
            part = markers[slice(*np.searchsorted(markers["flow"], (row["flow"], row["flow"] + 1)))]
            if not len(part):
                continue
            key = row["src"].tobytes() + row["dst"].tobytes() + int(row["dest_qpn"]).to_bytes(4, "big")
            if row["src"].tobytes() in local:
                sent.setdefault(key, []).append((index, part))
            if row["dst"].tobytes() in local:
                got.setdefault(key, []).append((index, part))
    pairs: dict[tuple[int, int], list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {}
    for key in sent.keys() & got.keys():
        for a, tx in sent[key]:
            for b, rx in got[key]:
                if a != b:
                    pairs.setdefault((a, b), []).append(_common(tx, rx))
    found = []
    for (a, b), parts in sorted(pairs.items()):
        at = np.concatenate([p[0] for p in parts])
        transit = np.concatenate([p[1] for p in parts])
        if len(at):
            found.append(Transits(a, b, *_quickest(at, transit)))
    return found


def _identity(markers: Table) -> NDArray[np.uint64]:
    """A number per marker that both ends give to the same packet."""
    is_ack = np.isin(markers["kind"], (MarkerKind.ACK, MarkerKind.NAK))
    key = markers["psn"].astype(np.uint64) | (markers["life"].astype(np.uint64) << np.uint64(48))
    key |= is_ack.astype(np.uint64) << np.uint64(63)
    return np.asarray(key ^ (np.where(is_ack, markers["msn"], 0).astype(np.uint64) << np.uint64(24)))


def _common(tx: Table, rx: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Send stamps and transits of the packets that both ends saw exactly once."""
    keys = []
    for markers in (tx, rx):
        identity = _identity(markers)
        unique, index, counts = np.unique(identity, return_index=True, return_counts=True)
        keys.append((unique[counts == 1], index[counts == 1]))
    _, at_tx, at_rx = np.intersect1d(keys[0][0], keys[1][0], assume_unique=True, return_indices=True)
    sent = tx["ns"][keys[0][1][at_tx]]
    transit = rx["ns"][keys[1][1][at_rx]] - sent
    # A PSN that came round again pairs packets of different laps; these lie far from all the others.
    spread = np.abs(transit - np.median(transit)) if len(transit) else transit
    usual = np.median(spread) if len(transit) else 0
    good = spread <= max(_GROSS * usual, 1e9)
    return sent[good], transit[good]


def _quickest(
    at: NDArray[np.int64], transit: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least transit of each of up to 64 stretches of equal length."""
    begin, span = int(at.min()), int(at.max() - at.min()) + 1
    stretch = (at - begin) * _WINDOWS // span
    order = np.lexsort((transit, stretch))
    first = np.r_[True, np.diff(stretch[order]) != 0]
    chosen = order[first]
    return at[chosen], transit[chosen]
