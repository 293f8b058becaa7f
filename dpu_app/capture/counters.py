# SPDX-License-Identifier: Apache-2.0
"""What a network device and the kernel count themselves: evidence beside what was captured."""

from __future__ import annotations

import array
import contextlib
import fcntl
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_SIOCETHTOOL = 0x8946
_GET_SET_INFO, _GET_STRINGS, _GET_STATS = 0x37, 0x1B, 0x1D
_SET_OF_STATS = 1
_NAME_BYTES = 32
_MAX_STATS = 8192
_MAX_COUNTERS = 512

_STATISTICS = (
    "rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors",
    "rx_missed_errors", "rx_fifo_errors", "rx_crc_errors",
)  # fmt: skip
# Of the hundreds that drivers have: what tells of pauses, discards, marks, repairs and errors.
_TELLING = re.compile(
    r"pause|discard|drop|fec|symbol|crc|ecn|cnp|out_of_buffer|link_down|corrected|wred|xoff|xon|steer",
    re.IGNORECASE,
)


def read_counters(interface: str, rdma_device: str | None = None, sys: Path = Path("/sys")) -> dict[str, int]:
    """Return what a device counts, as it says it, by name; what cannot be read is left out.

    `link_mbps` is a speed, `carrier` 0 or 1; all others count from some beginning on and may start anew.
    """
    found: dict[str, int] = {}
    for name, value in _all_counters(interface, rdma_device, sys):
        if value >= 0 and len(found) < _MAX_COUNTERS:
            found[name[:256]] = value & (2**64 - 1)
    return found


def interface_losses(interface: str, sys: Path = Path("/sys")) -> int:
    """Return packets that the kernel or the device dropped before anybody saw them."""
    statistics = sys / "class/net" / interface / "statistics"
    return sum(_read_integer(statistics / name) or 0 for name in ("rx_dropped", "rx_missed_errors"))


def rdma_device_of(interface: str, sys: Path = Path("/sys")) -> str | None:
    """Return the RDMA device of a network interface, if there is one."""
    with contextlib.suppress(OSError):
        for path in sorted((sys / "class/net" / interface / "device/infiniband").iterdir()):
            return path.name
    return None


def _all_counters(interface: str, rdma_device: str | None, sys: Path) -> Iterator[tuple[str, int]]:
    device = sys / "class/net" / interface
    for name, file in (
        ("link_mbps", "speed"),
        ("carrier", "carrier"),
        ("carrier_changes", "carrier_changes"),
    ):
        value = _read_integer(device / file)
        if value is not None:
            yield name, value
    for name in _STATISTICS:
        value = _read_integer(device / "statistics" / name)
        if value is not None:
            yield name, value
    if rdma_device is not None:
        yield from _rdma_counters(sys / "class/infiniband" / rdma_device / "ports")
    yield from softnet_counters()
    for name, value in ethtool_statistics(interface).items():
        if _TELLING.search(name):
            yield f"ethtool_{name}", value


def _rdma_counters(ports: Path) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError):
        for port in sorted(ports.iterdir()):
            for kind in ("hw_counters", "counters"):
                with contextlib.suppress(OSError):
                    for path in sorted((port / kind).iterdir()):
                        value = _read_integer(path)
                        if value is not None and path.name != "lifespan":
                            yield f"rdma_{port.name}_{path.name}", value


def softnet_counters(path: Path = Path("/proc/net/softnet_stat")) -> Iterator[tuple[str, int]]:
    """Yield what the kernel's receive queues of all processors and interfaces dropped and put off."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return
    fields = [line.split() for line in lines]
    for name, column in (("softnet_dropped", 1), ("softnet_squeezed", 2)):
        yield name, sum(int(row[column], 16) for row in fields if len(row) > column)


def ethtool_statistics(interface: str) -> dict[str, int]:
    """Return the driver's own counters; empty where it has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            count = _ethtool_count(handle, interface)
            names = bytearray(struct.pack("=III", _GET_STRINGS, _SET_OF_STATS, count)) + bytes(
                count * _NAME_BYTES
            )
            _ethtool(handle, interface, names)
            values = bytearray(struct.pack("=II", _GET_STATS, count)) + bytes(count * 8)
            _ethtool(handle, interface, values)
    except OSError:
        return {}
    result = {}
    for index in range(count):
        at = 12 + index * _NAME_BYTES
        name = bytes(names[at : at + _NAME_BYTES]).partition(b"\0")[0].decode("ascii", "replace")
        result[name] = struct.unpack_from("=Q", values, 8 + index * 8)[0]
    return result


def _ethtool_count(handle: socket.socket, interface: str) -> int:
    question = bytearray(struct.pack("=IIQI", _GET_SET_INFO, 0, 1 << _SET_OF_STATS, 0))
    _ethtool(handle, interface, question)
    count: int = struct.unpack_from("=I", question, 16)[0]
    # The kernel writes as many as there are, whatever room there is.
    if count > _MAX_STATS:
        raise OSError("the driver has too many counters")
    return count


def _ethtool(handle: socket.socket, interface: str, command: bytearray) -> None:
    memory = array.array("B", command)
    address, _ = memory.buffer_info()
    request = struct.pack("16sP", interface.encode()[:15], address)
    fcntl.ioctl(handle, _SIOCETHTOOL, request.ljust(40, b"\0"))
    command[:] = memory.tobytes()


def _read_integer(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
