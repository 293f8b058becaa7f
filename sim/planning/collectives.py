# SPDX-License-Identifier: Apache-2.0
"""Collectives as threads of slot steps, with their true dependencies.

A thread is what one GPU thread block does: steps in order, each taking one slot from every lane it
receives from and handing one slot to every lane it sends to. A step runs only when its input is
there and its output buffers have room; nothing else delays or releases a collective.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Lane = int
"""Number of a lane in the plan."""


@dataclass(frozen=True, slots=True)
class Step:
    """Take one slot from each of ``receive``, give one of ``size`` bytes to each of ``send``."""

    receive: tuple[Lane, ...]
    send: tuple[Lane, ...]
    size: int


Thread = tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One rank's part of a collective. ``tag`` is equal on all ranks that agree what they run.

    Operations of one ``stream`` run one after the other; ``threads`` may be shared between operations.
    ``group`` names the communicator, ``number`` counts its collectives on this rank (-1: not a collective).
    """

    kind: str
    size: int
    tag: Hashable
    threads: tuple[Thread, ...]
    stream: int = 0
    group: str = ""
    number: int = -1


def slots_of(size: int, slot_bytes: int) -> list[int]:
    """Cut ``size`` bytes into slots; the last may be shorter, none is empty."""
    whole, rest = divmod(size, slot_bytes)
    return [slot_bytes] * whole + ([rest] if rest else [])


def ring_thread(
    send: Lane, receive: Lane, ranks: int, slots: Sequence[int], slots_per_round: int, passes: int
) -> Thread:
    """``passes`` times round the ring: 1 = ReduceScatter or AllGather, 2 = AllReduce.

    ``slots`` are those of one rank's chunk. They go round in rounds of ``slots_per_round``, which must
    not exceed the window: every rank sends its own before it takes any. The first hop of a round is
    the rank's own data; every later one is sent only after it came.
    """
    thread: list[Step] = []
    for start in range(0, len(slots), slots_per_round):
        part = slots[start : start + slots_per_round]
        thread += [Step((), (send,), size) for size in part]
        thread += [Step((receive,), (send,), size) for size in part] * (passes * (ranks - 1) - 1)
        thread += [Step((receive,), (), size) for size in part]
    return tuple(thread)


def tree_threads(
    up_to: Lane | None,
    up_from: Sequence[Lane],
    down_from: Lane | None,
    down_to: Sequence[Lane],
    slots: Sequence[int],
) -> list[Thread]:
    """Reduce to the root and broadcast back, slot by slot; the root turns round what it has reduced."""
    if up_to is None or down_from is None:
        return [tuple(Step(tuple(up_from), tuple(down_to), part) for part in slots)]
    return [
        tuple(Step(tuple(up_from), (up_to,), part) for part in slots),
        tuple(Step((down_from,), tuple(down_to), part) for part in slots),
    ]


def exchange_threads(
    sends: Sequence[tuple[Lane, int]], receives: Sequence[tuple[Lane, int]], slot_bytes: int
) -> list[Thread]:
    """Independent transfers to and from peers: all-to-all, or the send/recv of a pipeline."""
    threads = [tuple(Step((), (lane,), part) for part in slots_of(size, slot_bytes)) for lane, size in sends]
    threads += [
        tuple(Step((lane,), (), part) for part in slots_of(size, slot_bytes)) for lane, size in receives
    ]
    return [thread for thread in threads if thread]


def double_tree_parents(ranks: int) -> list[list[int | None]]:
    """Parents of every rank in two binary trees; the second is the first, shifted by one rank."""
    first = _binary_tree(ranks)
    second: list[int | None] = [None] * ranks
    for child, parent in enumerate(first):
        second[(child + 1) % ranks] = None if parent is None else (parent + 1) % ranks
    return [first, second]


def _binary_tree(ranks: int) -> list[int | None]:
    """In-order binary tree over 0..ranks-1: odd-level nodes are inner, leaves have the lowest bit set."""
    parents: list[int | None] = [None] * ranks

    def build(low: int, high: int, parent: int | None) -> None:
        if low >= high:
            return
        middle = (low + high) // 2
        parents[middle] = parent
        build(low, middle, middle)
        build(middle + 1, high, middle)

    build(0, ranks, None)
    return parents
