# SPDX-License-Identifier: Apache-2.0
"""Which end of a slow edge is slow: what else does each end send and receive at the time?

With several edges the common end decides. In a ring every NIC has one edge out and one in, and the traffic
the other way must tell: a NIC that sends slowly also acknowledges and grants late, a NIC that receives
slowly also gets the grants of its own receivers late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.charges import Charge
from host_ctl.diagnose.answers import latest_to_answer
from host_ctl.diagnose.verdict import Evidence
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import MISSING, Traffic

Side = Literal["sender", "receiver", "either"]

CONGESTED = 0.3
_AT_TAP = 0.5
_MOST = 0.7
_SLOWER = 3.0
_UNHINDERED = 0.1


@dataclass(frozen=True, slots=True)
class EdgeEnds:
    """The end to blame of one or more slow edges, with the probability of each candidate."""

    side: Side
    blamed: int
    candidates: tuple[tuple[int, float], ...]
    evidence: tuple[Evidence, ...]


def slow_end(
    traffic: Traffic, job: Job, charges: Table, member: int, feature: str, inside: tuple[int, int]
) -> EdgeEnds:
    """Find which end is slow. ``member`` is where the excess was found, ``feature`` egress or ingress.

    ``inside`` are the iterations to look at, the last one excluded.
    """
    slow = _slow_transfers(charges, inside)
    mine = slow[slow["src" if feature == "egress" else "dst"] == member]
    far = "dst" if feature == "egress" else "src"
    others, lost = _by_far_end(mine, far)
    if not len(others):
        return EdgeEnds("either", member, ((member, 0.5),), ())
    edges = [e for e in traffic.edges if e[0 if feature == "egress" else 1] == member]
    if len(edges) > 1 and len(others) > 1 and lost.max() < _MOST * lost.sum():
        side: Side = "sender" if feature == "egress" else "receiver"
        return EdgeEnds(side, member, ((member, 0.95),), ())
    worst = int(others[np.argmax(lost)])
    src, dst = (member, worst) if feature == "egress" else (worst, member)
    return _single_edge(traffic, job, mine, src, dst, _times(job, inside))


def congested_share(charges: Table, member: int, feature: str, inside: tuple[int, int]) -> float:
    """Share of a NIC's slow transfer time during which the network signalled congestion."""
    slow = _slow_transfers(charges, inside)
    at_src, at_dst = slow["src"] == member, slow["dst"] == member
    mine = slow[{"egress": at_src, "ingress": at_dst, "port": at_src | at_dst}[feature]]
    length = (mine["end"] - mine["start"]).astype(np.float64)
    return float(length[mine["paced"] == 1].sum() / max(1.0, length.sum()))


def _times(job: Job, inside: tuple[int, int]) -> tuple[int, int]:
    return int(job.boundaries_ns[inside[0]]), int(job.boundaries_ns[inside[1]])


def _slow_transfers(charges: Table, inside: tuple[int, int]) -> Table:
    """The slow transfers of the iterations from ``inside[0]`` up to before ``inside[1]``."""
    meant = (charges["iteration"] >= inside[0]) & (charges["iteration"] < inside[1])
    return np.asarray(charges[meant & (charges["kind"] == Charge.TRANSFER)])


