# SPDX-License-Identifier: Apache-2.0
"""Tells systemd how the service is, through the socket that it names in the environment."""

from __future__ import annotations

import contextlib
import os
import socket
import time


class Notifier:
    """Messages to systemd; does nothing where there is none."""

    def __init__(self) -> None:
        path = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        mine = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        microseconds = os.environ.get("WATCHDOG_USEC", "") if mine else ""
        self.watchdog_s = int(microseconds) / 1e6 if microseconds.isdecimal() else None

    def ready(self, status: str) -> None:
        """Tell that the service works, or works again after `reloading`."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Tell in a line what `systemctl status` shows."""
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """Reset the watchdog."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Tell that settings are being read."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Tell that the service ends."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A service manager that does not listen is no reason to stop.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message.encode(), self._address)
