# SPDX-License-Identifier: Apache-2.0
"""How members of a group pass on what they get: piece by piece, or in whole blocks.

A collective cuts its data into chunks and these into messages, and a member passes a message on as soon as
that one has come: every further message needs one more. A job that computes on what it gets needs all of it
first: then as many messages go out as came in, none of which needs more than the one before. The learned
needs show which, whoever is slow and however long anything takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.gates import Gates
from host_ctl.attribute.needs import Needs
from host_ctl.attribute.program import Program
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start

_MOST = 0.5
_A_FEW = 3  # one may be a packet that the capture lost
_LONGEST = 2048  # messages per iteration; more are not tried


def own_needs(program: Program, needs: Needs, group: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Every lane of a group with what its messages need of what its sender gets in the same group.

    Of several lanes that come in (channels) it is the one that is needed most: what another brings meanwhile
    is there by chance, and was missing in some iteration.
    """
    most: dict[int, NDArray[np.int64]] = {}
    for (index, source), need in needs.items():
        lane, arrivals = program.lanes[index], program.arrivals[source]
        if not (lane.group == arrivals.group == group and lane.src == arrivals.endpoint and len(need)):
            continue
        if index not in most or need.sum() > most[index].sum():
            most[index] = need
    yield from most.items()


def passes_blocks(program: Program, needs: Needs, group: int) -> bool | None:
    """Whether members send whole blocks after whole blocks; None where the needs of most do not tell.

    Where one message is a block, both ways of passing on need one more for each.
    """
    votes = []
    for _, need in own_needs(program, needs, group):
        if not need.any():
            continue  # nothing is passed on, as by the first stage of a pipeline
        rises = float((np.diff(need) > 0).mean()) if len(need) > 1 else 1.0
        ahead = bool((np.arange(len(need)) > need).any())
        votes.append(None if rises > _MOST and not ahead else rises <= _MOST)
    known = [vote for vote in votes if vote is not None]
    return sum(known) > _MOST * len(known) if len(known) > _MOST * len(votes) else None


def computes_between(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], needs: Needs, group: int
) -> bool:
    """Whether what comes in waits longer than it travelled before anything is passed on.

    Attention on a block takes longer than the next block's way, which it is meant to hide; a collective that
    waited so long would waste the network.
    """
    waits, ways = [], []
    for index, need in own_needs(program, needs, group):
        rows = program.lanes[index].rows
        place = np.minimum(program.lanes[index].place, len(need) - 1)
        fed = (np.diff(need, prepend=0) > 0)[place] & (gates[index].input_ns != MISSING)
        before = np.maximum(gates[index].input_ns, gates[index].before_ns)
        waits.append((gates[index].start_ns - before)[fed])
        ways.append((arrival(traffic.transfers[rows]) - send_start(traffic.transfers[rows]))[fed])
    if not sum(map(len, waits)):
        return False
    return bool(np.median(np.concatenate(waits)) > np.median(np.concatenate(ways)))


def sends_all_first(program: Program, gates: tuple[Gates, ...], group: int) -> bool:
    """Whether members have sent all of a unit before anything of it came to them: it was passed on whole.

    For groups of which nothing is learned, since their units are no iterations. Members that are early by
    chance show it.
    """
    seen = 0
    for gate in gates:
        lane = program.lanes[gate.lane]
        if lane.group != group:
            continue
        last = np.r_[lane.first[1:], len(lane.rows)] - 1
        for number in program.arrivals_of.get(lane.src, ()):
            item = program.arrivals[number]
            if item.group != group:
                continue
            whole = (last >= lane.first) & (item.first < len(item.times))
            seen += int((gate.start_ns[last[whole]] < item.times[item.first[whole]]).sum())
    return seen >= _A_FEW


def ring_steps(program: Program, needs: Needs, group: int, choices: tuple[int, ...]) -> int | None:
    """In how many steps every chunk goes round, of some choices: the one that explains the needs best.

    The members of a ring play one part, and needs are learned as upper bounds: the least of them is nearest
    to the truth, which cannot exceed it.
    """
    of_channel: dict[tuple[int, int], list[NDArray[np.int64]]] = {}
    for index, need in own_needs(program, needs, group):
        of_channel.setdefault((program.lanes[index].channel, len(need)), []).append(need)
    if not of_channel:
        return None
    least = [np.min(np.stack(parts), axis=0) for parts in of_channel.values()]
    possible: dict[int, int] = {}
    for steps in choices:
        found = [_unexplained(need, steps) for need in least if len(need) <= _LONGEST]
        known = [f for f in found if f is not None]
        if known and len(known) == len(found):
            possible[steps] = sum(known)
    return min(possible, key=lambda steps: possible[steps], default=None)


def _unexplained(need: NDArray[np.int64], steps: int) -> int | None:
    """By how much needs exceed those of collectives of so many steps one after the other; None if below.

    A collective of chunks of c messages sends c without input, then one for each that comes, steps x c in
    all, and what follows needs all of it.
    """
    n = len(need)
    best: list[int | None] = [None] * n + [0]
    for begin in range(n - 1, -1, -1):
        if need[begin] < begin:
            continue
        for chunk in range(1, (n - begin) // steps + 1):
            end = begin + steps * chunk
            rest = best[end]
            if rest is None:
                continue
            implied = begin + np.maximum(0, np.arange(end - begin) - chunk + 1)
            excess = need[begin:end] - implied
            if (excess >= 0).all():
                total = rest + int(excess.sum())
                known = best[begin]
                best[begin] = total if known is None else min(known, total)
    return best[0]