def _by_far_end(charges: Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    ends, which = np.unique(charges[column], return_inverse=True)
    return ends, np.bincount(which, weights=(charges["end"] - charges["start"]).astype(float))


def _single_edge(
    traffic: Traffic, job: Job, slow: Table, src: int, dst: int, inside: tuple[int, int]
) -> EdgeEnds:
    """One slow edge: the sender when it is slow at its own tap or slow in everything that it sends."""
    t = traffic.transfers[slow["row"]]
    seen = (t["tx_start"] != MISSING) & (t["tx_end"] != MISSING)
    took = (t["tx_end"] - t["tx_start"])[seen]
    whole = (np.maximum(t["rx_end"], t["tx_end"]) - t["tx_start"])[seen]
    at_tap = float(took.sum() / max(1, whole.sum())) if seen.any() else 0.0
    egress = _credit_transit(traffic, inside, "dst", src)
    ingress = _credit_transit(traffic, inside, "src", dst)
    usual = _credit_transit(traffic, inside, None, None)
    evidence = [Evidence("time_at_sender_tap", at_tap, None, "share")]
    for name, value in (("credit_transit_out", egress), ("credit_transit_in", ingress)):
        if value is not None:
            evidence.append(Evidence(name, value / 1e3, None if usual is None else usual / 1e3, "us"))
    late, figure = latest_to_answer(traffic, job, (src, dst))
    if figure is not None:
        evidence.append(figure)
    if late == dst:
        return EdgeEnds("receiver", dst, ((dst, 0.9), (src, 0.1)), tuple(evidence))
    whole_at_tap = 1.0 - 1.0 / max(_packets(traffic, slow["row"]), 1.0)
    if late == src and (at_tap >= _AT_TAP * whole_at_tap or not seen.any()):
        # A message that left its NIC in no time was not slow there, whatever keeps the acknowledgements. Of
        # n packets that leave slowly the tap shows n - 1 pauses.
        return EdgeEnds("sender", src, ((src, 0.9), (dst, 0.1)), tuple(evidence))
    packet_ns = _packet_transit(traffic)
    slow_out, slow_in = (_clearly_longer(v, usual, packet_ns, traffic) for v in (egress, ingress))
    if slow_in and not slow_out:
        return EdgeEnds("receiver", dst, ((dst, 0.9), (src, 0.1)), tuple(evidence))
    if at_tap >= _AT_TAP or (slow_out and not slow_in):
        return EdgeEnds("sender", src, ((src, 0.9), (dst, 0.1)), tuple(evidence))
    return EdgeEnds("either", src, ((src, 0.5), (dst, 0.5)), tuple(evidence))


def _packet_transit(traffic: Traffic) -> float:
    """How long a packet of data is usually under way where nothing holds it up (ns), 0 if unseen."""
    t = traffic.transfers
    known = (t["tx_start"] != MISSING) & (t["rx_start"] != MISSING)
    return float(np.quantile((t["rx_start"] - t["tx_start"])[known], _UNHINDERED)) if known.any() else 0.0


def _packets(traffic: Traffic, rows: NDArray[np.int64]) -> float:
    """How many packets some transfers have, by the median."""
    t = traffic.transfers
    following = np.minimum(rows + 1, len(t) - 1)
    count = (t["position"][following] - t["position"][rows])[t["link"][following] == t["link"][rows]]
    return float(np.median(count)) if len(count) else 0.0


def _clearly_longer(value: float | None, usual: float | None, packet_ns: float, traffic: Traffic) -> bool:
    """Whether a transit is several times the usual one, and by more than the clocks may be off.

    It may always have to wait for one packet of data that is on its way through the same port.
    """
    if value is None or usual is None:
        return False
    error = max((c.uncertainty_ns or 0.0 for c in traffic.clocks), default=0.0)
    return value > _SLOWER * max(usual, 0.0) and value - usual > max(
        _SLOWER * error, _SLOWER * 1e3, packet_ns
    )


def _credit_transit(
    traffic: Traffic, inside: tuple[int, int], column: str | None, endpoint: int | None
) -> float | None:
    """Median transit (ns) of the credits an endpoint posts (``dst``) or gets (``src``); None if unseen."""
    t = traffic.transfers
    known = (t["credit_tx"] != MISSING) & (t["credit_rx"] != MISSING)
    known &= (t["credit_tx"] >= inside[0]) & (t["credit_tx"] < inside[1])
    if column is not None:
        edges = np.array(traffic.edges)
        known &= edges[t["edge"], 0 if column == "src" else 1] == endpoint
    transit = (t["credit_rx"] - t["credit_tx"])[known]
    return float(np.median(transit)) if len(transit) else None
