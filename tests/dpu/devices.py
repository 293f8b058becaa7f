# SPDX-License-Identifier: Apache-2.0
"""A network namespace with a veth pair, for tests that capture real packets."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`"
)

_CLONE_NEWNET = 0x4000_0000
_T = TypeVar("_T")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Pair:
    """Frames sent into `wire` are received by `nic`, and the other way round, in one namespace."""

    namespace: str
    nic: str = "nic0"
    wire: str = "wire0"

    def ip(self, *arguments: str) -> None:
        """Run `ip` in the namespace."""
        subprocess.run(["ip", "-n", self.namespace, *arguments], check=True)

    def send(self, frames: Iterable[bytes], device: str | None = None) -> int:
        """Send frames out of a device, by default the wire; return how many."""
        count = 0
        with in_namespace(self.namespace, lambda: _open(device or self.wire)) as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            for frame in frames:
                wire.send(frame)
                count += 1
        return count

    def set_nic(self, state: str) -> None:
        """Set the NIC up or down, and wait until it is."""
        self.ip("link", "set", "dev", self.nic, state)
        if state == "up":
            self._await_carrier()

    def add(self) -> None:
        """Make the pair, with jumbo frames and without IPv6's own packets."""
        self.ip("link", "add", self.nic, "mtu", "9000", "type", "veth", "peer", self.wire, "mtu", "9000")
        for end in (self.nic, self.wire):
            self.ip("link", "set", "dev", end, "addrgenmode", "none")
            self.ip("link", "set", "dev", end, "up")
        self._await_carrier()

    def _await_carrier(self) -> None:
        # Until the kernel has noticed the carrier, a device silently drops what it should send.
        for _ in range(500):
            shown = subprocess.run(
                ["ip", "-n", self.namespace, "-j", "link", "show"], capture_output=True, check=True
            )
            states = {link["ifname"]: link["operstate"] for link in json.loads(shown.stdout)}
            if states.get(self.nic) == states.get(self.wire) == "UP":
                return
            time.sleep(0.01)
        raise TimeoutError(f"{self.nic} and {self.wire} have no carrier")


@contextmanager
def made_pair() -> Iterator[Pair]:
    """A pair in a namespace of its own that is gone afterwards."""
    pair = Pair(f"pulse-dpu-{os.getpid()}-{next(_numbers)}")
    subprocess.run(["ip", "netns", "add", pair.namespace], check=True)
    try:
        pair.add()
        yield pair
    finally:
        subprocess.run(["ip", "netns", "delete", pair.namespace], check=True)


def in_namespace(namespace: str, function: Callable[[], _T]) -> _T:
    """Call a function in a network namespace, in a thread of its own; sockets that it opens stay there."""
    results: list[_T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with Path("/run/netns", namespace).open("rb") as handle:
                assert ctypes.CDLL(None).setns(handle.fileno(), _CLONE_NEWNET) == 0
            results.append(function())
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _open(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((device, 0))
    return opened
