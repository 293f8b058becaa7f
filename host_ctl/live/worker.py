# SPDX-License-Identifier: Apache-2.0
"""The process that looks: follows a history's files and tells on standard output what it finds.

Messages are pickled and have their length before them. The process ends when its standard input does, which
it does with the controller, however that ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import IO

from host_ctl.history.reader import segments_of
from host_ctl.history.records import read_frame
from host_ctl.history.tail import HistoryTail, Place
from host_ctl.live.analyst import Analyst
from host_ctl.live.intake import Arrived
from host_ctl.live.limits import WorkerOrder
from host_ctl.live.messages import LENGTH, Alive, Found
from host_ctl.live.state_file import read_memory, write_memory

MEMORY_NAME = "jobs.json"
_LOG = logging.getLogger(__name__)
_POLL_S = 0.05
_ALIVE_S = 1.0
_NICE = 5


class Worker:
    """Follows the files and looks; ``tell`` gets what there is to say."""

    def __init__(self, order: WorkerOrder, tell: Callable[[Alive | Found], None]) -> None:
        self._order = order
        self._tell = tell
        self._tail = HistoryTail(order.directory)
        self._memory_file = order.directory / MEMORY_NAME
        self._analyst = Analyst(order.limits, read_memory(self._memory_file))
        self._told_s = float("-inf")
        self._kept = True

    def run(self) -> None:
        """Work until killed."""
        segments_of(self._order.directory)
        while True:
            if not self.step(time.time_ns()):
                time.sleep(_POLL_S)

    def step(self, now_ns: int) -> bool:
        """Take what is new, and look if it is time to; whether there was a look."""
        for place in self._tail.new():
            # What lies before anything that a window may ask for is not even noted.
            if place.found.key.received_ns >= now_ns - self._order.limits.window.most_ns:
                self._analyst.take(_arrived(place))
        if self._analyst.due(now_ns) is None:
            if time.monotonic() >= self._told_s + _ALIVE_S:
                self._say(looking=False)
            return False
        self._say(looking=True)
        begun_s = time.monotonic()
        self._look(now_ns)
        self._rest(time.monotonic() - begun_s)
        return True

    def _look(self, now_ns: int) -> None:
        try:
            findings = self._analyst.look(now_ns)
        except Exception:  # noqa: BLE001  the next window is another one, and may well be analysed
            self._analyst.counts.failed += 1
            _LOG.exception("analysis: a look failed")
            self._say(looking=False)
            return
        if findings is None:
            self._say(looking=False)
            return
        self._tell(Found(findings, self._alive(looking=False)))
        self._keep()

    def _keep(self) -> None:
        try:
            write_memory(self._memory_file, self._analyst.memory)
        except OSError as error:
            if self._kept:
                _LOG.warning("analysis: what is known of jobs cannot be kept: %s", error)
            self._kept = False
        else:
            self._kept = True

    def _rest(self, took_s: float) -> None:
        """Leave the processor to others for as long as the share demands."""
        if self._order.cpu_share < 1:
            time.sleep(took_s * (1 / self._order.cpu_share - 1))

    def _say(self, *, looking: bool) -> None:
        self._told_s = time.monotonic()
        self._tell(self._alive(looking=looking))

    def _alive(self, *, looking: bool) -> Alive:
        analyst, intake = self._analyst, self._analyst.intake
        looks = replace(analyst.counts, stages=dict(analyst.counts.stages))
        return Alive(looking, looks, replace(intake.counts), intake.held_frames, intake.held_bytes)


def _arrived(place: Place) -> Arrived:
    return Arrived(place.found.key, place.found.frame_bytes, partial(_read, place))


def _read(place: Place) -> bytes | None:
    try:
        return read_frame(place.path, place.found)
    except OSError:
        return None  # the ring has moved on, or the disk fails: told as a frame that cannot be read


def send(stream: IO[bytes], message: object) -> None:
    """Write a message."""
    data = pickle.dumps(message)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def _end_with(stream: IO[bytes]) -> None:
    stream.read()
    os._exit(0)


def main() -> None:
    """Take the order from standard input, and work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller's to handle
    with contextlib.suppress(OSError):  # a hardened unit may forbid it
        os.nice(_NICE)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    source, out = sys.stdin.buffer, sys.stdout.buffer
    (size,) = LENGTH.unpack(source.read(LENGTH.size))
    order = pickle.loads(source.read(size))  # noqa: S301  of the process that began this one
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    Worker(order, partial(send, out)).run()


if __name__ == "__main__":
    main()
