# SPDX-License-Identifier: Apache-2.0
"""The real publishers and spools of DPUs, many of them in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable

from dpu_app.service.publisher import Publisher
from dpu_app.service.spool import Spool, SpoolConfig
from dpu_app.wire.frame import NicIdentity
from tests.controller.running import Pki, made_frame

NIC = "mlx5_0"


class RecordingSpool(Spool):
    """A spool that remembers which frames the controller has acknowledged."""

    def __init__(self) -> None:
        super().__init__(SpoolConfig())
        self.acknowledged: set[tuple[str, int]] = set()

    def acknowledge(self, boot_id: str, sequence: int) -> None:
        """Remember, then forget the frames."""
        with self._lock:
            gone = {(e.boot_id, e.sequence) for e in self._entries.values()}
        self.acknowledged |= {
            (boot, number) for boot, number in gone if boot == boot_id and number <= sequence
        }
        super().acknowledge(boot_id, sequence)


class Agents:
    """Publishers of some machines, connected to one port as long as the context lasts."""

    def __init__(self, pki: Pki, port: int, machines: Iterable[str], boot_id: str = "life") -> None:
        self.boot_id = boot_id
        self.spools = {machine: RecordingSpool() for machine in machines}
        self.publishers = {
            machine: Publisher(pki.publishing(port, machine), spool, NicIdentity(machine, NIC), boot_id)
            for machine, spool in self.spools.items()
        }
        self.put: set[tuple[str, int]] = set()
        self._next = dict.fromkeys(self.spools, 0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="agents")
        self._main: asyncio.Task[None] | None = None

    def __enter__(self) -> Agents:  # noqa: PYI034  Self is of Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._main is not None:
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def measure(self, count: int = 1, padding: int = 2000) -> None:
        """Have every machine make some frames."""
        for machine, spool in self.spools.items():
            for sequence in range(self._next[machine], self._next[machine] + count):
                spool.put(
                    self.boot_id, sequence, made_frame(machine, NIC, self.boot_id, sequence, padding=padding)
                )
                self.put.add((machine, sequence))
            self._next[machine] += count
        self._loop.call_soon_threadsafe(self._wake)

    @property
    def acknowledged(self) -> set[tuple[str, int]]:
        """Machine and sequence of what the controller said to have."""
        return {(machine, n) for machine, spool in self.spools.items() for _, n in set(spool.acknowledged)}

    def all_idle(self) -> bool:
        """Whether the controller has everything."""
        return all(publisher.idle for publisher in self.publishers.values())

    def _wake(self) -> None:
        for publisher in self.publishers.values():
            publisher.wake()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def run_all() -> None:
            await asyncio.gather(*(publisher.run() for publisher in self.publishers.values()))

        self._main = self._loop.create_task(run_all())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
