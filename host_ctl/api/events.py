# SPDX-License-Identifier: Apache-2.0
"""A stream of events for several readers, from a buffer that forgets: nobody waits for a slow reader."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from host_ctl.api.errors import ApiError

_MOST_EVENTS = 1024
_MOST_BYTES = 8 << 20
_KEEP_ALIVE_S = 15.0


@dataclass(frozen=True, slots=True)
class _Event:
    sequence: int
    data: bytes


class Broadcaster:
    """Takes events from any thread, once `attach` has told it the loop of its readers."""

    def __init__(self, most_readers: int, most_events: int = _MOST_EVENTS) -> None:
        self._most_readers = most_readers
        self._most_events = most_events
        # Numbers of another process are no numbers of this one.
        self._epoch = f"{time.time_ns():x}"
        self._events: deque[_Event] = deque()
        self._bytes = 0
        self._sequence = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._closed = False
        self.readers = 0
        self.dropped = 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the readers run in a loop."""
        self._loop = loop

    def publish(self, kind: str, data: str) -> None:
        """Tell all readers; never waits. `data` is JSON on one line."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._add, kind, data)

    def close(self) -> None:
        """End all streams."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    def _add(self, kind: str, data: str) -> None:
        self._sequence += 1
        text = f"id: {self._epoch}-{self._sequence}\nevent: {kind}\ndata: {data}\n\n"
        self._events.append(_Event(self._sequence, text.encode()))
        self._bytes += len(text)
        while len(self._events) > self._most_events or (self._bytes > _MOST_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.popleft().data)
        self._wake()

    def _close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def read(self, last_id: str | None) -> AsyncIterator[bytes]:
        """Return what comes, after what came since an event that the reader saw last. Raises ApiError."""
        if self.readers >= self._most_readers:
            raise ApiError(503, f"{self.readers} streams are read already, api.streams are allowed")
        return self._stream(last_id)

    async def _stream(self, last_id: str | None) -> AsyncIterator[bytes]:
        self.readers += 1
        try:
            seen = self._sequence
            yield b": events of pulse\n\n"
            if last_id is not None:
                seen, whole = self._position(last_id)
                if not whole:
                    yield b"event: gap\ndata: {}\n\n"
            while not self._closed:
                news = self._news
                oldest = self._events[0].sequence if self._events else self._sequence + 1
                if seen + 1 < oldest:
                    # What it did not read in time is gone: it may come back with the last id that it has.
                    self.dropped += 1
                    yield b"event: dropped\ndata: {}\n\n"
                    return
                if seen < self._sequence:
                    seen += 1
                    yield self._events[seen - oldest].data
                    continue
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_S):
                        await news.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.readers -= 1

    def _position(self, last_id: str) -> tuple[int, bool]:
        """Return after which event a reader goes on, and whether it misses none."""
        epoch, _, number = last_id.partition("-")
        before = self._events[0].sequence - 1 if self._events else self._sequence
        if epoch != self._epoch or not number.isdecimal() or int(number) > self._sequence:
            return before, False
        return max(before, int(number)), int(number) >= before
