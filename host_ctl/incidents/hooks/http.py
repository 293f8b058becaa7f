# SPDX-License-Identifier: Apache-2.0
"""Posts JSON to a receiver over HTTP or HTTPS; follows no redirections and knows no proxies."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

from host_ctl.errors import printable
from host_ctl.incidents.hooks.channel import RefusedError, UnreachableError
from host_ctl.incidents.hooks.config import HookConfig

_ALERTS_PATH = "/api/v2/alerts"
_ANSWER_BYTES = 4096
_SHOWN = 200
_MOST_RETRY_S = 600
# Receivers that are overloaded, or not there yet, say so by these.
_TRANSIENT = (408, 425, 429)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)")


class HttpChannel:
    """One receiver. The files of its settings are read for each attempt, so that they may change."""

    def __init__(self, config: HookConfig) -> None:
        self._config = config
        parts = urlsplit(config.url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        path = parts.path.rstrip("/") + _ALERTS_PATH if config.keeps_state else parts.path or "/"
        self._target = path + (f"?{parts.query}" if parts.query else "")

    def send(self, body: str) -> None:
        """Post it. Raises RefusedError, UnreachableError or OSError."""
        headers = {"Content-Type": "application/json", "User-Agent": "pulse"} | self._headers()
        connection = self._connection()
        # Its own limit counts from byte to byte: a receiver that answers in drops would keep it forever.
        limit = threading.Timer(self._config.timeout_s, _cut, (connection,))
        limit.daemon = True
        limit.start()
        try:
            connection.request("POST", self._target, body.encode(), headers)
            answer = connection.getresponse()
            text = answer.read(_ANSWER_BYTES).decode(errors="replace")
        except (http.client.HTTPException, ValueError) as error:
            raise UnreachableError(f"no HTTP answer: {type(error).__name__}") from error
        finally:
            limit.cancel()
            connection.close()
        if not 200 <= answer.status < 300:
            said = printable(f"HTTP {answer.status} {answer.reason}: {text[:_SHOWN]}").rstrip(": ")
            if 300 <= answer.status < 500 and answer.status not in _TRANSIENT:
                raise RefusedError(said)
            raise UnreachableError(said, _retry_s(answer.getheader("Retry-After")))

    def _connection(self) -> http.client.HTTPConnection:
        timeout_s = self._config.timeout_s
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._config.ca_file or None)
        if self._config.cert_file:
            context.load_cert_chain(self._config.cert_file, self._config.key_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)

    def _headers(self) -> dict[str, str]:
        if not self._config.headers_file:
            return {}
        found: dict[str, str] = {}
        for line in Path(self._config.headers_file).read_text(encoding="utf-8").splitlines():
            if not line.strip():
                continue
            match = _HEADER.fullmatch(line.strip())
            if match is None:  # the line itself may be a secret
                raise UnreachableError(f"{self._config.headers_file}: a line is not NAME: VALUE")
            found[match[1]] = match[2]
        return found


def _cut(connection: http.client.HTTPConnection) -> None:
    waiting: socket.socket | None = connection.sock
    if waiting is not None:
        try:
            waiting.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended by itself


def _retry_s(text: str | None) -> float | None:
    return min(float(text), _MOST_RETRY_S) if text is not None and text.isdecimal() else None
