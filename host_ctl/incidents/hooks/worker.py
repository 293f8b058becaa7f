# SPDX-License-Identifier: Apache-2.0
"""Tells one hook what waits for it, in a thread of its own: a receiver that hangs keeps nobody waiting."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from host_ctl.incidents.hooks.channel import Channel, RefusedError, UnreachableError
from host_ctl.incidents.hooks.command import CommandChannel
from host_ctl.incidents.hooks.config import HookConfig
from host_ctl.incidents.hooks.http import HttpChannel
from host_ctl.incidents.hooks.outbox import Outbox
from host_ctl.incidents.hooks.syslog import SyslogChannel
from host_ctl.incidents.records import Delivery

_LOG = logging.getLogger(__name__)
_FIRST_S, _MOST_S = 0.5, 300.0
_STOP_S = 2.0
_CHANNELS: dict[str, Callable[[HookConfig], Channel]] = {
    "alertmanager": HttpChannel, "webhook": HttpChannel, "command": CommandChannel, "syslog": SyslogChannel
}  # fmt: skip


@dataclass(slots=True)
class HookCounts:
    """What became of deliveries since the start."""

    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    attempts_failed: int = 0


class HookWorker:
    """One hook; `report` is told, in this thread, how each delivery goes."""

    def __init__(self, config: HookConfig, report: Callable[[Delivery], None]) -> None:
        self.config = config
        self.counts = HookCounts()
        self.problem: str | None = None
        self._channel = _CHANNELS[config.kind](config)
        self._outbox = Outbox(config.queue)
        self._report = report
        self._random = random.SystemRandom()
        self._thread = threading.Thread(target=self._run, name=f"hook {config.name}", daemon=True)

    @property
    def waiting(self) -> int:
        """How many deliveries have not been told yet."""
        return len(self._outbox)

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is not told yet stays for the next start."""
        self._outbox.close()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def put(self, delivery: Delivery) -> list[Delivery]:
        """Have something told; return what will not be because of it."""
        gone = self._outbox.put(delivery)
        full = [each for each in gone if each.error == "the queue is full"]
        if full and not self.counts.dropped:
            _LOG.warning(
                "hook %s: %d deliveries wait, the oldest are dropped", self.config.name, self.waiting
            )
        self.counts.dropped += len(full)
        return gone

    def _run(self) -> None:
        while (delivery := self._outbox.take()) is not None:
            self._tell(delivery)
            self._outbox.done()

    def _tell(self, delivery: Delivery) -> None:
        """Try until it has been told, is refused, or the time for it is over."""
        give_up_s = time.monotonic() + self.config.give_up_s
        tries = 0
        while True:
            tries += 1
            delivery = replace(delivery, attempts=delivery.attempts + 1)
            retry_s: float | None = None
            try:
                self._channel.send(delivery.body)
            except RefusedError as error:
                self._failed(delivery, str(error))
                return
            except (UnreachableError, OSError) as error:
                text = _describe(error)
                retry_s = error.retry_s if isinstance(error, UnreachableError) else None
            except Exception as error:  # noqa: BLE001  a defect must not end the thread
                _LOG.exception("hook %s: a defect", self.config.name)
                self._failed(delivery, f"{type(error).__name__}: {error}")
                return
            else:
                self._delivered(delivery)
                return
            self._not_now(replace(delivery, error=text), text)
            # Half of the time is left to chance, so that receivers that come back are not overrun.
            grown_s = min(_MOST_S, _FIRST_S * 2.0 ** min(tries - 1, 20)) * self._random.uniform(0.5, 1.0)
            pause_s = max(grown_s, retry_s or 0.0)
            if time.monotonic() + pause_s > give_up_s:
                self._failed(delivery, f"given up: {text}")
                return
            if self._outbox.wait(pause_s):
                return

    def _delivered(self, delivery: Delivery) -> None:
        if self.problem is not None:
            _LOG.info("hook %s: works again", self.config.name)
        self.problem = None
        self.counts.delivered += 1
        self._report(replace(delivery, state="delivered", error=None, done_ns=time.time_ns()))

    def _not_now(self, delivery: Delivery, text: str) -> None:
        self.counts.attempts_failed += 1
        if self.problem != text:
            _LOG.warning("hook %s: %s; it is tried again", self.config.name, text)
        self.problem = text
        self._report(delivery)

    def _failed(self, delivery: Delivery, text: str) -> None:
        self.problem = text
        self.counts.failed += 1
        _LOG.error("hook %s: %s of incident i%d is not told: %s", self.config.name, delivery.kind,
                   delivery.incident, text)  # fmt: skip
        self._report(replace(delivery, state="failed", error=text, done_ns=time.time_ns()))


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)
