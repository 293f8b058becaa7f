# SPDX-License-Identifier: Apache-2.0
"""When the sender of every message was ready, but for its credit.

A sender that has its input may still be computing, and the credit may come meanwhile. Whether it could have
sent before, its reaction tells: who waits for nothing but a credit sends as soon as it comes, or as soon as
its port has sent what another lane was sending. Who sends later was not ready, and has not waited for the
credit at all. Of the time of those who did wait, as much was their own as the same message takes from its
input on where no credit holds it up.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.gates import Gates
from host_ctl.attribute.needs import Sharing
from host_ctl.attribute.program import UNKNOWN, Lane, Program
from host_ctl.reconstruct.transfers import MISSING, Traffic, arrival, send_start

_A_FEW = 4  # a host that looks at its lanes in turn takes longer than its quickest reaction
_ENOUGH = 3  # messages that tell how long their own part takes


def ready_times(
    traffic: Traffic, program: Program, gates: tuple[Gates, ...], sharing: Sharing
) -> tuple[NDArray[np.int64], ...]:
    """The times (ns) of all lanes, in the program's order; members of one role share what they take."""
    quickest = _quickest_reaction(traffic, program, gates)
    waited = []
    pools: dict[Hashable, list[int]] = {}
    for index, (lane, gate) in enumerate(zip(program.lanes, gates, strict=True)):
        t = traffic.transfers[lane.rows]
        one_message = int(np.median(arrival(t) - send_start(t)))
        since = np.where(gate.credit_ns != MISSING, gate.start_ns - gate.credit_ns, np.iinfo(np.int64).max)
        waited.append(since <= _A_FEW * quickest + one_message)
        pools.setdefault(_part(index, lane, sharing), []).append(index)
    ready = [gate.start_ns for gate in gates]
    for indices in pools.values():
        own = _own_times([(program.lanes[i], gates[i], waited[i]) for i in indices])
        for i in indices:
            place = np.minimum(program.lanes[i].place, len(own) - 1)
            ready[i] = np.where(waited[i], gates[i].input_ns + own[place], gates[i].start_ns)
    return tuple(ready)


def _quickest_reaction(traffic: Traffic, program: Program, gates: tuple[Gates, ...]) -> int:
    """The least time from a credit to the message that had waited for nothing else by then (ns)."""
    found = []
    for lane, gate in zip(program.lanes, gates, strict=True):
        reached = np.maximum.accumulate(arrival(traffic.transfers[lane.rows]))
        before = np.maximum(gate.input_ns, np.r_[MISSING, reached[:-1]])
        last = (gate.credit_ns != MISSING) & (gate.credit_ns >= before) & (gate.start_ns >= gate.credit_ns)
        found.extend([int((gate.start_ns - gate.credit_ns)[last].min())] if last.any() else [])
    return min(found, default=0)


def _part(index: int, lane: Lane, sharing: Sharing) -> Hashable:
    """Lanes whose messages of one place take equally long."""
    if lane.group in sharing.groups:
        return (lane.group, lane.channel, lane.volume)
    place = sharing.places.lanes[index]
    return (place, lane.volume) if place is not None else index


def _own_times(pool: list[tuple[Lane, Gates, NDArray[np.bool_]]]) -> NDArray[np.int64]:
    """How long a message of each place takes from its input on (ns): the lower quartile of those that no
    credit held up, 0 where they are too few. The last entry stands for places outside of the program."""
    places, times = [], []
    for lane, gate, waited in pool:
        free = (gate.input_ns != MISSING) & (lane.unit != UNKNOWN) & ~waited
        places.append(lane.place[free])
        times.append((gate.start_ns - np.where(free, gate.input_ns, 0))[free])
    place, time = np.concatenate(places), np.maximum(np.concatenate(times), 0)
    order = np.lexsort((time, place))
    begin = np.searchsorted(place[order], np.arange(pool[0][0].volume + 1))
    count = np.diff(begin)
    known = count >= _ENOUGH
    own = np.zeros(len(count) + 1, dtype=np.int64)
    own[:-1][known] = time[order][(begin[:-1] + count // 4)[known]]
    return own
