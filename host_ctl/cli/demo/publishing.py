# SPDX-License-Identifier: Apache-2.0
"""A process of several software DPUs: takes frames from standard input and publishes each when it is due.

The first line is the order; then come records: length, header, frame. It ends once everything is
acknowledged, or when whoever began it goes away.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dpu_app.service.publisher import ControllerConfig, Publisher
from dpu_app.service.spool import Spool, SpoolConfig
from dpu_app.wire.frame import NicIdentity

_HEAD = struct.Struct("<II")
_POLL_S = 0.05
_GRACE_S = 20.0


@dataclass(frozen=True, slots=True)
class Due:
    """A frame with the time at which its DPU would have had it."""

    machine: str
    nic: str
    boot_id: str
    sequence: int
    due_unix_s: float

    def pack(self, data: bytes) -> bytes:
        """The record of it."""
        head = json.dumps([self.machine, self.nic, self.boot_id, self.sequence, self.due_unix_s]).encode()
        return _HEAD.pack(len(head), len(data)) + head + data


def read_due(stream: IO[bytes]) -> tuple[Due, bytes] | None:
    """The next record; None at the end."""
    lengths = stream.read(_HEAD.size)
    if len(lengths) < _HEAD.size:
        return None
    head_size, size = _HEAD.unpack(lengths)
    head, data = stream.read(head_size), stream.read(size)
    return (Due(*json.loads(head)), data) if len(data) == size else None


class Publishing:
    """Publishers of some NICs, each with a spool of its own."""

    def __init__(self, order: dict[str, Any]) -> None:
        certs = Path(order["certs"])
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self._spools: dict[tuple[str, str], Spool] = {}
        for machine, nic in order["nics"]:
            config = ControllerConfig(
                order["address"],
                server_name="localhost",
                ca_file=certs / "ca.crt",
                cert_file=certs / f"{machine}.crt",
                key_file=certs / f"{machine}.key",
            )
            spool = self._spools[machine, nic] = Spool(SpoolConfig())
            self._publishers[machine, nic] = Publisher(
                config, spool, NicIdentity(machine, nic), order["boot_id"]
            )
        self._ended = threading.Event()

    async def run(self) -> None:
        """Publish what standard input brings, and end."""
        tasks = [asyncio.create_task(each.run()) for each in self._publishers.values()]
        reading = threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True)
        reading.start()
        end_s = float("inf")
        while not (self._ended.is_set() and all(each.idle for each in self._publishers.values())):
            if self._ended.is_set():
                end_s = min(end_s, time.monotonic() + _GRACE_S)
            if time.monotonic() >= end_s:
                break  # the controller is gone
            await asyncio.sleep(_POLL_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while (record := read_due(sys.stdin.buffer)) is not None:
            due, data = record
            time.sleep(max(0.0, due.due_unix_s - time.time()))
            name = due.machine, due.nic
            self._spools[name].put(due.boot_id, due.sequence, data)
            loop.call_soon_threadsafe(self._publishers[name].wake)
        self._ended.set()


def main() -> None:
    """Work until standard input ends."""
    order = json.loads(sys.stdin.buffer.readline())
    asyncio.run(Publishing(order).run())


if __name__ == "__main__":
    main()
