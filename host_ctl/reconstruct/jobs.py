# SPDX-License-Identifier: Apache-2.0
"""Joins groups into training jobs and numbers their iterations.

Groups belong to one job when they share a NIC, or when they share a machine and a rhythm (rails that
never meet on the wire). Traffic that moves one way only, or that has no rhythm, is set aside: storage,
bandwidth tests and the like are no training job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.count_rhythm import count_rhythm
from host_ctl.reconstruct.episodes import episodes
from host_ctl.reconstruct.groups import Group, find_groups
from host_ctl.reconstruct.operators import Operator, cut_operators
from host_ctl.reconstruct.rhythm import Rhythm, find_rhythm
from host_ctl.reconstruct.strands import Strand
from host_ctl.reconstruct.transfers import Traffic
from host_ctl.reconstruct.units import split_units

_SAME_PERIOD = 0.05
_REGULAR, _CLEARLY_REGULAR = 0.6, 0.9
_NEARLY_ALL = 0.9
_CLEARLY_LONGER = 1.5
_MIN_UNITS = 4


@dataclass(frozen=True, slots=True)
class GroupTimeline:
    """One group's operators and the units in which they repeat.

    ``regular`` says that every link moves the same number of messages in (nearly) every unit, so that
    the k-th message of a unit means the same in all of them. ``repeats`` is False where the group shows no
    repetition by itself, and each operator counts as a unit.
    """

    group: Group
    operators: tuple[Operator, ...]
    rhythm: Rhythm
    regular: bool
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """A training job: its groups and when each of its iterations began.

    ``boundaries_ns`` has one entry per iteration and one more at the end (common clock).
    """

    id: str
    timelines: tuple[GroupTimeline, ...]
    members: tuple[int, ...]
    boundaries_ns: NDArray[np.int64]

    @property
    def links(self) -> list[int]:
        """The links of all its groups."""
        return [i for timeline in self.timelines for i in timeline.group.links]

    @property
    def iterations(self) -> int:
        """How many iterations were seen, the first and last perhaps in part."""
        return len(self.boundaries_ns) - 1

    @property
    def iteration_ns(self) -> float:
        """Median time of one iteration."""
        return float(np.median(np.diff(self.boundaries_ns)))


def find_jobs(traffic: Traffic, strands: Sequence[Strand]) -> tuple[tuple[Job, ...], tuple[Group, ...]]:
    """The training jobs of a capture, and the groups that were set aside."""
    timelines: list[GroupTimeline] = []
    aside: list[Group] = []
    for index, group in enumerate(find_groups(traffic, strands)):
        timeline = _timeline(traffic, group, index) or _by_operators(traffic, group, index)
        if timeline is None or not _is_collective(group, traffic):
            aside.append(group)
        else:
            timelines.append(timeline)
    timelines, odd = _attachable(timelines, traffic)
    aside.extend(odd)
    jobs = [
        _job(f"job-{number + 1}", [timelines[i] for i in members])
        for number, members in enumerate(_partition(timelines, aside, traffic))
    ]
    return tuple(jobs), tuple(aside)


def _attachable(timelines: list[GroupTimeline], traffic: Traffic) -> tuple[list[GroupTimeline], list[Group]]:
    """Leave out irregular groups that reach beyond the members of regular ones: storage and the like.

    An all-to-all may be irregular (its sizes change) and still be a job by itself, or a job's on a rail on
    which nothing else runs.
    """
    inside = {m for t in timelines if t.regular for m in t.group.members}
    machines = {traffic.endpoints[m].machine for m in inside}
    kept, odd = [], []
    for timeline in timelines:
        members = set(timeline.group.members)
        alone = timeline.group.algorithm == "alltoall" and not inside and timeline.repeats
        beside = timeline.group.algorithm == "alltoall" and _machines(timeline, traffic) <= machines
        if timeline.regular or alone or beside or (members <= inside and timeline.repeats):
            kept.append(timeline)
        else:
            odd.append(timeline.group)
    return kept, odd


def _timeline(traffic: Traffic, group: Group, index: int) -> GroupTimeline | None:
    operators = cut_operators(traffic, group, index)
    if not operators:
        return None
    rhythm = find_rhythm(
        np.array([o.messages for o in operators]),
        np.array([o.start_ns for o in operators]),
        np.array([o.end_ns for o in operators]),
    )
    regular = 0.0
    if rhythm is not None:
        operators, rhythm = split_units(traffic, group, operators, rhythm)
        regular = _regularity(operators, rhythm)
    if regular < _CLEARLY_REGULAR:
        # Silences that come and go tell no iterations; the links' own pauses may.
        counted = count_rhythm(traffic, group, index)
        if counted is not None and _regularity(*counted) > regular:
            operators, rhythm = counted
            regular = _regularity(operators, rhythm)
    if rhythm is not None and regular < _REGULAR and group.algorithm == "alltoall":
        apart = episodes(traffic, group, index)
        if apart is not None and len(operators) < _NEARLY_ALL * len(apart[0]):
            operators, rhythm = apart
    if rhythm is None:
        return None
    return GroupTimeline(group, operators, rhythm, regular >= _REGULAR)


def _by_operators(traffic: Traffic, group: Group, index: int) -> GroupTimeline | None:
    """An all-to-all that shows no repetition, operator by operator: another group may tell its iterations."""
    operators = cut_operators(traffic, group, index)
    if group.algorithm != "alltoall" or len(operators) < _MIN_UNITS:
        return None
    starts, ends = np.array([[o.start_ns, o.end_ns] for o in operators]).T
    rhythm = Rhythm(np.arange(len(operators)), starts, ends)
    return GroupTimeline(group, operators, rhythm, regular=False, repeats=False)


def _machines(timeline: GroupTimeline, traffic: Traffic) -> set[str]:
    return {traffic.endpoints[m].machine for m in timeline.group.members}


def _regularity(operators: Sequence[Operator], rhythm: Rhythm) -> float:
    """The share of units that have the usual number of messages, 0 where some have none."""
    units = np.add.reduceat(np.array([o.messages for o in operators]), rhythm.first)
    values, counts = np.unique(units, return_counts=True)
    return float(counts.max() / len(units)) if values[0] else 0.0


def _is_collective(group: Group, traffic: Traffic) -> bool:
    """Whether somebody both sends and receives: a group of one-way streams waits for nobody."""
    senders = {traffic.edges[e][0] for e in group.edges}
    receivers = {traffic.edges[e][1] for e in group.edges}
    return bool(senders & receivers)


def _partition(
    timelines: Sequence[GroupTimeline], aside: Sequence[Group], traffic: Traffic
) -> list[list[int]]:
    """Which timelines belong together, as lists of indices, the largest first."""
    parent = list(range(len(timelines)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for a in range(len(timelines)):
        for b in range(a + 1, len(timelines)):
            if _belong_together(timelines[a], timelines[b], aside, traffic):
                parent[root(b)] = root(a)
    parts: dict[int, list[int]] = {}
    for i in range(len(timelines)):
        parts.setdefault(root(i), []).append(i)
    return sorted(parts.values(), key=lambda p: (-len(p), p))


def _belong_together(a: GroupTimeline, b: GroupTimeline, aside: Sequence[Group], traffic: Traffic) -> bool:
    """Whether two groups share a NIC, or a rhythm and a machine (or a collective of the start)."""
    if set(a.group.members) & set(b.group.members):
        return True
    # An all-to-all that carries other amounts every time shows the rhythm of its job badly, or not at all.
    if not (a.regular and b.regular) and _machines(a, traffic) == _machines(b, traffic):
        return True
    periods = (a.rhythm.period_ns, b.rhythm.period_ns)
    if abs(periods[0] - periods[1]) > _SAME_PERIOD * max(periods):
        return False
    if _machines(a, traffic) & _machines(b, traffic):
        return True
    both = set(a.group.members) | set(b.group.members)
    return any(both <= set(g.members) and g.algorithm in ("ring", "tree", "alltoall") for g in aside)


def _job(name: str, timelines: list[GroupTimeline]) -> Job:
    """A job whose iterations are the units of its slowest regular rhythm."""
    regular = [t for t in timelines if t.regular] or timelines
    longest = max(t.rhythm.period_ns for t in regular)
    slow = [t for t in regular if t.rhythm.period_ns >= (1 - _SAME_PERIOD) * longest]
    lead = max(slow, key=lambda t: (t.rhythm.units, -int(t.rhythm.starts_ns[0])))
    timelines = [_in_iterations(t, lead.rhythm) for t in timelines]
    end = max(int(t.rhythm.ends_ns[-1]) for t in timelines)
    boundaries = np.r_[lead.rhythm.starts_ns, max(end, int(lead.rhythm.starts_ns[-1]) + 1)]
    members = sorted({m for t in timelines for m in t.group.members})
    return Job(name, tuple(timelines), tuple(members), boundaries)


def _in_iterations(timeline: GroupTimeline, lead: Rhythm) -> GroupTimeline:
    """The timeline with its units joined to those of the job where each iteration holds several of them.

    A group whose operators are all alike repeats with every one of them, and what tells the iterations is
    another group: a barrier at their end, for example.
    """
    rhythm = timeline.rhythm
    if not timeline.regular or lead.units < _MIN_UNITS:
        return timeline
    several = int(np.median(np.diff(np.searchsorted(rhythm.starts_ns, lead.starts_ns))))
    if several < 2 or rhythm.units < _MIN_UNITS * several:
        return timeline
    phase = _phase(rhythm, lead, several)
    begins = np.arange(phase, rhythm.units, several)
    # Counting may only tell what time bears out: the group and the lead go on in step, but at the end.
    at = np.searchsorted(lead.starts_ns, rhythm.starts_ns[begins] + lead.period_ns / 2, side="right")
    odd = int((np.diff(at) != 1).sum())
    if odd > max(1, (1 - _NEARLY_ALL) * len(begins)):
        return timeline
    first = np.unique(np.r_[0, begins])
    ends = np.r_[first[1:], rhythm.units] - 1
    joined = Rhythm(rhythm.first[first], rhythm.starts_ns[first], rhythm.ends_ns[ends])
    return replace(timeline, rhythm=joined)


def _phase(rhythm: Rhythm, lead: Rhythm, several: int) -> int:
    """Which of ``several`` operators is the first of an iteration: the one after the longest pause if one is
    clearly longer, else the one that follows what the lead does."""
    pause = np.r_[0, rhythm.starts_ns[1:] - rhythm.ends_ns[:-1]]
    usual = [float(np.median(pause[k::several])) for k in range(several)]
    phase = int(np.argmax(usual))
    if usual[phase] >= _CLEARLY_LONGER * float(np.median(np.delete(usual, phase))):
        return phase
    following = np.searchsorted(rhythm.starts_ns, lead.ends_ns) % several
    return int(np.argmax(np.bincount(following, minlength=several)))
