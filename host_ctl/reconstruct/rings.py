# SPDX-License-Identifier: Apache-2.0
"""Takes apart rings that go round the same members in different orders.

A library may lay the rings of its channels differently, half of them the other way round for example. They
move equally many messages at the same times. Who forwards what tells them apart: what a member sends on a
ring keeps in step with what it gets on that ring, also when some of the others are late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Edge = tuple[int, int]
Times = NDArray[np.int64]

_ORDERS = 2  # of the members; whoever sends to more takes part in something else, a barrier for example
_MOST_STEPS = 20_000
_LOWEST = 0.01


def separate_rings(
    edges: Sequence[Edge], sent: Sequence[Times], got: Sequence[Times]
) -> list[list[int]] | None:
    """Indices of the strands of every ring, those of rings alike together; None where these are no rings.

    ``edges`` are those of the strands, ``sent`` and ``got`` their messages' times in order (ns). Each ring
    visits all members once.
    """
    members = {n for edge in edges for n in edge}
    out, into = ([sum(edge[end] == m for edge in edges) for m in members] for end in (0, 1))
    onward = max(len({dst for src, dst in edges if src == m}) for m in members)
    if out[0] < 2 or len({*out, *into}) > 1 or onward > _ORDERS:
        return None
    known: dict[tuple[int, int], float] = {}

    def apart(before: int, after: int) -> float:
        if (before, after) not in known:
            known[before, after] = _apart(got[before], sent[after])
        return known[before, after]

    rings = _rings(edges, frozenset(range(len(edges))), len(members), apart)
    if rings is None:
        return None
    alike: dict[frozenset[Edge], list[int]] = {}
    for ring in rings:
        alike.setdefault(frozenset(edges[s] for s in ring), []).extend(ring)
    return list(alike.values())


def _apart(got: Times, sent: Times) -> float:
    """How far sends of one strand ever ran ahead of arrivals of another, beyond what is usual (messages)."""
    lead = np.searchsorted(got, sent, side="right") - np.arange(len(sent))
    return float(np.median(lead) - np.quantile(lead, _LOWEST))


def _rings(
    edges: Sequence[Edge], left: frozenset[int], length: int, apart: Callable[[int, int], float]
) -> list[list[int]] | None:
    """All strands left in rings of ``length`` strands, forwarding from one to the next as it fits best."""
    if not left:
        return []
    for ring in _through(edges, left, length, apart):
        others = _rings(edges, left.difference(ring), length, apart)
        if others is not None:
            return [ring, *others]
    return None


def _through(
    edges: Sequence[Edge], left: frozenset[int], length: int, apart: Callable[[int, int], float]
) -> Iterator[list[int]]:
    """Rings through one of the strands left, those that fit best at every member first."""
    first = min(left)
    path, choices = [first], [iter(_next(edges, left, [first], apart))]
    for _ in range(_MOST_STEPS):
        if not choices:
            return
        here = next(choices[-1], None)
        if here is None:
            path.pop()
            choices.pop()
            continue
        path.append(here)
        if len(path) == length and edges[here][1] == edges[first][0]:
            yield list(path)
            path.pop()
        else:
            choices.append(iter(_next(edges, left, path, apart) if len(path) < length else ()))


def _next(
    edges: Sequence[Edge], left: frozenset[int], path: Sequence[int], apart: Callable[[int, int], float]
) -> list[int]:
    """The strands that may follow a path: to members not yet visited, or back to its begin."""
    begin, last = edges[path[0]][0], edges[path[-1]][1]
    visited = {edges[s][1] for s in path}
    found = [s for s in left if edges[s][0] == last and edges[s][1] not in visited]
    found = [s for s in found if edges[s][1] != begin or len(path) + 1 == len(visited | {begin})]
    return sorted(found, key=lambda s: (apart(path[-1], s), s))
