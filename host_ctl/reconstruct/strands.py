# SPDX-License-Identifier: Apache-2.0
"""Finds connections of one edge that take turns: together they carry one sequence of messages.

Libraries spread the messages of a connection over several queue pairs, one after the other, so that the
network may spread them over paths (NCCL_IB_QPS_PER_CONNECTION). How many messages an operator puts on each
queue pair then depends on where the operator before it left off, and the k-th message of one queue pair
is another part of it than that of the next. What belongs together, and what is balanced, shows in the
sequence as a whole: the *strand*. Channels, which work apart, run ahead of each other now and then.

Where a port serves several queue pairs at once their messages do not leave in turn, but nothing is under way
in a pause: then those in turn have carried equally many, and some of them, always the same first, one more.
What channels have carried in a pause is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start, use_credits

_IN_TURN = 0.9  # posted in turn; a port that serves several may send them in another order
_MIN_MESSAGES = 3  # per connection
_CUT_OFF = 2  # messages that begin or end outside of the capture
_AS_MANY = 1.05
_PAUSE = 8  # times the usual time of a message
_MOST = 0.5
_COME_AND_GO = 4  # times that counts became uneven or even

_Times = Sequence[NDArray[np.int64]]
Strand = tuple[int, ...]
"""Connections (indices of links) of one edge that carry one sequence of messages."""


def find_strands(traffic: Traffic) -> list[Strand]:
    """All links, those that take turns together."""
    times, ends = _by_link(traffic, send_start), _by_link(traffic, arrival)
    found: list[Strand] = []
    for alike in _alike(_bundles(traffic, times), times):
        found.extend(strand for bundle in _strands_of_alike(alike, times, ends) for strand in bundle)
    return sorted(found)


def _strands_of_alike(alike: Sequence[Strand], times: _Times, ends: _Times) -> list[list[Strand]]:
    """The strands of each of several bundles, which all edges of a group have in common.

    Repeats of lost packets and crowded ports disturb order and counts here and there, on some edges, so that
    most of them must tell the same.
    """
    if (
        len(alike[0]) == 1
        or np.median([_in_turn(b, times) for b in alike]) >= _IN_TURN
        or np.mean([_in_rotation(b, times, ends) for b in alike]) > _MOST
    ):
        return [[bundle] for bundle in alike]
    by_order = [_parts(bundle, lambda links: _in_turn(links, times) >= _IN_TURN) for bundle in alike]
    by_count = [_parts(bundle, lambda links: _in_rotation(links, times, ends)) for bundle in alike]
    fewer = [len(counted) < len(ordered) for counted, ordered in zip(by_count, by_order, strict=True)]
    return by_count if np.mean(fewer) > _MOST else by_order


def _by_link(traffic: Traffic, of: Callable[[Table], NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """A time of every message, by its link, in order of sending."""
    link = traffic.transfers["link"]
    order = np.lexsort((send_start(traffic.transfers), link))
    return np.split(
        of(traffic.transfers)[order], np.cumsum(np.bincount(link, minlength=len(traffic.links)))[:-1]
    )


def share_credits(traffic: Traffic, strands: Sequence[Strand]) -> Traffic:
    """The traffic with credits matched to the messages of whole strands.

    A receiver that grants over several queue pairs takes turns of its own, which need not be the sender's.
    """
    transfers, links = traffic.transfers.copy(), list(traffic.links)
    for strand in (s for s in strands if len(s) > 1):
        rows = np.flatnonzero(np.isin(transfers["link"], strand))
        rows = rows[np.argsort(send_start(transfers[rows]), kind="stable")]
        granted = traffic.credits[np.isin(traffic.credits["link"], strand)]
        granted = granted[
            np.argsort(np.where(granted["tx"] != MISSING, granted["tx"], granted["rx"]), kind="stable")
        ]
        data = transfers[rows]
        data["credit_tx"] = data["credit_rx"] = MISSING
        unused = use_credits(data, granted)
        transfers[rows] = data
        for number, link in enumerate(strand):
            links[link] = replace(links[link], unused_credits=0 if number else unused)
    return replace(traffic, transfers=transfers, links=tuple(links))


def _bundles(traffic: Traffic, times: _Times) -> list[Strand]:
    """The links of every edge, those together that sent about equally many messages."""
    of_edge: dict[int, list[int]] = {}
    for number, one in enumerate(traffic.links):
        of_edge.setdefault(one.edge, []).append(number)
    found: list[list[int]] = []
    for links in of_edge.values():
        links.sort(key=lambda i: (len(times[i]), i))
        for before, link in zip([None, *links], links, strict=False):
            if before is not None and len(times[link]) - len(times[before]) <= _CUT_OFF:
                found[-1].append(link)
            else:
                found.append([link])
    return [tuple(sorted(bundle)) for bundle in found]


def _alike(bundles: list[Strand], times: _Times) -> list[list[Strand]]:
    """Bundles of equally many links that carry about as many messages: edges of one group, likely."""
    ordered = sorted(bundles, key=lambda b: (len(b), len(times[b[0]]), b))
    found: list[list[Strand]] = []
    for bundle in ordered:
        last = found[-1][-1] if found else ()
        if len(last) == len(bundle) and len(times[bundle[0]]) <= _AS_MANY * len(times[last[0]]) + 1:
            found[-1].append(bundle)
        else:
            found.append([bundle])
    return found


def _parts(bundle: Strand, together: Callable[[Sequence[int]], bool]) -> list[Strand]:
    """The links of a bundle, those together of which a test says so."""
    found: list[list[int]] = []
    for link in bundle:
        strand = next((s for s in found if together([*s, link])), None)
        if strand is None:
            found.append([link])
        else:
            strand.append(link)
    return [tuple(s) for s in found]


def _in_rotation(links: Sequence[int], times: _Times, ends: _Times) -> bool:
    """Whether links have carried in every pause what those that take turns would have.

    A lost message makes counts differ once and for all; those of links in turn differ and are equal again.
    """
    counts = _carried_in_pauses(links, times, ends)
    if len(counts) < _COME_AND_GO:
        return False
    uneven = np.ptp(counts, axis=1) > 0
    changes = int((uneven[1:] != uneven[:-1]).sum())
    fits = _as_in_turn(counts)
    return bool(changes >= _COME_AND_GO and fits.mean() >= _IN_TURN and fits[uneven].mean() >= _IN_TURN)


def _carried_in_pauses(links: Sequence[int], times: _Times, ends: _Times) -> NDArray[np.int64]:
    """How many messages each link had carried at each pause of them all, (pauses, links)."""
    start, end = (np.concatenate([of[link] for link in links]) for of in (times, ends))
    order = np.argsort(start, kind="stable")
    start, done = start[order], np.maximum.accumulate(end[order])
    if len(start) < 2:
        return np.zeros((0, len(links)), np.int64)
    usual = float(np.median(end[order] - start))
    pauses = done[:-1][start[1:] - done[:-1] > _PAUSE * usual]
    return np.stack([np.searchsorted(times[link], pauses, side="right") for link in links], axis=1)


def _as_in_turn(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where counts are those of links that take turns in one order, whichever that is."""
    ordered = counts[:, np.argsort(-counts.sum(axis=0), kind="stable")]
    return np.asarray((np.ptp(counts, axis=1) <= 1) & (np.diff(ordered, axis=1) <= 0).all(axis=1))


def _in_turn(links: Sequence[int], times: _Times) -> float:
    """How often a link sends once between two messages of another one (share, over all pairs)."""
    shares = [
        float(np.mean(np.diff(np.searchsorted(times[b], times[a])) == 1))
        for a, b in combinations(links, 2)
        if min(len(times[a]), len(times[b])) >= _MIN_MESSAGES
    ]
    return float(np.mean(shares)) if shares else 0.0
