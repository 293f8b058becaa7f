# SPDX-License-Identifier: Apache-2.0
"""Finds messages that wait for their rank's own computing, which shows in other messages of that rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.charges import pooled
from host_ctl.attribute.gates import NOTHING, find_inputs, send_actions, starter_sources
from host_ctl.attribute.needs import Sharing, learn_needs
from host_ctl.attribute.program import Program
from host_ctl.attribute.waits import WAITS, least, local, mean, middle, since, split
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import Traffic

_COMPUTING = 0.2
_CLEARLY_STEADIER = 0.8
_MOSTLY = 0.5
_MIN_TIMES = 6


def follow_starters(
    traffic: Traffic, program: Program, sharing: Sharing, messages: Table, rows: NDArray[np.int64]
) -> None:
    """Let what a member of a tree sends wait for what it begins the operator with in another tree.

    A member that is a leaf in one of two trees is none in the other. It passes on there what has come from
    below together with what it has computed itself, and when that was ready shows where it is a leaf. Only
    where a message nearly always leaves with that is it what the message waits for.
    """
    messages["compute_row"] = NOTHING
    if not sharing.starters:
        return
    actions, sources = send_actions(traffic, program), starter_sources(traffic, program, sharing)
    needs = learn_needs(actions, sources, traffic).needs
    inputs = find_inputs(actions, sources, needs, traffic, program)
    place_of = np.full(len(traffic.transfers), NOTHING)
    place_of[rows] = np.arange(len(rows))
    row = local(place_of, np.concatenate([input_row for _, input_row in inputs]))
    starts = np.concatenate([sharing.begins(i, lane) for i, lane in enumerate(program.lanes)])
    row[starts] = NOTHING
    row[messages["start"][row] >= messages["start"]] = NOTHING
    after = np.where(row != NOTHING, messages["start"] - messages["start"][row], np.nan).astype(np.float64)
    lag = np.concatenate(pooled(program, split(program, after), sharing, least))
    others = np.fmin(*(since(messages, name, length) - messages[at] for name, at, length in WAITS))
    with np.errstate(invalid="ignore"):
        decides = np.where(row != NOTHING, after - lag <= np.nan_to_num(others, nan=np.inf), np.nan)
    often = np.concatenate(pooled(program, split(program, decides.astype(np.float64)), sharing, mean))
    with np.errstate(invalid="ignore"):
        holds = (row != NOTHING) & (often >= _MOSTLY)
    messages["compute_row"] = np.where(holds, row, NOTHING)
    messages["compute_lag"] = np.where(holds, np.nan_to_num(lag), 0).astype(np.int64)


def chain_computing(program: Program, sharing: Sharing, messages: Table) -> None:
    """Let messages wait for the computing before the last one where that holds them up rather than the input.

    A rank computes one thing after the other. When its input comes long before it gets to it, as parameters
    that are gathered ahead do, then the time since its input varies with how far the others are ahead, and
    the time since it got to the thing before does not. What it loses each time adds up then, and is not lost
    anew each time. Only among ranks that all do the same: stages of a pipeline take turns, and the time from
    turn to turn is that of the slowest.
    """
    begin, row = messages["start"], messages["input_row"]
    since_input = np.where(row != NOTHING, begin - begin[row] - messages["transfer"][row], np.nan)
    row = messages["before_row"]
    since_before = np.where(row != NOTHING, begin - begin[row] - messages["sending"][row], np.nan)
    idle = split(program, np.fmin(since_input, since_before).astype(np.float64))
    usual = np.nan_to_num(np.concatenate(pooled(program, idle, sharing, middle)))
    computes = _alike_in_all(program, sharing) & (usual >= max(1.0, _COMPUTING * float(usual.max(initial=0))))
    before = np.full(len(messages), NOTHING)
    at = 0
    for lane in program.lanes:
        own = at + np.flatnonzero(computes[at : at + len(lane.rows)])
        before[own[1:]] = own[:-1]
        at += len(lane.rows)
    both = (before != NOTHING) & ~np.isnan(since_input)
    since_last = np.where(both, begin - begin[before], np.nan)
    steady, moving = (_spread(program, sharing, t) for t in (since_last, np.where(both, since_input, np.nan)))
    with np.errstate(invalid="ignore"):
        holds = computes & (steady < _CLEARLY_STEADIER * moving) & _several(program)
    last = split(program, np.where(holds, since_last, np.nan))
    lag = np.nan_to_num(np.concatenate(pooled(program, last, sharing, least))).astype(np.int64)
    messages["compute_row"] = np.where(holds, before, messages["compute_row"])
    messages["compute_lag"] = np.where(holds, lag, messages["compute_lag"])


def _several(program: Program) -> NDArray[np.bool_]:
    """Messages of lanes with several per iteration: from one to the next is no time of computing."""
    return np.repeat([lane.volume != 1 for lane in program.lanes], [len(lane.rows) for lane in program.lanes])


def _alike_in_all(program: Program, sharing: Sharing) -> NDArray[np.bool_]:
    """Messages of members all of whose groups are symmetric."""
    unlike = {lane.src for lane in program.lanes if lane.group not in sharing.groups | sharing.even}
    return np.repeat(
        [lane.src not in unlike for lane in program.lanes], [len(lane.rows) for lane in program.lanes]
    )


def _spread(program: Program, sharing: Sharing, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much times vary from iteration to iteration at each place, by the middle of the peers (ns)."""
    spreads = []
    for lane, mine in zip(program.lanes, split(program, times), strict=True):
        out = np.full(len(mine), np.nan)
        for place in np.unique(lane.place[~np.isnan(mine)]):
            there = lane.place == place
            known = mine[there & ~np.isnan(mine)]
            if len(known) >= _MIN_TIMES:
                out[there] = np.median(np.abs(known - np.median(known)))
        spreads.append(out)
    return np.concatenate(pooled(program, spreads, sharing, middle))
