# SPDX-License-Identifier: Apache-2.0
"""What one hook has yet to tell, in order and bounded; filled by one thread and emptied by another."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace

from host_ctl.incidents.records import Delivery

_REPLACED = ("repeated", "updated")


class Outbox:
    """A queue whose oldest gives way when it is full, except that which is being told."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Delivery] = deque()
        self._taken: Delivery | None = None
        self._news = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting) + (self._taken is not None)

    def put(self, delivery: Delivery) -> list[Delivery]:
        """Take a delivery; return those that will not be told because of it, marked as dropped."""
        with self._news:
            superseded = self._superseded(delivery)
            if superseded is not None:
                self._waiting.remove(superseded)
                gone = [superseded]
            else:
                gone = [self._waiting.popleft()] if len(self) >= self._most and self._waiting else []
            self._waiting.append(delivery)
            self._news.notify()
        why = "replaced by a newer one" if superseded is not None else "the queue is full"
        return [replace(each, state="dropped", error=why, done_ns=delivery.created_ns) for each in gone]

    def _superseded(self, delivery: Delivery) -> Delivery | None:
        """What the newest that waits of the same incident says less newly."""
        if delivery.kind not in _REPLACED:
            return None
        same = [each for each in self._waiting if each.incident == delivery.incident]
        return same[-1] if same and same[-1].kind in _REPLACED else None

    def take(self) -> Delivery | None:
        """Wait for the next delivery, which stays in the queue until `done`; None when it was closed."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._taken = self._waiting.popleft()
            return self._taken

    def done(self) -> None:
        """Forget what was taken."""
        with self._news:
            self._taken = None

    def wait(self, seconds: float) -> bool:
        """Wait, or less when it is closed meanwhile, which is told."""
        with self._news:
            return self._news.wait_for(lambda: self._closed, seconds)

    def close(self) -> None:
        """Let nothing more be taken."""
        with self._news:
            self._closed = True
            self._news.notify_all()
