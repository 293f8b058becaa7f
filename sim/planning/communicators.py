# SPDX-License-Identifier: Apache-2.0
"""Communicators: the lanes between the ranks of a group, and the operations that run on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sim.planning.collectives import (
    Lane,
    Operation,
    Thread,
    double_tree_parents,
    exchange_threads,
    ring_thread,
    slots_of,
    tree_threads,
)
from sim.spec import Algorithm, StackSpec

LaneMaker = Callable[[int, int, str, int], Lane]

_LL_EXPANSION = 2.0
_LL128_EXPANSION = 128 / 120


class Communicator:
    """A group of ranks; lanes are made when first asked for.

    ``members`` are global rank numbers; positions in the group follow their order. All operations run on
    ``stream`` of their rank.
    """

    def __init__(
        self, name: str, members: Sequence[int], stack: StackSpec, make_lane: LaneMaker, stream: int = 0
    ) -> None:
        self.name = name
        self.members = tuple(members)
        self._stack = stack
        self._make_lane = make_lane
        self._stream = stream
        self._lanes: dict[tuple[int, int, str, int], Lane] = {}
        self._issued: dict[int, int] = {}
        self._threads: dict[tuple[str, int, int], tuple[Thread, ...]] = {}

    def lane(self, sender: int, receiver: int, kind: str, channel: int = 0) -> Lane:
        """The lane between two group positions."""
        key = (sender, receiver, kind, channel)
        if key not in self._lanes:
            self._lanes[key] = self._make_lane(self.members[sender], self.members[receiver], kind, channel)
        return self._lanes[key]

    def _operation(
        self, kind: str, position: int, size: int, threads: tuple[Thread, ...], agreed: int | None = None
    ) -> Operation:
        """``agreed`` stands for what all ranks must agree on, where ``size`` differs between them."""
        number = self._issued.get(position, 0)
        self._issued[position] = number + 1
        tag = (self.name, number, kind, size if agreed is None else agreed)
        return Operation(kind, size, tag, threads, self._stream, self.name, number)

    def _slots(self, size: int, operation_size: int) -> list[int]:
        """The slots in which ``size`` bytes travel, by the protocol that an operation of this size uses."""
        stack = self._stack
        if operation_size <= stack.ll_bytes:
            return slots_of(int(size * _LL_EXPANSION), stack.ll_slot_bytes)
        if operation_size <= stack.ll128_bytes:
            return slots_of(-(-int(size * _LL128_EXPANSION) // 8) * 8, stack.slot_bytes)
        return slots_of(size, stack.slot_bytes)

    def _ring(self, kind: str, position: int, size: int, passes: int) -> Operation:
        key = (kind, position, size)
        if key not in self._threads:
            self._threads[key] = tuple(self._ring_threads(position, size, passes))
        return self._operation(kind, position, size, self._threads[key])

    def _ring_threads(self, position: int, size: int, passes: int) -> list[Thread]:
        ranks, stack = len(self.members), self._stack
        slots = self._slots(-(-size // (ranks * stack.channels)), size)
        half = max(1, stack.depth // 2)  # the other half lets a rank take while its neighbour still sends
        threads = []
        for channel in range(stack.channels):
            send = self.lane(position, (position + 1) % ranks, "ring", channel)
            receive = self.lane((position - 1) % ranks, position, "ring", channel)
            threads.append(ring_thread(send, receive, ranks, slots, half, passes))
        return threads

    def reduce_scatter(self, position: int, size: int) -> Operation:
        """Ring ReduceScatter of ``size`` bytes per rank."""
        return self._ring("reduce_scatter", position, size, 1)

    def all_gather(self, position: int, size: int) -> Operation:
        """Ring AllGather whose result has ``size`` bytes."""
        return self._ring("all_gather", position, size, 1)

    def all_reduce(self, position: int, size: int, algorithm: Algorithm = Algorithm.RING) -> Operation:
        """AllReduce of ``size`` bytes by ``algorithm``."""
        if algorithm is Algorithm.RING:
            return self._ring("all_reduce", position, size, 2)
        key = (algorithm.value, position, size)
        if key not in self._threads:
            self._threads[key] = tuple(self._tree_threads(position, size, algorithm))
        return self._operation("all_reduce", position, size, self._threads[key])

    def _tree_threads(self, position: int, size: int, algorithm: Algorithm) -> list[Thread]:
        trees = double_tree_parents(len(self.members))
        if algorithm is not Algorithm.DOUBLE_TREE:
            trees = trees[:1]
        slots = self._slots(-(-size // len(trees)), size)
        threads: list[Thread] = []
        for number, parents in enumerate(trees):
            parent = parents[position]
            children = [child for child, above in enumerate(parents) if above == position]
            threads += tree_threads(
                None if parent is None else self.lane(position, parent, "tree_up", number),
                [self.lane(child, position, "tree_up", number) for child in children],
                None if parent is None else self.lane(parent, position, "tree_down", number),
                [self.lane(position, child, "tree_down", number) for child in children],
                slots,
            )
        return threads

    def all_to_all(self, position: int, sizes: np.ndarray) -> Operation:
        """All-to-all; ``sizes[i, j]`` bytes go from position i to position j."""
        ranks = len(self.members)
        order = [(position + hop) % ranks for hop in range(1, ranks)]
        sends = [(self.lane(position, to, "alltoall"), int(sizes[position, to])) for to in order]
        back = [(position - hop) % ranks for hop in range(1, ranks)]
        receives = [(self.lane(at, position, "alltoall"), int(sizes[at, position])) for at in back]
        threads = tuple(exchange_threads(sends, receives, self._point_to_point_slot))
        own = int(sizes[position].sum() - sizes[position, position])
        return self._operation("all_to_all", position, own, threads, int(sizes.sum()))

    def exchange(
        self, position: int, sends: Sequence[tuple[int, int, str]], receives: Sequence[tuple[int, int, str]]
    ) -> Operation:
        """Pairwise send/recv: each entry is (peer position, bytes, lane kind).

        Both ends of a transfer may group it differently, so the tag tells only the traffic class.
        """
        size = sum(part for _, part, _ in (*sends, *receives))
        threads = exchange_threads(
            [(self.lane(position, peer, kind), part) for peer, part, kind in sends],
            [(self.lane(peer, position, kind), part) for peer, part, kind in receives],
            self._point_to_point_slot,
        )
        tag = (self.name, "send_recv")
        return Operation("send_recv", size, tag, tuple(threads), self._stream, self.name)

    @property
    def _point_to_point_slot(self) -> int:
        return self._stack.p2p_slot_bytes or self._stack.slot_bytes
