# SPDX-License-Identifier: Apache-2.0
"""Who may slow a job, and what each iteration would gain without them.

A suspect is a host, the messages that a NIC sends or gets, or those of several edges that are slow at once. A
receiver that takes in slowly what has come holds up both: the messages that queue in front of it, and its own
host, which gets them late. The worth of a suspect is measured by replaying the job without its excess: what
nobody waits for is worth nothing, and what several wait for counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.shared_path import Edge
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job

Feature = Literal["host", "port", "egress", "ingress", "receiver", "path"]

_UPPER = 0.8
_SOME = 0.1
_COMPARABLE = 1 / 3  # flows on one path get equal rates, but one may wait for the other half of the time


@dataclass(frozen=True, slots=True)
class Suspect:
    """What may be slow: ``names`` are columns of the features, ``edges`` the ones of a path, ``cuts`` what a
    replay takes away to make it as quick as usual."""

    feature: Feature
    names: tuple[int, ...]
    cuts: Table
    edges: tuple[Edge, ...] = ()


def find_suspects(
    replay: Replay, job: Job, machines: Sequence[Sequence[int]], least_ns: float, fewest: int = 3
) -> list[Suspect]:
    """Everybody who loses enough in ``fewest`` iterations to matter; ``machines`` are the columns of each."""
    found = []
    for columns in machines:
        members = [job.members[c] for c in columns]
        if _matters(_lateness(replay, members), least_ns, fewest):
            found.append(Suspect("host", tuple(columns), replay.hosts(members)))
    for column, member in enumerate(job.members):
        found.extend(_nic_suspects(replay, column, member, least_ns, fewest))
    return [*found, *_paths(replay, job, least_ns, fewest)]


def gains(replay: Replay, suspects: Sequence[Suspect], without: Sequence[Table]) -> NDArray[np.float64]:
    """Time per (iteration, suspect) gained without it, when the cuts ``without`` are made already (ns).

    Where rails keep times of their own, by the mean over those that a suspect has a part in.
    """
    already = replay.saved_ns(*without)
    columns = np.zeros((replay.iterations, len(suspects)))
    for column, one in enumerate(suspects):
        gained = (replay.saved_ns(*without, one.cuts) - already)[replay.clocks_of(one.cuts)]
        columns[:, column] = gained.mean(axis=0) if len(gained) else 0.0
    return columns


def _nic_suspects(
    replay: Replay, column: int, member: int, least_ns: float, fewest: int
) -> Iterator[Suspect]:
    sent, got = replay.src == member, replay.dst == member
    out, into = (_matters(_slowness(replay, chosen), least_ns, fewest) for chosen in (sent, got))
    if out:
        yield Suspect("egress", (column,), replay.transfers(sent))
    if into:
        yield Suspect("ingress", (column,), replay.transfers(got))
        if _matters(_lateness(replay, [member]), least_ns, fewest):
            both = replay.hosts([member])
            both["transfer"] = replay.transfers(got)["transfer"]
            both["host"] = np.maximum(both["host"], replay.transfers(got)["host"])
            yield Suspect("receiver", (column,), both)
    if out and into:
        yield Suspect("port", (column,), replay.transfers(sent | got))


def _matters(lost: NDArray[np.float64], least_ns: float, fewest: int) -> bool:
    """No replay can gain more than the sum of what is cut: most members need none."""
    return bool((lost[1:-1] >= least_ns).sum() >= fewest)


def _lateness(replay: Replay, members: Sequence[int]) -> NDArray[np.float64]:
    sends = np.where(np.isin(replay.src, members), replay.excess["host"], 0)
    grants = np.where(np.isin(replay.dst, members), replay.excess["credit"], 0)
    return _per_iteration(replay, sends + grants)


def _slowness(replay: Replay, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    return _per_iteration(replay, np.where(chosen, replay.excess["transfer"], 0))


def _per_iteration(replay: Replay, excess: NDArray[np.int64]) -> NDArray[np.float64]:
    weights = excess.astype(np.float64)
    return np.asarray(np.bincount(replay.iteration, weights, minlength=replay.iterations), np.float64)


def _paths(replay: Replay, job: Job, least_ns: float, fewest: int) -> list[Suspect]:
    """The edges that are about as slow as the slowest, if they have no NIC in common: they share a path."""
    edges, messages = np.unique(np.stack([replay.src, replay.dst]), axis=1, return_counts=True)
    # A barrier reaches many that exchange nothing else.
    edges = edges.T[messages >= _SOME * messages.max(initial=0)]
    upper = {}
    for src, dst in edges.tolist():
        lost = _slowness(replay, (replay.src == src) & (replay.dst == dst))
        if _matters(lost, least_ns, fewest):
            upper[src, dst] = float(np.quantile(lost[1:-1], _UPPER))
    slow = tuple(e for e in sorted(upper) if upper[e] >= _COMPARABLE * max(upper.values()))
    # What most edges do is what is usual.
    if len(slow) < 2 or 2 * len(slow) > len(edges) or set.intersection(*(set(e) for e in slow)):
        return []
    chosen = np.zeros(len(replay.src), dtype=bool)
    for src, dst in slow:
        chosen |= (replay.src == src) & (replay.dst == dst)
    worst = max(slow, key=lambda e: upper[e])
    return [Suspect("path", (job.members.index(worst[0]),), replay.transfers(chosen), slow)]
