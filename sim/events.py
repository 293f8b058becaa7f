# SPDX-License-Identifier: Apache-2.0
"""The event queue: callbacks in the order of their integer-nanosecond times."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class EventLoop:
    """Runs callbacks in time order; equal times run in the order in which they were asked for."""

    __slots__ = ("_heap", "_order", "now")

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Action]] = []
        self._order = count()

    def at(self, time_ns: int, action: Action) -> None:
        """Call ``action`` at ``time_ns``; a time in the past means now."""
        heapq.heappush(self._heap, (max(time_ns, self.now), next(self._order), action))

    def after(self, delay_ns: int, action: Action) -> None:
        """Call ``action`` ``delay_ns`` from now."""
        self.at(self.now + delay_ns, action)

    def run(self, until_ns: int) -> None:
        """Run every event up to and including ``until_ns``, then stand at that time."""
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= until_ns:
            time_ns, _, action = pop(heap)
            self.now = time_ns
            action()
        self.now = max(self.now, until_ns)

    def run_while(self, busy: Callable[[], bool], until_ns: int) -> None:
        """Run events while ``busy()`` holds and the next event is not after ``until_ns``."""
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= until_ns and busy():
            time_ns, _, action = pop(heap)
            self.now = time_ns
            action()
