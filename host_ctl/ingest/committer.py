# SPDX-License-Identifier: Apache-2.0
"""Makes frames of all connections durable together and answers only then.

While the disk takes nothing, what waits is given back to its connections, which end as busy, and nothing new
is taken until a probe succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from host_ctl.history.frames import FrameHistory, NewFrame

_LOG = logging.getLogger(__name__)
_BATCH_BYTES = 32 << 20
_PROBE_S = 1.0
_STUCK_S = 5.0

Listener = Callable[[NewFrame], None]
Identity = tuple[str, str, str, int]


class Submitter(Protocol):
    """Who hands frames in."""

    def acknowledge(self, durable: Mapping[str, int]) -> None:
        """Hear which frames are durable: the highest sequence by boot id."""

    def give_back(self, reason: str) -> None:
        """Hear that frames handed in are not kept."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A frame to be kept; with `known` one that is kept, or about to be, and has only to be acknowledged."""

    frame: NewFrame
    submitter: Submitter
    known: bool


class Committer:
    """The one writer of a history; everything but the writing happens in the loop."""

    def __init__(self, history: FrameHistory, gather_s: float, pending_bytes: int) -> None:
        self._history = history
        self._gather_s = gather_s
        self._most_bytes = pending_bytes
        self._queue: deque[Submission] = deque()
        self._pending: set[Identity] = set()
        self._pending_bytes = 0
        self._news = asyncio.Event()
        self._settled = asyncio.Condition()
        self._executor = ThreadPoolExecutor(1, "history")
        self._begun_s: float | None = None
        self._listeners: list[Listener] = []
        self.failure: str | None = None
        self.failures = 0
        self.durable_frames = 0

    @property
    def problem(self) -> str | None:
        """Why frames are not acknowledged now, if they are not."""
        if self.failure is None and self._begun_s is not None:
            waits_s = time.monotonic() - self._begun_s
            if waits_s > _STUCK_S:
                return f"the disk of the history has not answered for {waits_s:.0f} s"
        return self.failure

    @property
    def pending_bytes(self) -> int:
        """Bytes of frames that are not durable yet."""
        return self._pending_bytes

    def listen(self, listener: Listener) -> None:
        """Have every new frame told once it is durable, in the order of the history."""
        self._listeners.append(listener)

    def is_known(self, identity: Identity) -> bool:
        """Tell whether a frame is durable, or waits to become so."""
        durable = self._history.sequences(*identity[:3])
        return identity in self._pending or (durable is not None and identity[3] in durable)

    def submit(self, frame: NewFrame, submitter: Submitter) -> bool:
        """Take a frame; False when it was known, and will only be acknowledged."""
        identity = frame.key.identity
        known = self.is_known(identity)
        if not known:
            self._pending.add(identity)
            self._pending_bytes += len(frame.data)
        self._queue.append(Submission(frame, submitter, known))
        self._news.set()
        return not known

    async def room(self) -> None:
        """Wait until more may be submitted."""
        async with self._settled:
            await self._settled.wait_for(lambda: self._pending_bytes < self._most_bytes)

    async def drain(self) -> None:
        """Wait until nothing waits."""
        async with self._settled:
            await self._settled.wait_for(lambda: not self._queue and not self._begun_s)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.sleep(self._gather_s)
            while self._queue:
                await self._commit(self._take())

    def close(self) -> None:
        """Wait for a write that is under way."""
        self._executor.shutdown()

    def _take(self) -> list[Submission]:
        batch, size = [], 0
        while self._queue and size < _BATCH_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1].frame.data)
        return batch

    async def _commit(self, batch: list[Submission]) -> None:
        new = [each.frame for each in batch if not each.known]
        self._begun_s = time.monotonic()
        try:
            if new:
                loop = asyncio.get_running_loop()
                self._history.note(await loop.run_in_executor(self._executor, self._history.append, new))
        except OSError as error:
            await self._give_back(batch, error)
        else:
            self._settle(batch)
            self._acknowledge(batch)
            for frame in new:
                for listener in self._listeners:
                    listener(frame)
            self.durable_frames += len(new)
        finally:
            self._begun_s = None
            await self._tell_settled()

    async def _tell_settled(self) -> None:
        async with self._settled:
            self._settled.notify_all()

    def _settle(self, batch: list[Submission]) -> None:
        for each in batch:
            if not each.known:
                self._pending.discard(each.frame.key.identity)
                self._pending_bytes -= len(each.frame.data)

    @staticmethod
    def _acknowledge(batch: list[Submission]) -> None:
        durable: dict[Submitter, dict[str, int]] = {}
        for each in batch:
            key = each.frame.key
            lives = durable.setdefault(each.submitter, {})
            lives[key.boot_id] = max(key.sequence, lives.get(key.boot_id, -1))
        for submitter, lives in durable.items():
            submitter.acknowledge(lives)

    async def _give_back(self, batch: list[Submission], error: OSError) -> None:
        """Answer for everything that waits, and wait until the disk takes something again."""
        self.failures += 1
        self.failure = _describe(error)
        _LOG.error("history: %s: nothing is acknowledged until that ends", self.failure)
        waiting = [*batch, *self._queue]
        self._queue.clear()
        self._settle(waiting)
        for submitter in {each.submitter for each in waiting}:
            submitter.give_back(self.failure)
        await self._tell_settled()
        loop = asyncio.get_running_loop()
        while self.failure is not None:
            self._begun_s = None
            await asyncio.sleep(_PROBE_S)
            try:
                await loop.run_in_executor(self._executor, self._history.probe)
            except OSError as again:
                self.failure = _describe(again)
            else:
                self.failure = None
        _LOG.warning("history: the disk takes frames again")


def _describe(error: OSError) -> str:
    return f"frames cannot be written: {error.strerror or error}"
