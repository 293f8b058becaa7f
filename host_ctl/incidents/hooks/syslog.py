# SPDX-License-Identifier: Apache-2.0
"""Tells a syslog server by RFC 5424, over UDP, TCP (RFC 6587, octet counting) or a socket of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

from host_ctl.incidents.hooks.channel import UnreachableError
from host_ctl.incidents.hooks.config import HookConfig, split_syslog_address

_FACILITIES = {"user": 1, "daemon": 3} | {f"local{number}": 16 + number for number in range(8)}
_CRITICAL, _WARNING, _NOTICE, _INFO = 2, 4, 5, 6
_SEVERITIES = {"fail_stop": _CRITICAL, "fail_slow": _WARNING, "notice": _NOTICE}
# RFC 5612 keeps this number for examples; Pulse has none of its own.
_DATA_ID = "pulse@32473"
_CLOSE_S = 1.0
_MOST_BYTES = 2048  # every receiver must take as much


class SyslogChannel:
    """One server."""

    def __init__(self, config: HookConfig) -> None:
        self._config = config
        self._kind, self._host, self._port = split_syslog_address(config.address)

    def send(self, body: str) -> None:
        """Send it. Raises OSError; what UDP loses nobody tells."""
        line = format_line(json.loads(body), self._config.facility, socket.gethostname())
        if self._kind == "unix":
            self._send_locally(line)
        elif self._kind == "tcp":
            with socket.create_connection((self._host, self._port), self._config.timeout_s) as to:
                to.sendall(b"%d %s" % (len(line), line))
                _close(to)
        else:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, kind, protocol) as to:
                to.sendto(line, address)

    def _send_locally(self, line: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.settimeout(self._config.timeout_s)
            try:
                to.connect(self._host)
            except OSError as error:
                raise UnreachableError(f"{self._host}: {error.strerror or error}") from error
            to.send(line)


def format_line(told: dict[str, Any], facility: str, host: str) -> bytes:
    """Return a line of RFC 5424 about a document of `payloads.document`."""
    incident = told["incident"]
    level = _INFO if told["event"] == "ended" else _SEVERITIES[incident["severity"]]
    names = ("id", "job", "severity", "cause", "machine", "nic", "confidence", "started")
    values = {"event": told["event"], "url": told["url"]} | {name: incident[name] for name in names}
    data = "".join(f' {name}="{_escaped(value)}"' for name, value in values.items() if value is not None)
    priority = 8 * _FACILITIES[facility] + level
    head = f"<{priority}>1 {told['at']} {host[:255] or '-'} pulse {os.getpid()} incident"
    said = f"{told['event']}: {incident['summary']}"
    # One line: neither end of line nor NUL may part it. The mark says that it is UTF-8.
    text = f"{head} [{_DATA_ID}{data}] ".encode() + b"\xef\xbb\xbf" + " ".join(said.split()).encode()
    return text[:_MOST_BYTES].decode(errors="ignore").encode()


def _escaped(value: object) -> str:
    text = " ".join(str(value).split())
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _close(to: socket.socket) -> None:
    """Give the server time to read everything; some leave the connection open all the same."""
    to.shutdown(socket.SHUT_WR)
    to.settimeout(_CLOSE_S)
    with contextlib.suppress(TimeoutError):
        to.recv(1)
