# SPDX-License-Identifier: Apache-2.0
"""Finds connections of one edge that take turns: together they carry one sequence of messages.

Libraries spread the messages of a connection over several queue pairs, one after the other, so that the
network may spread them over paths (NCCL_IB_QPS_PER_CONNECTION). How many messages an operator puts on each
queue pair then depends on where the operator before it left off, and the k-th message of one queue pair
is another part of it than that of the next. What belongs together, and what is balanced, shows in the
sequence as a whole: the *strand*. Channels, which work apart, run ahead of each other now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.transfers import MISSING, Traffic, match_credits, send_start

_IN_TURN = 0.9  # posted in turn; a port that serves several may send them in another order
_MIN_MESSAGES = 3  # per connection
_CUT_OFF = 2  # messages that begin or end outside of the capture
_AS_MANY = 1.05

Strand = tuple[int, ...]
"""Connections (indices of links) of one edge that carry one sequence of messages."""


def find_strands(traffic: Traffic) -> list[Strand]:
    """All links, those that take turns together."""
    start = send_start(traffic.transfers)
    link = traffic.transfers["link"]
    order, ends = np.lexsort((start, link)), np.cumsum(np.bincount(link, minlength=len(traffic.links)))
    times = np.split(start[order], ends[:-1])
    found: list[Strand] = []
    for alike in _alike(_bundles(traffic, times), times):
        # Repeats of lost packets and crowded ports disturb the order here and there, on some edges.
        if len(alike[0]) > 1 and np.median([_in_turn(b, times) for b in alike]) >= _IN_TURN:
            found.extend(alike)
        else:
            found.extend(part for bundle in alike for part in _parts(bundle, times))
    return sorted(found)


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
        unused = match_credits(data, granted)
        transfers[rows] = data
        for number, link in enumerate(strand):
            links[link] = replace(links[link], unused_credits=0 if number else unused)
    return replace(traffic, transfers=transfers, links=tuple(links))


def _bundles(traffic: Traffic, times: Sequence[NDArray[np.int64]]) -> list[Strand]:
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


def _alike(bundles: list[Strand], times: Sequence[NDArray[np.int64]]) -> list[list[Strand]]:
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


def _parts(bundle: Strand, times: Sequence[NDArray[np.int64]]) -> list[Strand]:
    """The links of a bundle, those together that take turns."""
    found: list[list[int]] = []
    for link in bundle:
        strand = next((s for s in found if _in_turn([*s, link], times) >= _IN_TURN), None)
        if strand is None:
            found.append([link])
        else:
            strand.append(link)
    return [tuple(s) for s in found]


def _in_turn(links: Sequence[int], times: Sequence[NDArray[np.int64]]) -> float:
    """How often a link sends once between two messages of another one (share, over all pairs)."""
    shares = [
        float(np.mean(np.diff(np.searchsorted(times[b], times[a])) == 1))
        for a, b in combinations(links, 2)
        if min(len(times[a]), len(times[b])) >= _MIN_MESSAGES
    ]
    return float(np.mean(shares)) if shares else 0.0
