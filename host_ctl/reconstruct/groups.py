# SPDX-License-Identifier: Apache-2.0
"""Finds communication groups: links that work together, and the algorithm that their shape tells.

Links belong together when they touch, move equal numbers of messages, and are active at the same
times; what is left over (unequal all-to-all) is joined by time alone. The shape of a group's directed
edges then names the algorithm. No rail, address or rank order is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from host_ctl.reconstruct.transfers import Traffic, send_end, send_start

Algorithm = Literal["ring", "tree", "pairwise", "alltoall", "unknown"]

_EQUAL_COUNTS = 0.15
_NEARLY_EQUAL = 0.05
_IN_FLIGHT = 16
_MESSAGES_PER_BIN = 2
_MAX_BINS = 4096
_SAME_TIMES = 0.25
_CLEARLY_SAME_TIMES = 0.6


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that run collectives together.

    ``members``, ``links`` and ``edges`` index the lists of :class:`Traffic`.
    """

    id: str
    algorithm: Algorithm
    members: tuple[int, ...]
    links: tuple[int, ...]
    edges: tuple[int, ...]


def find_groups(traffic: Traffic) -> tuple[Group, ...]:
    """Partition the links into groups, largest traffic first."""
    if not len(traffic.transfers):
        return ()
    counts = np.bincount(traffic.transfers["link"], minlength=len(traffic.links))
    activity = _activity(traffic)
    clusters = _cluster(traffic, counts, activity)
    clusters = _join_leftovers(traffic, clusters, activity)
    clusters.sort(key=lambda links: (-int(counts[list(links)].sum()), links))
    return tuple(_group(f"g{i + 1}", links, traffic) for i, links in enumerate(clusters))


