# SPDX-License-Identifier: Apache-2.0
"""Charges lost time to whoever caused it: late sends, late credits, slow transfers, repairs.

Every charge is a stretch of time in which one NIC (or one edge) held up the rest: it had all that it
needed, beyond the time that it or its peers normally take. Peers of a ring or an all-to-all share their
norms, since they play the same part; elsewhere a NIC's own past is the norm.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.congestion import paced_transfers
from host_ctl.attribute.gates import Gates, Grants
from host_ctl.attribute.needs import Sharing
from host_ctl.attribute.program import Program, iteration_of_rows
from host_ctl.attribute.service import service_times
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.repairs import LossPlace
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival


class Charge(IntEnum):
    """What a stretch of time is charged as."""

    HOST = 1
    CREDIT = 2
    TRANSFER = 3
    REPAIR = 4
    REPAIR_CREDIT = 5


CHARGE = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("row", "<i8"),
        ("src", "<i4"),
        ("dst", "<i4"),
        ("iteration", "<i4"),
        ("kind", "u1"),
        ("paced", "u1"),
    ]
)
"""One stretch of lost time: ns on the common clock, the transfer that it held up, and the edge's ends.
HOST is charged to ``src``, CREDIT to ``dst``, TRANSFER and REPAIR to the edge, REPAIR_CREDIT to its way
back. ``paced`` marks messages that the network held back by signals of congestion."""

_NORMAL = 0.25
_COMPUTING = 0.2


def charge_all(
    traffic: Traffic,
    program: Program,
    gates: tuple[Gates, ...],
    grants: tuple[Grants, ...],
    sharing: Sharing,
    repairs: Table,
    slow_ns: NDArray[np.int64],
) -> Table:
    """All charges of a job, in order of time; ``slow_ns`` is the transfers' excess."""
    normal_send = _normal_lags(program, gates, sharing)
    post_lag = credit_lags(program, grants, sharing)
    _tighten_by_entry(program, normal_send, post_lag)
    parts = []
    for index, gate in enumerate(gates):
        parts.append(_late_sends(traffic, program, gate, normal_send[index]))
        parts.append(_late_credits(traffic, program, gate, normal_send[index], post_lag[index]))
    parts.append(_slow_transfers(traffic, program, slow_ns))
    charges = np.concatenate(parts)
    charges["iteration"] = iteration_of_rows(traffic, program)[charges["row"]]
    charges["paced"] = paced_transfers(traffic, program, slow_ns)[charges["row"]]
    _mark_repairs(charges, repairs)
    return charges[np.argsort(charges["start"], kind="stable")]


def ready_ns(gate: Gates) -> NDArray[np.int64]:
    """When each message had its input and its lane free; MISSING when neither is known."""
    return np.maximum(gate.input_ns, gate.before_ns)


def _pool_key(program: Program, lane_index: int, sharing: Sharing) -> Hashable:
    lane, place = program.lanes[lane_index], sharing.places.lanes[lane_index]
    if lane.group in sharing.groups:
        return ("group", lane.group, lane.volume, lane.channel)
    if place is not None:
        return ("place", place)
    return ("lane", lane_index)


def pooled(
    program: Program,
    lags: list[NDArray[np.float64]],
    sharing: Sharing,
    use: Callable[[NDArray[np.float64]], float],
) -> list[NDArray[np.float64]]:
    """For every lane, a statistic of the lags per place, pooled over lanes that play the same part.

    Lags are per message, NaN where unknown; the result is per message too.
    """
    pools: dict[Hashable, list[tuple[int, NDArray[np.bool_]]]] = {}
    for index, lane in enumerate(program.lanes):
        begins = sharing.begins(index, lane)
        pools.setdefault(_pool_key(program, index, sharing), []).append((index, ~begins))
        if begins.any():
            pools.setdefault(("start", lane.group, lane.volume, lane.channel), []).append((index, begins))
    out = [np.full(len(one), np.nan) for one in lags]
    for members in pools.values():
        place = np.concatenate([program.lanes[i].place[chosen] for i, chosen in members])
        value = np.concatenate([lags[i][chosen] for i, chosen in members])
        if not len(place):
            continue
        known = ~np.isnan(value)
        statistic = np.full(int(place.max()) + 1, np.nan)
        order = np.argsort(place[known], kind="stable")
        at, sorted_value = place[known][order], value[known][order]
        starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]]) if len(at) else np.empty(0, np.int64)
        for a, b in zip(starts, np.r_[starts[1:], len(at)], strict=False):
            statistic[at[a]] = use(sorted_value[a:b])
        for i, chosen in members:
            out[i][chosen] = statistic[program.lanes[i].place[chosen]]
    return out


