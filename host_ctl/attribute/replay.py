# SPDX-License-Identifier: Apache-2.0
"""Replays a job with the excess of a suspect taken away: what would the iterations have lasted then?

What is late costs nothing while something else is later. So the worth of an excess is not its length but
what the job gains without it, and that follows from what every message waited for: its input, the message
before it, its credit, its host's own time, its way. Each of the waits moves with what it waits for; a host
that had to compute for so long after its input goes on to do so, however early everything else becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.charges import Charge, credit_lags, pooled
from host_ctl.attribute.computing import chain_computing, follow_starters
from host_ctl.attribute.gates import NOTHING, Gates, Grants
from host_ctl.attribute.needs import Sharing
from host_ctl.attribute.program import Program, iteration_of_rows
from host_ctl.attribute.waits import WAITS, begin_anew, least, local, mean, normal, since, split
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.coupling import component_of
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_end
from pulse_native import replay, replay_dtypes

_MESSAGE, _CUT = replay_dtypes()["MESSAGE"], replay_dtypes()["CUT"]
_NOW_AND_THEN = 0.1  # of the messages of one place
_COMPUTING = 0.2
_ONE_EDGE_AT_A_TIME = ("ring", "pairwise", "alltoall")
_SLOW = 0.5


@dataclass(frozen=True, slots=True)
class Replay:
    """A job's messages as a network of waits, with what each step took beyond normal.

    All arrays are per message, in no particular order: ``lane`` and ``place`` say which of the program it
    is, ``src`` and ``dst`` are endpoints, ``clock`` numbers the sets of NICs that share a time, ``excess``
    holds what can be cut (ns). ``repaired`` marks messages that were held up by lost packets, ``computes``
    those before which the host always takes long, ``compared`` those whose norm comes from several members
    that play the same part, ``branching`` those of groups whose members have several edges at a time,
    ``behind_slow`` those that follow a slow one of their lane: what holds up a message holds up the next.
    """

    iterations: int
    iteration: NDArray[np.int64]
    lane: NDArray[np.int64]
    place: NDArray[np.int64]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    clock: NDArray[np.int64]
    excess: Table
    repaired: NDArray[np.bool_]
    computes: NDArray[np.bool_]
    compared: NDArray[np.bool_]
    branching: NDArray[np.bool_]
    behind_slow: NDArray[np.bool_]
    _messages: Table
    _order: NDArray[np.int64]

    @property
    def start_ns(self) -> NDArray[np.int64]:
        """When each message was sent (common ns)."""
        return np.asarray(self._messages["start"])

    @property
    def posted_ns(self) -> NDArray[np.int64]:
        """When each message's credit was granted (common ns), MISSING without credits."""
        return np.asarray(self._messages["posted"])

    def nothing(self) -> Table:
        """Cuts of nothing, to be filled in."""
        return np.zeros(len(self._messages), _CUT)

    def hosts(self, members: Sequence[int]) -> Table:
        """Cuts that make the hosts of some endpoints as quick as their norm, in sends and in credits.

        What waits behind a slow message is not its host's.
        """
        cuts = self.nothing()
        own, grants = np.isin(self.src, members), np.isin(self.dst, members)
        cuts["host"] = np.where(own & ~self.repaired & ~self.behind_slow, self.excess["host"], 0)
        cuts["credit"] = np.where(grants & ~self.repaired, self.excess["credit"], 0)
        return cuts

    def transfers(self, chosen: NDArray[np.bool_]) -> Table:
        """Cuts that make chosen messages as quick under way as usual, and what waits behind them likewise."""
        cuts = self.nothing()
        chosen = chosen & ~self.repaired
        cuts["transfer"] = np.where(chosen, self.excess["transfer"], 0)
        cuts["host"] = np.where(chosen & self.behind_slow, self.excess["host"], 0)
        return cuts

    def repairs(self) -> Table:
        """Cuts of all that repeated packets cost."""
        cuts = self.excess.copy()
        cuts[~self.repaired] = 0
        return cuts

    def saved_ns(self, *cuts: Table) -> NDArray[np.int64]:
        """By how much each iteration would have been shorter with all the cuts (ns), per (clock, iteration).

        Each set of NICs whose clocks are measured against each other ends its iterations on its own time.
        """
        together = self.nothing()
        for name in _CUT.names or ():
            for one in cuts:
                together[name] = np.maximum(together[name], one[name])
        hosts = int(max(self.src.max(initial=0), self.dst.max(initial=0))) + 1
        arrivals = replay(self._messages, together, self._order, hosts)
        gained = self._ends(self._messages["start"] + self._messages["transfer"]) - self._ends(arrivals)
        return np.diff(gained, prepend=0, axis=1)

    def clocks_of(self, cuts: Table) -> NDArray[np.int64]:
        """The clocks of the messages that are cut."""
        cut = np.any([cuts[name] > 0 for name in _CUT.names or ()], axis=0)
        return np.unique(self.clock[cut])

    def _ends(self, arrivals: NDArray[np.int64]) -> NDArray[np.int64]:
        ends = np.full((int(self.clock.max(initial=0)) + 1, self.iterations), MISSING)
        np.maximum.at(ends, (self.clock, self.iteration), arrivals)
        return np.asarray(np.maximum.accumulate(ends, axis=1))