def _activity(traffic: Traffic) -> NDArray[np.bool_]:
    """Whether each link is active in each of equal time bins, widened by one bin: (links, bins)."""
    t = traffic.transfers
    start, end = send_start(t), send_end(t)
    typical = int(np.median(np.bincount(t["link"], minlength=len(traffic.links))))
    # Bins follow the traffic's own pace, so that a longer capture does not blur them.
    bins_wanted = min(max(typical // _MESSAGES_PER_BIN, 64), _MAX_BINS)
    begin = int(start.min())
    width = max(1, (int(end.max()) - begin) // bins_wanted + 1)
    active = np.zeros((len(traffic.links), bins_wanted + 2), dtype=bool)
    for bins in ((start - begin) // width, (end - begin) // width):
        for shift in (0, 1, 2):
            active[t["link"], bins + shift] = True
    return active


def _similar(a: NDArray[np.bool_], b: NDArray[np.bool_], least: float) -> bool:
    union = int((a | b).sum())
    return union > 0 and int((a & b).sum()) >= least * union


def _any(activity: NDArray[np.bool_], links: Sequence[int]) -> NDArray[np.bool_]:
    return np.asarray(activity[list(links)].any(axis=0))


def _cluster(
    traffic: Traffic, counts: NDArray[np.int64], activity: NDArray[np.bool_]
) -> list[tuple[int, ...]]:
    """Union of links that share an endpoint, move equal message counts and are active together."""
    parent = list(range(len(traffic.links)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    touching: dict[int, list[int]] = {}
    for index, link in enumerate(traffic.links):
        touching.setdefault(link.src, []).append(index)
        touching.setdefault(link.dst, []).append(index)
    for indices in touching.values():
        indices.sort(key=lambda i: int(counts[i]))
        for a, b in _close_pairs(indices, counts):
            if _uncaptured(traffic, a) != _uncaptured(traffic, b) and counts[b] - counts[a] > 1:
                continue
            # Equal counts say much; nearly equal ones must be active together all the more.
            least = _SAME_TIMES if abs(counts[a] - counts[b]) <= 1 else _CLEARLY_SAME_TIMES
            if root(a) != root(b) and _similar(activity[a], activity[b], least):
                parent[root(a)] = root(b)
    clusters: dict[int, list[int]] = {}
    for index in range(len(traffic.links)):
        clusters.setdefault(root(index), []).append(index)
    return [tuple(sorted(c)) for c in clusters.values()]


def _uncaptured(traffic: Traffic, link: int) -> bool:
    """Whether one end of a link has no capture of its own, as a storage server has none."""
    ends = (traffic.links[link].src, traffic.links[link].dst)
    return any(traffic.endpoints[e].series is None for e in ends)


def _close_pairs(indices: Sequence[int], counts: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    """Pairs of links, in order of count, whose counts differ by little."""
    for at, a in enumerate(indices):
        for b in indices[at + 1 :]:
            # Links of a group that stopped differ by what was in flight, not in proportion.
            in_flight = min(_EQUAL_COUNTS * counts[b], _IN_FLIGHT)
            if counts[b] - counts[a] > max(in_flight, _NEARLY_EQUAL * counts[b], 2):
                break
            yield a, b


def _join_leftovers(
    traffic: Traffic, clusters: list[tuple[int, ...]], activity: NDArray[np.bool_]
) -> list[tuple[int, ...]]:
    """Join clusters without a shape of their own when they share endpoints and times."""
    shaped = [c for c in clusters if _algorithm(c, traffic) != "unknown"]
    pool = [c for c in clusters if _algorithm(c, traffic) == "unknown"]
    joined: list[tuple[int, ...]] = []
    while pool:
        current = set(pool.pop())
        grew = True
        while grew:
            grew = False
            nodes = {n for i in current for n in (traffic.links[i].src, traffic.links[i].dst)}
            active = _any(activity, sorted(current))
            for other in list(pool):
                touches = any(traffic.links[i].src in nodes or traffic.links[i].dst in nodes for i in other)
                unlike = any(_uncaptured(traffic, i) for i in other) != any(
                    _uncaptured(traffic, i) for i in current
                )
                if touches and not unlike and _similar(active, _any(activity, other), _SAME_TIMES):
                    current |= set(other)
                    pool.remove(other)
                    grew = True
        joined.append(tuple(sorted(_completed(traffic, current, shaped, activity))))
    return shaped + joined


def _completed(
    traffic: Traffic, current: set[int], shaped: list[tuple[int, ...]], activity: NDArray[np.bool_]
) -> set[int]:
    """Add the clusters that an all-to-all lacks; they are taken out of ``shaped``.

    Links of an unequal all-to-all that happen to have moved equally much may look like a group of their own.
    """
    ends = {i: (traffic.links[i].src, traffic.links[i].dst) for c in (current, *shaped) for i in c}
    nodes = {n for i in current for n in ends[i]}
    have = {ends[i] for i in current}
    lacking = [
        c
        for c in shaped
        if all(set(ends[i]) <= nodes and ends[i] not in have for i in c)
        and _similar(_any(activity, sorted(current)), _any(activity, c), _SAME_TIMES)
    ]
    union = current.union(*lacking)
    if not lacking or _algorithm(sorted(union), traffic) != "alltoall":
        return current
    for cluster in lacking:
        shaped.remove(cluster)
    return union


def _group(name: str, links: tuple[int, ...], traffic: Traffic) -> Group:
    members = sorted({n for i in links for n in (traffic.links[i].src, traffic.links[i].dst)})
    return Group(
        id=name,
        algorithm=_algorithm(links, traffic),
        members=tuple(members),
        links=links,
        edges=tuple(sorted({traffic.links[i].edge for i in links})),
    )


def _algorithm(links: Sequence[int], traffic: Traffic) -> Algorithm:
    """Name the shape of a set of directed edges."""
    edges = {(traffic.links[i].src, traffic.links[i].dst) for i in links}
    nodes = {n for e in edges for n in e}
    out_degree = {n: sum(1 for e in edges if e[0] == n) for n in nodes}
    in_degree = {n: sum(1 for e in edges if e[1] == n) for n in nodes}
    mutual = all((b, a) in edges for a, b in edges)
    if len(nodes) == 2:
        return "ring" if mutual and _simultaneous(links, traffic) else "pairwise"
    if all(out_degree[n] == in_degree[n] == 1 for n in nodes):
        return "ring" if _is_one_cycle(edges) else "unknown"
    if len(edges) == len(nodes) * (len(nodes) - 1):
        return "alltoall"
    if mutual and len(edges) == 2 * (len(nodes) - 1) and max(out_degree.values()) <= 2:
        return "pairwise"
    return "tree" if mutual else "unknown"


def _is_one_cycle(edges: set[tuple[int, int]]) -> bool:
    following = dict(edges)
    start = at = next(iter(following))
    steps = 0
    while steps < len(edges):
        at = following[at]
        steps += 1
        if at == start:
            break
    return steps == len(edges)


def _simultaneous(links: Sequence[int], traffic: Traffic) -> bool:
    """Whether both directions of one pair are mostly active together, as in a ring of two."""
    t = traffic.transfers
    first = traffic.links[links[0]].src
    start = send_start(t)
    forth = np.isin(t["link"], [i for i in links if traffic.links[i].src == first])
    back = np.isin(t["link"], [i for i in links if traffic.links[i].src != first])
    # A send in one direction nearly always has one of the other within its operator's span;
    # alternating send/recv has them one after the other.
    order = np.argsort(start[forth | back], kind="stable")
    direction = forth[forth | back][order]
    changes = int((direction[1:] != direction[:-1]).sum())
    return changes > 0.2 * len(direction)
