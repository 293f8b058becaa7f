# SPDX-License-Identifier: Apache-2.0
"""The IP addresses of a network interface."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915


def interface_addresses(interface: str, inet6: Path = Path("/proc/net/if_inet6")) -> tuple[str, ...]:
    """Return the first IPv4 address and all IPv6 addresses of an interface that reach beyond the link."""
    found: list[str] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        answer = fcntl.ioctl(handle, _SIOCGIFADDR, struct.pack("40s", interface.encode()[:15]))
        found.append(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError):
        for line in inet6.read_text(encoding="ascii").splitlines():
            digits, *_, name = line.split()
            address = ipaddress.IPv6Address(bytes.fromhex(digits))
            if name == interface and not address.is_link_local:
                found.append(str(address))
    return tuple(found)
