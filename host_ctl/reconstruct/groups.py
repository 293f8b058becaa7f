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

from host_ctl.reconstruct.rings import separate_rings
from host_ctl.reconstruct.strands import Strand
from host_ctl.reconstruct.transfers import Traffic, arrival, send_end, send_start

Algorithm = Literal["ring", "tree", "pairwise", "alltoall", "unknown"]

_EQUAL_COUNTS = 0.15
_NEARLY_EQUAL = 0.05
_IN_FLIGHT = 16
_MESSAGES_PER_BIN = 2
_MAX_BINS = 4096
_SAME_TIMES = 0.25
_CLEARLY_SAME_TIMES = 0.6
_SMALL_PART = 16  # of the largest message


@dataclass(frozen=True, slots=True)
class Group:
    """Endpoints that run collectives together.

    ``members``, ``links`` and ``edges`` index the lists of :class:`Traffic`; ``strands`` numbers the strand
    of every link, in the order of ``links``.
    """

    id: str
    algorithm: Algorithm
    members: tuple[int, ...]
    links: tuple[int, ...]
    edges: tuple[int, ...]
    strands: tuple[int, ...]

    @property
    def strand_count(self) -> int:
        """How many sequences of messages there are."""
        return len(set(self.strands))

    def strand_of(self, links: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The strands of some of the group's links, numbered from 0."""
        return np.asarray(np.array(self.strands)[np.searchsorted(np.array(self.links), links)])


def find_groups(traffic: Traffic, strands: Sequence[Strand]) -> tuple[Group, ...]:
    """Partition the links, in strands, into groups, largest traffic first."""
    if not len(traffic.transfers):
        return ()
    strand_of = np.empty(len(traffic.links), dtype=np.int64)
    for number, links in enumerate(strands):
        strand_of[list(links)] = number
    counts = np.bincount(strand_of[traffic.transfers["link"]], minlength=len(strands))
    activity = _activity(traffic, strand_of, counts)
    unlike = _unlike(traffic, strands, strand_of)
    clusters = _cluster(traffic, strands, counts, activity, unlike)
    clusters = [part for c in clusters for part in _apart(traffic, strands, c)]
    clusters = _join_leftovers(traffic, strands, clusters, activity, unlike)
    clusters.sort(key=lambda chosen: (-int(counts[list(chosen)].sum()), chosen))
    return tuple(_group(f"g{i + 1}", [strands[s] for s in c], traffic) for i, c in enumerate(clusters))


def _activity(traffic: Traffic, strand_of: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each strand is active in each of equal time bins, widened by one bin: (strands, bins)."""
    t = traffic.transfers
    start, end = send_start(t), send_end(t)
    typical = int(np.median(counts))
    # Bins follow the traffic's own pace, so that a longer capture does not blur them.
    bins_wanted = min(max(typical // _MESSAGES_PER_BIN, 64), _MAX_BINS)
    begin = int(start.min())
    width = max(1, (int(end.max()) - begin) // bins_wanted + 1)
    active = np.zeros((len(counts), bins_wanted + 2), dtype=bool)
    for bins in ((start - begin) // width, (end - begin) // width):
        for shift in (0, 1, 2):
            active[strand_of[t["link"]], bins + shift] = True
    return active


def _similar(a: NDArray[np.bool_], b: NDArray[np.bool_], least: float) -> bool:
    union = int((a | b).sum())
    return union > 0 and int((a & b).sum()) >= least * union


def _any(activity: NDArray[np.bool_], chosen: Sequence[int]) -> NDArray[np.bool_]:
    return np.asarray(activity[list(chosen)].any(axis=0))


def _unlike(traffic: Traffic, strands: Sequence[Strand], strand_of: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which two strands are no part of one operator although they touch and are active together.

    Slots of a stack are equally large, so that who never sends more than a small part of one carries
    something else: a barrier, or a collective of a few bytes. Storage servers have no capture of their own.
    """
    largest = np.zeros(len(strands))
    np.maximum.at(
        largest, strand_of[traffic.transfers["link"]], traffic.transfers["bytes"].astype(np.float64)
    )
    small = largest[:, None] * _SMALL_PART < largest[None, :]
    uncaptured = np.array([_uncaptured(traffic, s) for s in strands])
    return np.asarray(small | small.T | (uncaptured[:, None] != uncaptured[None, :]))


def _cluster(
    traffic: Traffic,
    strands: Sequence[Strand],
    counts: NDArray[np.int64],
    activity: NDArray[np.bool_],
    unlike: NDArray[np.bool_],
) -> list[tuple[int, ...]]:
    """Union of strands that share an endpoint, move equal message counts and are active together."""
    parent = list(range(len(strands)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    touching: dict[int, list[int]] = {}
    for index, strand in enumerate(strands):
        touching.setdefault(traffic.links[strand[0]].src, []).append(index)
        touching.setdefault(traffic.links[strand[0]].dst, []).append(index)
    for indices in touching.values():
        indices.sort(key=lambda i: int(counts[i]))
        for a, b in _close_pairs(indices, counts):
            if unlike[a, b] and counts[b] - counts[a] > 1:
                continue
            # Equal counts say much; nearly equal ones must be active together all the more.
            least = _SAME_TIMES if abs(counts[a] - counts[b]) <= 1 else _CLEARLY_SAME_TIMES
            if root(a) != root(b) and _similar(activity[a], activity[b], least):
                parent[root(a)] = root(b)
    clusters: dict[int, list[int]] = {}
    for index in range(len(strands)):
        clusters.setdefault(root(index), []).append(index)
    return [tuple(sorted(c)) for c in clusters.values()]


def _uncaptured(traffic: Traffic, strand: Strand) -> bool:
    """Whether one end of a strand has no capture of its own, as a storage server has none."""
    return any(traffic.endpoints[e].series is None for e in _ends(traffic, strand))


def _ends(traffic: Traffic, strand: Strand) -> tuple[int, int]:
    return traffic.links[strand[0]].src, traffic.links[strand[0]].dst


def _close_pairs(indices: Sequence[int], counts: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    """Pairs of strands, in order of count, whose counts differ by little."""
    for at, a in enumerate(indices):
        for b in indices[at + 1 :]:
            # Strands of a group that stopped differ by what was in flight, not in proportion.
            in_flight = min(_EQUAL_COUNTS * counts[b], _IN_FLIGHT)
            if counts[b] - counts[a] > max(in_flight, _NEARLY_EQUAL * counts[b], 2):
                break
            yield a, b


def _apart(traffic: Traffic, strands: Sequence[Strand], cluster: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The rings of a cluster if it consists of several that differ."""
    edges = [_ends(traffic, strands[s]) for s in cluster]
    nodes = {n for edge in edges for n in edge}
    if len(nodes) < 3 or len(set(edges)) in (len(nodes), len(nodes) * (len(nodes) - 1)):
        return [cluster]
    t = traffic.transfers
    rows = [np.flatnonzero(np.isin(t["link"], strands[s])) for s in cluster]
    rings = separate_rings(
        edges, [np.sort(send_start(t[r])) for r in rows], [np.sort(arrival(t[r])) for r in rows]
    )
    return [cluster] if rings is None else [tuple(sorted(cluster[i] for i in ring)) for ring in rings]


def _join_leftovers(
    traffic: Traffic,
    strands: Sequence[Strand],
    clusters: list[tuple[int, ...]],
    activity: NDArray[np.bool_],
    unlike: NDArray[np.bool_],
) -> list[tuple[int, ...]]:
    """Join clusters without a shape of their own when they share endpoints and times."""
    edges = [_ends(traffic, s) for s in strands]
    without_shape = [_shape([strands[s] for s in c], traffic) == "unknown" for c in clusters]
    shaped = [c for c, without in zip(clusters, without_shape, strict=True) if not without]
    pool = [c for c, without in zip(clusters, without_shape, strict=True) if without]
    joined: list[tuple[int, ...]] = []
    while pool:
        current = set(pool.pop())
        grew = True
        while grew:
            grew = False
            nodes = {n for i in current for n in edges[i]}
            active = _any(activity, sorted(current))
            for other in list(pool):
                touches = any(nodes.intersection(edges[i]) for i in other)
                apart = unlike[np.ix_(other, sorted(current))].any()
                if touches and not apart and _similar(active, _any(activity, other), _SAME_TIMES):
                    current |= set(other)
                    pool.remove(other)
                    grew = True
        possible = [c for c in shaped if not unlike[np.ix_(c, sorted(current))].any()]
        whole = _completed(traffic, strands, current, possible, activity)
        shaped = [c for c in shaped if whole.isdisjoint(c)]
        joined.append(tuple(sorted(whole)))
    return shaped + joined


def _completed(
    traffic: Traffic,
    strands: Sequence[Strand],
    current: set[int],
    shaped: list[tuple[int, ...]],
    activity: NDArray[np.bool_],
) -> set[int]:
    """Add those of the clusters ``shaped`` that an all-to-all lacks.

    Links of an unequal all-to-all that happen to have moved equally much may look like a group of their own.
    """
    ends = {i: _ends(traffic, strands[i]) for c in (current, *shaped) for i in c}
    nodes = {n for i in current for n in ends[i]}
    have = {ends[i] for i in current}
    lacking = [
        c
        for c in shaped
        if all(set(ends[i]) <= nodes and ends[i] not in have for i in c)
        and _similar(_any(activity, sorted(current)), _any(activity, c), _SAME_TIMES)
    ]
    union = current.union(*lacking)
    if not lacking or _shape([strands[s] for s in sorted(union)], traffic) != "alltoall":
        return current
    return union


def _group(name: str, strands: Sequence[Strand], traffic: Traffic) -> Group:
    number_of = {link: number for number, strand in enumerate(strands) for link in strand}
    links = tuple(sorted(number_of))
    members = sorted({n for i in links for n in (traffic.links[i].src, traffic.links[i].dst)})
    return Group(
        id=name,
        algorithm=_algorithm(links, traffic),
        members=tuple(members),
        links=links,
        edges=tuple(sorted({traffic.links[i].edge for i in links})),
        strands=tuple(number_of[link] for link in links),
    )


def _shape(strands: Sequence[Strand], traffic: Traffic) -> Algorithm:
    return _algorithm([link for strand in strands for link in strand], traffic)


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