def build_replay(
    traffic: Traffic,
    program: Program,
    gates: tuple[Gates, ...],
    grants: tuple[Grants, ...],
    sharing: Sharing,
    charges: Table,
    slow_ns: NDArray[np.int64],
) -> Replay:
    """The replay of a job from what its messages waited for; ``slow_ns`` is the transfers' excess."""
    rows = np.concatenate([lane.rows for lane in program.lanes])
    iteration = iteration_of_rows(traffic, program)[rows]
    t = traffic.transfers[rows]
    edges = np.array(traffic.edges).reshape(-1, 2)[t["edge"]]
    messages = _messages(traffic, program, gates, grants, sharing, rows)
    messages["sender"], messages["receiver"] = edges[:, 0], edges[:, 1]
    computes, compared = _computes(messages), _compared(program, sharing)
    follow_starters(traffic, program, sharing, messages, rows)
    _forget_unseen_lags(program, sharing, messages)
    chain_computing(program, sharing, messages)
    excess = np.zeros(len(rows), _CUT)
    excess["host"] = _host_excess(program, sharing, messages)
    credit = [np.nan_to_num(lag - usual) for lag, usual in credit_lags(program, grants, sharing)]
    excess["credit"] = np.maximum(np.concatenate(credit), 0).astype(np.int64)
    excess["transfer"] = slow_ns[rows]
    branching = _branching(program)
    repairs = charges[np.isin(charges["kind"], (Charge.REPAIR, Charge.REPAIR_CREDIT))]
    return Replay(
        program.job.iterations,
        iteration,
        np.repeat(np.arange(len(program.lanes)), [len(lane.rows) for lane in program.lanes]),
        np.concatenate([lane.place for lane in program.lanes]),
        edges[:, 0],
        edges[:, 1],
        _clocks(traffic, edges[:, 0]),
        excess,
        np.isin(rows, repairs["row"]),
        computes,
        compared,
        branching,
        # In a tree nothing tells a slow message from one that shares its port for once.
        _behind_slow(messages, excess) & ~computes & ~branching,
        messages,
        np.argsort(messages["start"], kind="stable"),
    )


