# SPDX-License-Identifier: Apache-2.0
"""Follows the waits at the end of a job: who lacks input, who lacks credit, who lacks nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from host_ctl.attribute.needs import Needs, on_same_machine
from host_ctl.attribute.program import UNKNOWN, Arrivals, Lane, Program
from host_ctl.reconstruct.jobs import GroupTimeline
from host_ctl.reconstruct.operators import ends_as_it_pauses
from host_ctl.reconstruct.transfers import MISSING, Traffic, send_end, send_start

_ENTERED = 0.5
_ALWAYS = 0.9
_BEGUN = 0.5
_MIN_PAST = 3
_PAUSE = 0.25  # of the median pause between operators
_OFTEN = 0.3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one lane is in its current iteration: ``sent`` of ``volume`` messages.

    Groups of one job need not be in the same ``iteration``: a ring that ends the steps of a pipeline may
    begin the iterations of the job.
    """

    lane: int
    src: int
    dst: int
    sent: int
    volume: int
    iteration: int
    has_credit: bool


@dataclass(frozen=True, slots=True)
class Standstill:
    """The state in which a job stopped.

    ``waits`` maps a member to the members it waits for; ``idle`` maps those that lacked nothing that they
    needed for their next message (or grant), and did not act, to the time (common ns) since when;
    ``usual_lag_ns`` is how long a ready member usually takes.
    """

    progress: tuple[Progress, ...]
    waits: dict[int, frozenset[int]]
    idle: dict[int, int]
    usual_lag_ns: float


def lane_progress(traffic: Traffic, program: Program) -> tuple[list[Progress], int]:
    """How far the lanes of every group are that stopped inside an operator, and in which iteration.

    A group that moved equally much on all links may be done for good: another group's turn, or the end of the
    run. But not where it never pauses.
    """
    found: list[Progress] = []
    iteration = -1
    for number, timeline in enumerate(program.job.timelines):
        lanes = [(i, lane) for i, lane in enumerate(program.lanes) if lane.group == number]
        unit = max((int(lane.group_unit[-1]) for _, lane in lanes), default=-1)
        mine = [_progress(traffic, program, i, unit) for i, lane in lanes if lane.volume]
        if not timeline.regular:
            mine = _irregular(traffic, program, lanes, unit)
        units = timeline.rhythm.units
        if len({p.sent / p.volume for p in mine}) > 1 and not _balanced(program, mine):
            stopped = not ends_as_it_pauses(traffic, timeline.group, timeline.operators, units)
        else:
            stopped = timeline.regular and _stopped_within(traffic, program, timeline, mine)
        if stopped:
            found.extend(mine)
            iteration = max(iteration, max((p.iteration for p in mine), default=UNKNOWN))
    return found, iteration


def _balanced(program: Program, progress: list[Progress]) -> bool:
    """Whether all lanes moved equally much since the capture began, wherever iterations were cut."""
    return len({len(program.lanes[p.lane].rows) / p.volume for p in progress}) == 1


def _stopped_within(
    traffic: Traffic, program: Program, timeline: GroupTimeline, progress: list[Progress]
) -> bool:
    """Whether all lanes of a group stopped with credits to spare where some lane of it never pauses.

    A receiver grants what an operator will send and no more; at the end of a run none is left.
    """
    if not progress or not all(0 < p.sent < p.volume and _spare(traffic, program, p) for p in progress):
        return False
    pause = np.median([b.start_ns - a.end_ns for a, b in pairwise(timeline.operators)])
    shares = []
    for item in progress:
        lane = program.lanes[item.lane]
        t = traffic.transfers[lane.rows]
        gap = send_start(t) - np.r_[MISSING, np.maximum.accumulate(send_end(t))[:-1]]
        there = gap[(lane.place == item.sent) & (lane.unit != UNKNOWN)]
        if len(there) < _MIN_PAST:
            return False
        shares.append(float(np.mean(there >= _PAUSE * max(pause, 1))))
    return min(shares) < _OFTEN


def _spare(traffic: Traffic, program: Program, item: Progress) -> bool:
    return any(traffic.links[i].unused_credits for i in program.lanes[item.lane].links)


