# SPDX-License-Identifier: Apache-2.0
"""Slow edges without a common end: what they share lies in the network.

A slow NIC slows edges that end at it, and no others. Flows that were hashed onto one uplink are slow
together, between NICs that have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from host_ctl.attribute.charges import Charge
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job

Edge = tuple[int, int]

_COMPARABLE = 0.5
_DOMINANT = 0.7
_MIN_OUTSIDE = 3
_SEVERAL = 2


def slow_edges(charges: Table, job: Job, inside: tuple[int, int]) -> dict[Edge, float]:
    """How much longer each edge's transfers take per iteration inside a stretch than outside of it (ns)."""
    slow = charges[(charges["kind"] == Charge.TRANSFER) & (charges["iteration"] >= 0)]
    edges, which = np.unique(np.stack([slow["src"], slow["dst"]]), axis=1, return_inverse=True)
    lost = np.zeros((edges.shape[1], job.iterations))
    np.add.at(lost, (which.ravel(), slow["iteration"]), slow["end"] - slow["start"])
    within = np.zeros(job.iterations, dtype=bool)
    within[inside[0] : inside[1]] = True
    outside = ~within
    outside[:1] = outside[-1:] = False
    usual = np.median(lost[:, outside], axis=1) if outside.sum() >= _MIN_OUTSIDE else np.zeros(len(lost))
    excess = np.median(lost[:, within], axis=1) - usual
    return {(int(a), int(b)): float(e) for a, b, e in zip(*edges, excess, strict=True)}


def slow_with(member: int, feature: str, excess: dict[Edge, float]) -> tuple[Edge, ...]:
    """The edge that makes a NIC's transfers slow, and others as slow that end at neither of its ends.

    Empty when the NIC is slow with several peers, or when no such other edge is slow.
    """
    own = {e: x for e, x in excess.items() if e[0 if feature == "egress" else 1] == member and x > 0}
    if not own:
        return ()
    worst = max(own, key=lambda e: own[e])
    if own[worst] < _DOMINANT * sum(own.values()):
        return ()
    apart = [e for e, x in excess.items() if not {*e} & {*worst} and x >= _COMPARABLE * own[worst]]
    # Those that meet at one NIC are slow on its account, whatever else is.
    if not apart or any(x >= _COMPARABLE * own[worst] and _meets(e, worst) for e, x in excess.items()):
        return ()
    return (worst, *sorted(apart))


def slow_both_ways(edges: Sequence[Edge]) -> tuple[int, ...]:
    """The NICs that slow edges enter and leave, if all of these do so at one of several such NICs.

    Flows that collide share an uplink or a downlink. All ways through a switch are slow when the switch is,
    for every NIC at it.
    """
    hubs = {a for a, _ in edges} & {b for _, b in edges}
    covered = all(a in hubs or b in hubs for a, b in edges)
    return tuple(sorted(hubs)) if covered and len(hubs) >= _SEVERAL else ()


def _meets(edge: Edge, other: Edge) -> bool:
    """Whether two edges leave the same NIC, or enter the same."""
    return edge != other and (edge[0] == other[0] or edge[1] == other[1])