def _messages(
    traffic: Traffic,
    program: Program,
    gates: tuple[Gates, ...],
    grants: tuple[Grants, ...],
    sharing: Sharing,
    rows: NDArray[np.int64],
) -> Table:
    place_of = np.full(len(traffic.transfers), NOTHING)
    place_of[rows] = np.arange(len(rows))
    t = traffic.transfers
    messages = np.zeros(len(rows), _MESSAGE)
    at = 0
    for lane, gate, given in zip(program.lanes, gates, grants, strict=True):
        part = messages[at : at + len(lane.rows)]
        at += len(lane.rows)
        part["start"] = gate.start_ns
        part["sending"] = send_end(t[lane.rows]) - gate.start_ns
        part["transfer"] = arrival(t[lane.rows]) - gate.start_ns
        part["input_row"] = local(place_of, gate.input_row)
        part["before_row"][0] = NOTHING
        part["before_row"][1:] = place_of[lane.rows[:-1]]
        part["posted"] = given.posted_ns
        part["credit_way"] = np.where(given.posted_ns != MISSING, gate.credit_ns - given.posted_ns, 0)
        part["grant_row"] = local(place_of, given.input_row)
        known = given.input_row != NOTHING
        part["grant_is_send"][known] = arrival(t[given.input_row[known]]) != given.input_ns[known]
    _in_order_of_rounds(program, messages)
    for name in ("input_row", "grant_row", "before_row"):
        # Nothing waits for what was sent later; where a loss makes it seem so, the wait is unknown.
        later = messages["start"][messages[name]] >= messages["start"]
        messages[name][later] = NOTHING
    _set_lags(program, sharing, messages)
    return messages


def _in_order_of_rounds(program: Program, messages: Table) -> None:
    """Let what members send in rounds wait for the round before, to another partner, rather than for its
    lane's message before, an iteration ago."""
    first = np.r_[0, np.cumsum([len(lane.rows) for lane in program.lanes])]
    turns: dict[tuple[int, int], list[int]] = {}
    for index, lane in enumerate(program.lanes):
        turns.setdefault((lane.group, lane.src), []).append(index)
    for mine in turns.values():
        lanes = [program.lanes[i] for i in mine]
        if not any(lane.round for lane in lanes):
            continue
        local = np.concatenate(
            [first[i] + np.arange(len(lane.rows)) for i, lane in zip(mine, lanes, strict=True)]
        )
        place, unit = (
            np.concatenate(parts) for parts in zip(*((x.place, x.group_unit) for x in lanes), strict=True)
        )
        turn = np.repeat([lane.round for lane in lanes], [len(lane.rows) for lane in lanes])
        order = local[np.lexsort((turn, place, unit))]
        before = np.r_[NOTHING, order[:-1]]
        if len({group for group, src in turns if src == lanes[0].src}) > 1:
            # Between one exchange and the next it does something else, which its arrivals there tell.
            begins = np.r_[True, np.diff(np.sort(unit)) != 0]
            before[begins] = NOTHING
        messages["before_row"][order] = before


def _set_lags(program: Program, sharing: Sharing, messages: Table) -> None:
    """The least time that each place takes after its input, and after the message before it."""
    for row, name, length in WAITS:
        lag = np.concatenate(pooled(program, split(program, since(messages, row, length)), sharing, least))
        messages[name] = np.where(np.isnan(lag), 0, np.nan_to_num(lag)).astype(np.int64)


def _forget_unseen_lags(program: Program, sharing: Sharing, messages: Table) -> None:
    """Take for nothing the times after a wait that never decides when a message is sent.

    A host that always waits for its input may be ready long before, and how long it needs after the message
    before does not show: then it counts as ready at once. So does the input of a host that always computes
    for longer.
    """
    slacks = [since(messages, row, length) - messages[name] for row, name, length in WAITS]
    granted = messages["posted"] != MISSING
    lag = np.where(granted, messages["start"] - messages["posted"] - messages["credit_way"], np.nan)
    slacks.append(lag - np.concatenate(pooled(program, split(program, lag), sharing, least)))
    row = messages["compute_row"]
    slacks.append(
        np.where(row != NOTHING, messages["start"] - messages["start"][row] - messages["compute_lag"], np.nan)
    )
    slack = np.nan_to_num(np.stack(slacks), nan=np.inf)
    anew = begin_anew(program, sharing) & (messages["input_row"] != NOTHING)
    messages["before_lag"][anew] = np.minimum(messages["before_lag"][anew], 0)
    for (_, name, _), mine in zip(WAITS, slack, strict=False):
        decides = split(program, (mine <= slack.min(axis=0)).astype(np.float64))
        often = np.concatenate(pooled(program, decides, sharing, mean))
        messages[name] = np.where(often >= _NOW_AND_THEN, messages[name], np.minimum(messages[name], 0))


