# SPDX-License-Identifier: Apache-2.0
"""Hardware time stamps of an interface: switched on by an opt-in unit, and back to what they were.

What was there before is written down first, so that it can be undone after a crash too.
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

_SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x89B0, 0x89B1
_FILTER_ALL = 1
_SETTING = struct.Struct("=iii")  # flags, kind of sent packets, filter of received packets

Setting = tuple[int, int, int]
Exchange = Callable[[int, str, Setting], Setting]


class DeviceError(Exception):
    """Device settings that cannot be made or undone."""


def exchange(request: int, interface: str, setting: Setting) -> Setting:
    """Ask the kernel for, or to make, a setting of time stamps; return what it says. Raises OSError."""
    memory = array.array("B", _SETTING.pack(*setting))
    address, _ = memory.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, request, struct.pack("16sP", interface.encode()[:15], address).ljust(40, b"\0"))
    flags, sent, received = _SETTING.unpack(memory.tobytes())
    return flags, sent, received


def apply(interface: str, record: Path, ask: Exchange = exchange) -> str:
    """Switch hardware stamps of all received packets on; return what was done. Raises DeviceError."""
    before = _asked(interface, ask)
    if before[2] == _FILTER_ALL:
        return f"{interface}: all received packets have hardware time stamps already; nothing changed"
    if not record.exists():
        _write(record, interface, before)
    try:
        after = ask(_SIOCSHWTSTAMP, interface, (before[0], before[1], _FILTER_ALL))
    except OSError as error:
        record.unlink(missing_ok=True)
        raise DeviceError(
            f"{interface}: hardware time stamps cannot be switched on: {error.strerror}"
        ) from error
    if after[2] != _FILTER_ALL:
        # The driver stamps some packets only: no use, so everything goes back.
        undo(interface, record, ask)
        raise DeviceError(f"{interface}: the device cannot stamp all received packets; nothing changed")
    return f"{interface}: all received packets have hardware time stamps now; before: filter {before[2]}"


def undo(interface: str, record: Path, ask: Exchange = exchange) -> str:
    """Put back what `apply` wrote down; return what was done. Raises DeviceError."""
    try:
        written = json.loads(record.read_text(encoding="utf-8"))
        before = (int(written["flags"]), int(written["tx_type"]), int(written["rx_filter"]))
        owner = str(written["interface"])
    except FileNotFoundError:
        return f"{interface}: nothing was changed, so there is nothing to undo"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeviceError(f"{record} does not say what was there before: {error}") from error
    if owner != interface:
        raise DeviceError(f"{record} is of {owner}, not of {interface}")
    try:
        ask(_SIOCSHWTSTAMP, interface, before)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise DeviceError(f"{interface}: its time stamps cannot be put back: {error.strerror}") from error
        # A device that is gone took its settings along.
    record.unlink()
    return f"{interface}: time stamps are as they were: filter {before[2]}"


def _asked(interface: str, ask: Exchange) -> Setting:
    try:
        return ask(_SIOCGHWTSTAMP, interface, (0, 0, 0))
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise DeviceError(f"there is no interface {interface}") from error
        raise DeviceError(
            f"{interface} does not tell its time stamps ({error.strerror}): it has none of hardware"
        ) from error


def _write(record: Path, interface: str, before: Setting) -> None:
    flags, sent, received = before
    text = json.dumps({"interface": interface, "flags": flags, "tx_type": sent, "rx_filter": received})
    new = record.with_suffix(".new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(record)
    except OSError as error:
        raise DeviceError(f"{record} cannot be written, so nothing is changed: {error.strerror}") from error
