# SPDX-License-Identifier: Apache-2.0
"""Keeps the process that looks running, and hands on what it finds.

Analysis takes seconds of a processor: in a process of its own it stops neither the loop that takes frames
nor, when it fails, anything else. It reads the frames from the history's files, so that nothing has to be
sent to it, and a new process has all that the one before had.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import time
from dataclasses import dataclass
from typing import Protocol

from host_ctl.live.findings import Findings
from host_ctl.live.limits import WorkerOrder
from host_ctl.live.messages import LENGTH, Alive, Found

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_START_S = 60.0
_LOOKS_HUNG = 20.0
_END_S = 3.0


class Listener(Protocol):
    """Who wants to have the results."""

    def take(self, findings: Findings) -> None:
        """Take the result of a look."""


@dataclass(frozen=True, slots=True)
class AnalysisStatus:
    """How live analysis goes; ``alive`` is what the worker said last."""

    running: bool
    restarts: int
    hung: int
    alive: Alive | None


class Supervisor:
    """Runs the worker for as long as `run` runs; listeners are called in its loop."""

    def __init__(self, order: WorkerOrder) -> None:
        self._order = order
        self._listeners: list[Listener] = []
        self._process: asyncio.subprocess.Process | None = None
        self._alive: Alive | None = None
        self._restarts = self._hung = 0
        self.pid: int | None = None

    @property
    def status(self) -> AnalysisStatus:
        """How it goes."""
        return AnalysisStatus(self.pid is not None, self._restarts, self._hung, self._alive)

    def listen(self, listener: Listener) -> None:
        """Have every result told."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Work until cancelled; a worker that ends or hangs is followed by another."""
        pause_s = _FIRST_PAUSE_S
        while True:
            begun_s = time.monotonic()
            reason = await self._work()
            pause_s = _FIRST_PAUSE_S if time.monotonic() - begun_s > _LONGEST_PAUSE_S else pause_s
            self._restarts += 1
            _LOG.warning("analysis: the worker %s; another one begins in %.0f s", reason, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _work(self) -> str:
        """Run one worker to its end; return what it died of."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "host_ctl.live.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=_environment(), limit=1 << 20,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        try:
            order = pickle.dumps(self._order)
            process.stdin.write(LENGTH.pack(len(order)) + order)
            await self._follow(process.stdout)
            return f"ended with status {await process.wait()}"
        except TimeoutError:
            self._hung += 1
            return "hung"
        finally:
            self.pid = None
            await _end(process)

    async def _follow(self, stream: asyncio.StreamReader) -> None:
        """Take messages until there are no more. Raises TimeoutError when none comes for too long."""
        order = self._order
        look_s = max(order.hung_s, _LOOKS_HUNG * order.limits.look_s / order.cpu_share)
        patience_s = _START_S
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    (size,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
                    message = pickle.loads(await stream.readexactly(size))  # noqa: S301  of our own process
            except asyncio.IncompleteReadError:
                return
            self._alive = message.alive if isinstance(message, Found) else message
            patience_s = (
                look_s if self._alive.looking else order.hung_s + order.limits.look_s / order.cpu_share
            )
            if isinstance(message, Found):
                for listener in self._listeners:
                    listener.take(message.findings)


def _environment() -> dict[str, str]:
    """One thread: what the libraries would do in several is too small to gain by it."""
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