def _irregular(
    traffic: Traffic, program: Program, lanes: list[tuple[int, Lane]], unit: int
) -> list[Progress]:
    """Where sizes change every time, a lane is behind when it has sent nothing that it always sends.

    Members that did not stop send all the same, as far as their slots go. Where most lanes have sent nothing
    the operator has not begun, and what little was sent is the rest of the one before.
    """
    found = []
    for index, lane in lanes:
        took_part = np.bincount(lane.group_unit, minlength=unit + 1)[:unit] > 0
        item = _progress(traffic, program, index, unit)
        if len(took_part) and took_part.mean() >= _ALWAYS:
            found.append(replace(item, sent=min(item.sent, 1), volume=1))
    begun = sum(item.sent for item in found) >= _BEGUN * len(found)
    return found if begun else []


def next_progress(traffic: Traffic, program: Program) -> tuple[list[Progress], int]:
    """The same for an iteration that has been entered but not begun: nothing sent of it yet.

    A group that stopped in a state in which it often pauses has still to end the iteration before.
    """
    lanes = [i for i, lane in enumerate(program.lanes) if lane.volume]
    newest = max((int(program.lanes[i].iteration_of_unit.max()) for i in lanes), default=-1)
    found = []
    for number in range(len(program.job.timelines)):
        mine = [i for i in lanes if program.lanes[i].group == number]
        unit = max((int(program.lanes[i].group_unit[-1]) for i in mine), default=-1)
        current = [_progress(traffic, program, i, unit) for i in mine]
        ended = all(p.sent == p.volume for p in current)
        found.extend([_progress(traffic, program, i, None) for i in mine] if ended else current)
    return found, newest + 1


def _progress(traffic: Traffic, program: Program, index: int, unit: int | None) -> Progress:
    lane = program.lanes[index]
    sent = int((lane.group_unit == unit).sum()) if unit is not None else 0
    links = [traffic.links[i] for i in np.unique(traffic.transfers["link"][lane.rows])]
    granted = not any(link.credits for link in links) or any(link.unused_credits for link in links)
    src, dst = traffic.edges[lane.edge]
    newest = int(lane.iteration_of_unit.max(initial=UNKNOWN))
    iteration = UNKNOWN if unit is None else int(lane.iteration_of_unit[unit])
    # What was cut short after the last whole iteration belongs to the next.
    iteration = newest + 1 if iteration == UNKNOWN else iteration
    return Progress(index, src, dst, sent, lane.volume, iteration, granted)


def entered_next(traffic: Traffic, program: Program) -> bool:
    """Whether credits were posted for an iteration that no message of has been sent.

    Credits that hosts post early, right after the iteration before, say nothing; those that come after
    about the usual time of computing do.
    """
    for lane in program.lanes:
        rhythm = program.job.timelines[lane.group].rhythm
        computing = np.median(rhythm.starts_ns[1:] - rhythm.ends_ns[:-1]) if rhythm.units > 1 else 0.0
        numbers = np.unique(traffic.transfers["link"][lane.rows])
        granted = traffic.credits[np.isin(traffic.credits["link"], numbers)]
        unused = sum(traffic.links[i].unused_credits for i in numbers)
        if not unused or not len(granted):
            continue
        posted = np.where(granted["tx"] != MISSING, granted["tx"], granted["rx"])
        ended = int(rhythm.ends_ns[-1])
        if computing > 0 and int(posted.max()) - ended >= _ENTERED * computing:
            return True
    return False


def find_standstill(traffic: Traffic, program: Program, needs: Needs, progress: list[Progress]) -> Standstill:
    """Say for every member with something left to send what it lacks."""
    waits: dict[int, set[int]] = {}
    idle: dict[int, int] = {}
    behind = {p.src for p in progress if p.sent < p.volume}
    for item in progress:
        if item.sent >= item.volume:
            continue
        lacking = _lacking_input(traffic, program, needs, item, behind)
        if lacking:
            waits.setdefault(item.src, set()).update(lacking)
        elif not item.has_credit:
            waits.setdefault(item.src, set()).add(item.dst)
        else:
            since = _ready_since(traffic, program, needs, item)
            idle[item.src] = min(since, idle.get(item.src, since))
    # Who is waited for, and has itself nothing left to wait for, did not grant.
    for wanted in {w for group in waits.values() for w in group}:
        if wanted not in waits and wanted not in idle:
            idle[wanted] = _last_act(traffic, program, wanted)
    if not idle:
        # What members need is known too well where there were few iterations: then all seem to wait.
        idle = {m: _last_act(traffic, program, m) for m in _absent(traffic, progress)}
    still = {m: frozenset(w) for m, w in waits.items() if m not in idle}
    return Standstill(tuple(progress), still, idle, _usual_lag(traffic, program))


