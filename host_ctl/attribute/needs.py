# SPDX-License-Identifier: Apache-2.0
"""Learns what every send and every credit needs.

A rank may send its k-th message once certain messages have arrived: in a ring the one that it forwards,
at the begin of an iteration the whole of the iteration before, in a pipeline the activations of this
micro-batch. Nobody tells Pulse which, but over many iterations (and over the members of a ring, which
all play the same part) the *least* number of arrivals with which the k-th message was ever sent comes
down to the number that it needs. "The last arrival before the send" would be wrong: early data for a late
rank arrives during its lateness and would hide it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpu_app.wire.records import MessageFlag
from host_ctl.attribute.places import REPLICAS, Place, Places
from host_ctl.attribute.program import UNKNOWN, Arrivals, Lane
from host_ctl.reconstruct.coupling import component_of
from host_ctl.reconstruct.transfers import MISSING, Traffic

_LOWEST = 0.02  # of the leads seen at one place: a capture that lost a packet must not undercut it
_ENOUGH = 3  # iterations without repeats that make those with repeats dispensable


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a NIC's host does once per message of a lane: sending it, or granting its credit."""

    lane: Lane
    endpoint: int
    times: NDArray[np.int64]


Needs = dict[tuple[int, int], NDArray[np.int64]]
"""For (action, source) of one machine: how many of the source's items of the unit each place needs."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who shares needs and norms: the members of symmetric groups, and lanes of equal places.

    ``groups``: numbers of the job's timelines whose members all play the same part; ``places``: which lanes
    of other groups correspond in replicas of one pipeline. ``even``: further timelines in which everybody
    does equally much, such as barriers: no member differs by them, though their lanes do. ``starters``: by
    lane of a tree, the places with which several members begin an operator alike.
    """

    groups: frozenset[int]
    places: Places
    even: frozenset[int] = frozenset()
    starters: dict[int, NDArray[np.bool_]] = field(default_factory=dict)

    def begins(self, index: int, lane: Lane) -> NDArray[np.bool_]:
        """Which messages of a lane, the program's ``index``-th, begin an operator as other members do."""
        starters = self.starters.get(index)
        if starters is None:
            return np.zeros(len(lane.place), dtype=bool)
        known = lane.place < len(starters)
        return known & starters[np.where(known, lane.place, 0)]


@dataclass(frozen=True, slots=True)
class Learned:
    """Needs of every member alone; ``poor`` are those that were learned from disturbed iterations."""

    needs: Needs
    poor: frozenset[tuple[int, int]]


def on_same_machine(endpoint: int, sources: Sequence[Arrivals], traffic: Traffic) -> list[int]:
    """The sources that may gate what a NIC does: those of all NICs of its machine on its time.

    Between NICs that nothing measures against each other before and after mean nothing.
    """
    own = _machine_and_clock(traffic, endpoint)
    same = {e for e in {s.endpoint for s in sources} if _machine_and_clock(traffic, e) == own}
    return [i for i, s in enumerate(sources) if s.endpoint in same]


def _machine_and_clock(traffic: Traffic, endpoint: int) -> tuple[str, int]:
    return traffic.endpoints[endpoint].machine, component_of(traffic, endpoint)


def learn_needs(actions: Sequence[Action], sources: Sequence[Arrivals], traffic: Traffic) -> Learned:
    """Learn what every action needs of every source of its machine, each from its own iterations."""
    found: Needs = {}
    poor = set()
    repeated = (traffic.transfers["flags"] & MessageFlag.REPEATED) != 0
    for index, action in enumerate(actions):
        if not action.lane.volume:
            continue
        for number in on_same_machine(action.endpoint, sources, traffic):
            source = sources[number]
            clean = _undisturbed(source, repeated)
            learned = _least_lead(action, source, clean) if clean.sum() >= _ENOUGH else None
            if learned is None:
                learned = _least_lead(action, source, np.ones_like(clean))
                poor.add((index, number))
            if learned is not None:
                found[index, number] = learned
    return Learned(found, frozenset(poor))


