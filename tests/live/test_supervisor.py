# SPDX-License-Identifier: Apache-2.0
"""The process that looks, with real ones: it hangs, it is ended with whoever began it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from host_ctl.live.limits import LiveLimits, WorkerOrder
from host_ctl.live.supervisor import Supervisor

pytestmark = pytest.mark.slow


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def test_a_worker_that_hangs_is_ended_and_followed_by_another(tmp_path: Path) -> None:
    async def work() -> tuple[int | None, int | None]:
        supervisor = Supervisor(WorkerOrder(tmp_path, LiveLimits(look_s=0.1), hung_s=1.5))
        running = asyncio.create_task(supervisor.run())
        await until(lambda: supervisor.status.alive is not None)
        first = supervisor.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        await until(lambda: supervisor.status.hung == 1 and supervisor.pid not in (None, first))
        second = supervisor.pid
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return first, second

    for pid in asyncio.run(work()):
        assert not Path(f"/proc/{pid}").exists()