def _host_excess(program: Program, sharing: Sharing, messages: Table) -> NDArray[np.int64]:
    """What each host took after all that its message waited for, beyond what the place normally takes."""
    waits = [np.full(len(messages), MISSING)]
    for row, lag, length in WAITS:
        when = messages["start"][messages[row]] + messages[length][messages[row]] + messages[lag]
        waits.append(np.where(messages[row] != NOTHING, when, MISSING))
    compute = messages["compute_row"]
    waits.append(np.where(compute != NOTHING, messages["start"][compute] + messages["compute_lag"], MISSING))
    posted = messages["posted"]
    waits.append(np.where(posted != MISSING, posted + messages["credit_way"], MISSING))
    last = np.maximum.reduce(waits)
    left = np.where(last != MISSING, messages["start"] - last, np.nan).astype(np.float64)
    usual = np.concatenate(pooled(program, split(program, left), sharing, normal))
    return np.maximum(np.nan_to_num(left - usual), 0).astype(np.int64)


def _computes(messages: Table) -> NDArray[np.bool_]:
    """Messages that come long after all that they wait for: the host computes in between."""
    lag = np.where(messages["input_row"] != NOTHING, messages["input_lag"], np.iinfo(np.int64).max)
    lag = np.minimum(lag, np.where(messages["before_row"] != NOTHING, messages["before_lag"], lag))
    lag[(messages["input_row"] == NOTHING) & (messages["before_row"] == NOTHING)] = 0
    return np.asarray(lag >= max(1.0, _COMPUTING * float(lag.max(initial=0))))


def _clocks(traffic: Traffic, endpoints: NDArray[np.int64]) -> NDArray[np.int64]:
    component = np.array([component_of(traffic, e) for e in range(len(traffic.endpoints))])
    return np.unique(component[endpoints], return_inverse=True)[1].ravel()


def _compared(program: Program, sharing: Sharing) -> NDArray[np.bool_]:
    """Messages of members that play the same part as others in all that they do, or begin trees like others.

    A member of a ring that is a stage of a pipeline as well comes to the ring when the pipeline lets it.
    """
    alike = [
        lane.group in sharing.groups or lane.group in sharing.even or place is not None
        for lane, place in zip(program.lanes, sharing.places.lanes, strict=True)
    ]
    in_trees = {program.lanes[index].group for index in sharing.starters}
    unlike = {lane.src for lane, same in zip(program.lanes, alike, strict=True) if not same}
    odd = {
        lane.src
        for lane, same in zip(program.lanes, alike, strict=True)
        if not same and lane.group not in in_trees
    }
    compared = []
    for index, lane in enumerate(program.lanes):
        begins = sharing.begins(index, lane) & (lane.src not in odd)
        compared.append(begins | (lane.src not in unlike))
    return np.concatenate(compared)


def _branching(program: Program) -> NDArray[np.bool_]:
    algorithm = [program.job.timelines[lane.group].group.algorithm for lane in program.lanes]
    branching = [name not in _ONE_EDGE_AT_A_TIME for name in algorithm]
    return np.repeat(branching, [len(lane.rows) for lane in program.lanes])


def _behind_slow(messages: Table, excess: Table) -> NDArray[np.bool_]:
    """Messages whose lane's message before them took half as long again as usual, or more."""
    slow = excess["transfer"] >= _SLOW * (messages["transfer"] - excess["transfer"])
    return np.asarray((messages["before_row"] != NOTHING) & slow[messages["before_row"]])