def _absent(traffic: Traffic, progress: list[Progress]) -> list[int]:
    """The one member that has neither sent nor granted anything of an operator in which all others have."""
    grants = any(link.credits for link in traffic.links)
    acted = {p.src for p in progress if p.sent}
    acted |= {p.dst for p in progress if grants and (p.sent or p.has_credit)}
    missing = {m for p in progress for m in (p.src, p.dst)} - acted
    return sorted(missing) if len(missing) == 1 else []


def unlike_before(traffic: Traffic, program: Program, progress: tuple[Progress, ...]) -> dict[int, int]:
    """Members that sent messages of sizes never seen in their group, and how many: a collective of its own.

    Only where sizes repeat can they tell: where the iteration before brought none that was new either. The
    first iteration is left out, since programs set themselves up with collectives of other sizes.
    """
    found: dict[int, int] = {}
    for number in {program.lanes[p.lane].group for p in progress}:
        lanes = [lane for lane in program.lanes if lane.group == number]
        newest = max(int(lane.group_unit[-1]) for lane in lanes)
        size = np.concatenate([traffic.transfers["bytes"][lane.rows] for lane in lanes])
        unit = np.concatenate([lane.group_unit for lane in lanes])
        src = np.concatenate([np.full(len(lane.rows), lane.src) for lane in lanes])
        usual = np.unique(size[(unit > 0) & (unit < newest - 1)])
        if newest <= _MIN_PAST or not np.isin(size[unit == newest - 1], usual).all():
            continue
        for member in src[(unit == newest) & ~np.isin(size, usual)].tolist():
            found[member] = found.get(member, 0) + 1
    return found


def _ready_since(traffic: Traffic, program: Program, needs: Needs, item: Progress) -> int:
    """When a lane's next message had all that it needed: its last input, or the message before it."""
    lane = program.lanes[item.lane]
    ready = int(send_end(traffic.transfers[lane.rows]).max()) if item.sent else 0
    for number in on_same_machine(item.src, program.arrivals, traffic):
        source, need = program.arrivals[number], needs.get((item.lane, number))
        if need is not None:
            at = _base(program, source, item.iteration) + int(need[item.sent]) - 1
            if 0 <= at < len(source.times):
                ready = max(ready, int(source.times[at]))
    return ready


def _last_act(traffic: Traffic, program: Program, member: int) -> int:
    """When a member last sent anything."""
    lanes = program.lanes_of.get(member, ())
    return max((int(send_end(traffic.transfers[program.lanes[i].rows]).max()) for i in lanes), default=0)


def _usual_lag(traffic: Traffic, program: Program) -> float:
    """Median time between two messages of a lane."""
    gaps = [np.diff(send_start(traffic.transfers[lane.rows])) for lane in program.lanes]
    return float(np.median(np.concatenate(gaps))) if gaps else 0.0


def _lacking_input(
    traffic: Traffic, program: Program, needs: Needs, item: Progress, behind: set[int]
) -> set[int]:
    """The members whose messages the next send of a lane still needs."""
    lacking: set[int] = set()
    for number in on_same_machine(item.src, program.arrivals, traffic):
        source = program.arrivals[number]
        need = needs.get((item.lane, number))
        if need is None:
            continue
        have = len(source.times) - _base(program, source, item.iteration)
        if have < int(need[item.sent]):
            senders = {traffic.edges[e][0] for e in source.edges}
            lacking |= senders & behind or senders
    return lacking


def _base(program: Program, source: Arrivals, iteration: int) -> int:
    """How many of a source's messages belong to iterations before this one, those still to come included."""
    lanes = [
        lane for lane in program.lanes if {*lane.links} <= {*source.links} and lane.group == source.group
    ]
    units = lanes[0].iteration_of_unit
    found = np.flatnonzero(units == iteration)
    if len(found):
        return int(source.first[found[0]])
    newest = int(np.argmax(units)) if len(units) else 0
    if not len(units) or units[newest] == UNKNOWN or iteration < units[newest]:
        return len(source.times)
    missing = iteration - int(units[newest])
    return int(source.first[newest]) + missing * sum(lane.volume for lane in lanes)