def _low(values: NDArray[np.float64]) -> float:
    return float(np.quantile(values, _NORMAL))


def _normal_lags(program: Program, gates: tuple[Gates, ...], sharing: Sharing) -> list[NDArray[np.float64]]:
    """The normal time from ready to sent, per message: low quartile where the credit did not hold it up."""
    free, every = [], []
    for gate in gates:
        ready = ready_ns(gate)
        lag = np.where(ready != MISSING, gate.start_ns - ready, np.nan).astype(np.float64)
        held = (gate.credit_ns != MISSING) & (gate.credit_ns - ready > 0.2 * (gate.start_ns - ready))
        every.append(lag)
        free.append(np.where(held, np.nan, lag))
    normal = pooled(program, free, sharing, _low)
    fallback = pooled(program, every, sharing, _low)
    return [np.where(np.isnan(n), f, n) for n, f in zip(normal, fallback, strict=True)]


def credit_lags(
    program: Program, grants: tuple[Grants, ...], sharing: Sharing
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Per lane and message: how late its credit was after what the receiver needed, and the norm of that."""
    lags = []
    for given in grants:
        known = (given.posted_ns != MISSING) & (given.input_ns != MISSING)
        lags.append(np.where(known, given.posted_ns - given.input_ns, np.nan).astype(np.float64))
    return list(zip(lags, pooled(program, lags, sharing, _low), strict=True))


def _tighten_by_entry(
    program: Program,
    normal_send: list[NDArray[np.float64]],
    post_lag: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> None:
    """Where credits are posted on entering a collective, they show the computing time without waiting.

    There a send after computing may always have been held up by its credit, so that its own low quartile
    is too large; the time to the credit's posting is not. Credits that the host posts early come long
    before. Which of the two a stack does shows at most of a group's computing places, even when a fault
    holds up one of them all the time.
    """
    votes: dict[int, list[NDArray[np.bool_]]] = {}
    for lane, usual, (_, entry) in zip(program.lanes, normal_send, post_lag, strict=True):
        with np.errstate(invalid="ignore"):
            votes.setdefault(lane.group, []).append((entry > 0.5 * usual)[_computes(usual)])
    for lane, usual, (_, entry) in zip(program.lanes, normal_send, post_lag, strict=True):
        cast = np.concatenate(votes[lane.group])
        if len(cast) and cast.mean() >= 0.5:
            usual[:] = np.fmin(entry, usual)


def _late_sends(traffic: Traffic, program: Program, gate: Gates, normal: NDArray[np.float64]) -> Table:
    lane = program.lanes[gate.lane]
    free = np.maximum(_plus(ready_ns(gate), normal), np.maximum(gate.credit_ns, gate.before_ns))
    late = (free != MISSING) & (ready_ns(gate) != MISSING) & (gate.start_ns > free)
    return _charges(traffic, lane.rows, free, gate.start_ns, late, Charge.HOST)


def _late_credits(
    traffic: Traffic,
    program: Program,
    gate: Gates,
    normal: NDArray[np.float64],
    post_lag: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Table:
    """Credits that came later than normal, as far as a sender waited for them."""
    lane = program.lanes[gate.lane]
    lag, usual = post_lag
    waited = gate.credit_ns - np.maximum(_plus(ready_ns(gate), normal), gate.before_ns)
    with np.errstate(invalid="ignore"):
        excess = np.fmin(lag - usual, waited)
        late = (gate.credit_ns != MISSING) & (ready_ns(gate) != MISSING) & (excess > 0)
    length = np.where(late, excess, 0).astype(np.int64)
    return _charges(traffic, lane.rows, gate.credit_ns - length, gate.credit_ns, late, Charge.CREDIT)


def _computes(normal: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Messages before which the rank normally spends long: it computes there rather than forwards."""
    longest = np.nanmax(normal, initial=0.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(normal >= _COMPUTING * longest)


def _plus(ns: NDArray[np.int64], add: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.where(ns == MISSING, MISSING, ns + np.nan_to_num(add).astype(np.int64))


def transfer_excess(traffic: Traffic, program: Program, sharing: Sharing) -> NDArray[np.int64]:
    """By how much every message was under way for longer than is usual (ns, >= 0), 0 for those of other jobs.

    What is usual is told by the time that a message takes with its ports for itself: members of a symmetric
    group share the median for a size, elsewhere the low quartile of the same place tells.
    """
    took, alone = service_times(traffic, program)
    by_place = pooled(program, [alone[lane.rows] for lane in program.lanes], sharing, _low)
    usual = np.zeros(len(took))
    for number, timeline in enumerate(program.job.timelines):
        mine = [i for i, lane in enumerate(program.lanes) if lane.group == number]
        rows = np.concatenate([program.lanes[i].rows for i in mine])
        sizes, which = np.unique(traffic.transfers["bytes"][rows], return_inverse=True)
        of_size = np.array([np.median(alone[rows][which == i]) for i in range(len(sizes))])[which]
        several = number in sharing.groups and len(timeline.group.members) > 2
        if several or not timeline.regular:
            usual[rows] = of_size
        else:
            usual[rows] = np.fmin(np.concatenate([by_place[i] for i in mine]), of_size)
    slower = 1.0 - np.minimum(usual / np.maximum(alone, 1.0), 1.0)
    return np.asarray(took * slower, dtype=np.int64)


def _slow_transfers(traffic: Traffic, program: Program, excess_ns: NDArray[np.int64]) -> Table:
    """Messages that were under way for longer than usual."""
    rows = np.concatenate([lane.rows for lane in program.lanes])
    excess, end = excess_ns[rows], arrival(traffic.transfers[rows])
    return _charges(traffic, rows, end - excess, end, excess > 0, Charge.TRANSFER)


def _mark_repairs(charges: Table, repairs: Table) -> None:
    """Time lost on messages that had to be repeated is repair, charged to the link that lost them.

    A sender goes back to the lost packet and repeats all that it had sent since, further messages too.
    """
    lost = repairs[repairs["place"] != LossPlace.NOT_LOST]
    for reverse, kinds in ((0, (Charge.HOST, Charge.TRANSFER)), (1, (Charge.CREDIT,))):
        runs = lost[lost["reverse"] == reverse]
        rows = [np.arange(run["row"], run["last_row"] + 1) for run in runs]
        mask = np.isin(charges["row"], np.concatenate(rows) if rows else [])
        mask &= np.isin(charges["kind"], kinds)
        charges["kind"][mask] = Charge.REPAIR_CREDIT if reverse else Charge.REPAIR


def _charges(
    traffic: Traffic,
    rows: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    mask: NDArray[np.bool_],
    kind: Charge,
) -> Table:
    out = np.zeros(int(mask.sum()), CHARGE)
    out["start"], out["end"], out["row"] = start[mask], end[mask], rows[mask]
    edges = np.array(traffic.edges).reshape(-1, 2)[traffic.transfers["edge"][rows[mask]]]
    out["src"], out["dst"] = edges[:, 0], edges[:, 1]
    out["kind"] = kind
    return out
