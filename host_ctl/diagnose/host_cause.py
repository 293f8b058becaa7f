# SPDX-License-Identifier: Apache-2.0
"""What keeps a host: computing, its input, a busy CPU, or a slow way from its NIC to its memory.

Computing comes before certain messages, the same in every iteration: those that begin an operator. A slow
way to memory, or a slow reader, delays every message alike. A CPU that others use delays now this one,
now that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.verdict import Cause, Evidence

_MOST = 0.8
_FEW = 0.15
_FEW_PLACES = 0.25
_AT_LEAST = 4
_STEADY = 0.5
_ONLY = 0.9
_SENDS = 0.25
_COMPARABLE = 0.3
_HALF = 0.5


def host_cause(
    replay: Replay, members: Sequence[int], inside: tuple[int, int], excess_ns: float
) -> tuple[Cause, str, tuple[Evidence, ...]]:
    """The cause, the reason in words, and the evidence for a machine's late hosts in some iterations.

    ``excess_ns`` is what they cost the job per iteration.
    """
    late = _late_by_place(replay, members, inside, grants=True)
    mean, steady = late.mean(axis=0), np.median(late, axis=0)
    total = max(float(mean.sum()), 1.0)
    order = np.argsort(-steady)
    reached = np.cumsum(steady[order])
    few = int(np.searchsorted(reached, _MOST * reached[-1])) + 1 if reached[-1] > 0 else len(steady)
    # Who computes long also grants late, whatever the place, so that its sends alone tell where it is late.
    sends = _late_by_place(replay, members, inside, grants=False)
    in_all = float(np.median(sends.sum(axis=1)))
    at_computing = float(np.median(sends[:, _computing(replay, members)].sum(axis=1)))
    computing = at_computing >= max(_MOST * in_all, min(_SENDS * total, _MOST * excess_ns))
    alike = _most_late_alike(replay, members, np.median(sends, axis=0))
    both = np.isin(replay.src, members) | np.isin(replay.dst, members)
    places = len(np.unique(_columns(replay, members, np.flatnonzero(both))))
    evidence = (
        Evidence("late_places", float(few), float(places), "messages"),
        Evidence("steady_lateness", float(steady.sum()) / total, None, "share"),
    )
    few_places = few <= max(_AT_LEAST, _FEW_PLACES * places) and steady.sum() >= _FEW * total
    if (computing or few_places) and not alike:
        if _only_at_begin(replay, members, np.median(sends, axis=0) if computing else steady):
            return "input_stall", "it is late at the begin of iterations only, on time after that", evidence
        return "compute_slow", "it had its input and its credit and still sent late", evidence
    if steady.sum() < _STEADY * total:
        return (
            "cpu_contention",
            "its sends stall again and again at changing places, as on a busy CPU",
            evidence,
        )
    return "receiver_slow", "it starts on time and is slow with every message that it gets", evidence


def _most_late_alike(replay: Replay, members: Sequence[int], steady: NDArray[np.float64]) -> bool:
    """Whether most messages that a machine sends are late, those that it only passes on as well."""
    used = np.unique(_columns(replay, members, np.flatnonzero(np.isin(replay.src, members))))
    passed_on = np.setdiff1d(used, _computing(replay, members))
    late = steady > _COMPARABLE * steady.max(initial=0.0)
    return len(passed_on) >= _AT_LEAST and min(late[used].mean(), late[passed_on].mean()) >= _HALF


def _late_by_place(
    replay: Replay, members: Sequence[int], inside: tuple[int, int], *, grants: bool
) -> NDArray[np.float64]:
    """Lateness per (iteration, place), places of the machine's sends and grants side by side (ns).

    Lateness that several actions share counts with the first of them: a host that is late once grants and
    sends several messages late.
    """
    meant = (replay.iteration >= inside[0]) & (replay.iteration < inside[1])
    sends = np.flatnonzero(np.isin(replay.src, members) & meant & (replay.excess["host"] > 0))
    granted = np.flatnonzero(np.isin(replay.dst, members) & meant & (replay.excess["credit"] > 0) & grants)
    end = np.concatenate([replay.start_ns[sends], replay.posted_ns[granted]])
    begin = end - np.concatenate([replay.excess["host"][sends], replay.excess["credit"][granted]])
    rows = np.concatenate([sends, granted])
    order = np.argsort(begin, kind="stable")
    reached = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(end[order])[:-1]]
    fresh = np.maximum(end[order] - np.maximum(begin[order], reached), 0)
    places = int(replay.place.max(initial=0)) + 1
    parts = _parts_of_lanes(replay, members)
    column = _columns(replay, members, rows[order])
    late = np.zeros((inside[1] - inside[0], (max(parts.values(), default=-1) + 1) * places))
    np.add.at(late, (replay.iteration[rows[order]] - inside[0], column), fresh)
    return late


def _computing(replay: Replay, members: Sequence[int]) -> NDArray[np.int64]:
    """The columns of places before which the host always computes."""
    rows = np.flatnonzero(np.isin(replay.src, members) & replay.computes)
    return np.unique(_columns(replay, members, rows))


def _columns(replay: Replay, members: Sequence[int], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    parts = _parts_of_lanes(replay, members)
    part_of = np.zeros(int(replay.lane.max(initial=0)) + 1, np.int64)
    part_of[list(parts)] = list(parts.values())
    places = int(replay.place.max(initial=0)) + 1
    return np.asarray(part_of[replay.lane[rows]] * places + replay.place[rows])


def _parts_of_lanes(replay: Replay, members: Sequence[int]) -> dict[int, int]:
    """The part that each lane of a machine has in its work, the same for lanes that do the same.

    A machine that is late is so on all its rails and channels, and which of them shows it first is chance.
    """
    lanes, first = np.unique(replay.lane, return_index=True)
    volume = np.zeros(int(replay.lane.max(initial=0)) + 1, np.int64)
    np.maximum.at(volume, replay.lane, replay.place + 1)
    own = {
        lane: (int(replay.src[row]) in members, int(volume[lane]))
        for lane, row in zip(lanes.tolist(), first.tolist(), strict=True)
        if {int(replay.src[row]), int(replay.dst[row])} & set(members)
    }
    parts = sorted(set(own.values()))
    return {lane: parts.index(part) for lane, part in own.items()}


def _only_at_begin(replay: Replay, members: Sequence[int], steady: NDArray[np.float64]) -> bool:
    """Whether nearly all lateness comes before an iteration's first message, although the host computes later
    in the iteration too: a slow processor would show there as well."""
    own = np.isin(replay.src, members)
    computing = np.unique(replay.place[own & replay.computes])
    places = int(replay.place.max(initial=0)) + 1
    at_begin = float(steady[np.arange(len(steady)) % places <= computing.min(initial=0)].sum())
    return len(computing) > 1 and at_begin >= _ONLY * float(steady.sum())