def _undisturbed(source: Arrivals, repeated: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Iterations in which nothing of a source was repeated, nor in the one before.

    When a repeated message arrived is uncertain: its first packets may have come long before, and what the
    receiver did next may seem to have come too early.
    """
    before = np.r_[0, np.cumsum(repeated[source.rows])]
    known = np.clip(source.base, 0, len(source.rows))  # a hole in the capture puts iterations beyond its end
    begin = np.minimum(np.r_[0, known[:-1]], known)
    end = np.maximum(np.r_[known[1:], len(source.rows)], known)
    return np.asarray((source.base != UNKNOWN) & (before[end] == before[begin]))


def share_needs(
    learned: Learned, actions: Sequence[Action], sources: Sequence[Arrivals], sharing: Sharing
) -> Needs:
    """Give members of one role the least need found for any of them: the others only came to need more.

    Where several channels reach a NIC the limit is the middle of the peers: channels that run in step seem to
    need something of each other, one message more here and one less there, and the least of all would be too
    little for everybody.
    """
    shared = dict(learned.needs)
    for part, fewest in ((_group_part, 2), (_place_part, REPLICAS)):
        pools: dict[Hashable, list[tuple[int, int]]] = {}
        for index, number in learned.needs:
            key = part(actions, index, sources, number, sharing)
            if key is not None:
                own = sources[number].endpoint == actions[index].endpoint
                pools.setdefault((key, own), []).append((index, number))
        for keys in pools.values():
            if len(keys) < fewest or len({len(shared[k]) for k in keys}) > 1:
                continue
            known = [k for k in keys if k not in learned.poor] or keys
            ordered = np.sort(np.stack([shared[k] for k in known]), axis=0)
            several = len({index for index, _ in keys}) < len(keys)
            limit = ordered[(len(known) - 1) // 2 if several else 0]
            for k in keys:
                shared[k] = limit if k in learned.poor else np.minimum(shared[k], limit)
    return shared


def _group_part(
    actions: Sequence[Action], index: int, sources: Sequence[Arrivals], number: int, sharing: Sharing
) -> Hashable:
    """Members of symmetric groups play one part towards the arrivals of symmetric groups, and own sends."""
    groups = (actions[index].lane.group, sources[number].group)
    part = (*groups, actions[index].lane.channel, sources[number].round, _kind(number, sharing))
    return part if sharing.groups.issuperset(groups) else None


def _place_part(
    actions: Sequence[Action], index: int, sources: Sequence[Arrivals], number: int, sharing: Sharing
) -> Hashable:
    """The same place in replicas of one pipeline: what the action is, and what it may need."""
    lanes, arrivals = sharing.places.lanes, sharing.places.arrivals
    kind = _kind(number, sharing)
    source: Place = lanes[(number - len(arrivals)) % len(lanes)] if kind else arrivals[number]
    if lanes[index] is None or source is None:
        return None
    # Rings of one stage look alike, but what comes on the own ring is needed in another way.
    return (lanes[index], source, kind, actions[index].lane.group == sources[number].group)


def _kind(number: int, sharing: Sharing) -> int:
    """Whether a source is arrivals (0), own sends of a lane (1) or their ends (2), which come behind."""
    behind = number - len(sharing.places.arrivals)
    return 0 if behind < 0 else 1 + behind // len(sharing.places.lanes)


def _least_lead(action: Action, source: Arrivals, clean: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """The least lead per place over some iterations, None where a place was never seen."""
    lane = action.lane
    usable = (lane.unit != UNKNOWN) & (action.times != MISSING)
    usable &= (source.base[lane.unit] != UNKNOWN) & clean[lane.unit]
    if not usable.any():
        return None
    lead = np.searchsorted(source.times, action.times[usable], side="right") - source.base[lane.unit[usable]]
    place = lane.place[usable]
    order = np.lexsort((lead, place))
    place, lead = place[order], lead[order]
    first = np.searchsorted(place, np.arange(lane.volume))
    count = np.searchsorted(place, np.arange(lane.volume), side="right") - first
    if (count == 0).any():
        return None
    need = lead[first + (count * _LOWEST).astype(np.int64)]
    # Messages leave in order: what a later one can do without, an earlier one does not need either.
    return np.asarray(np.minimum.accumulate(need[::-1])[::-1])
