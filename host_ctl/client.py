# SPDX-License-Identifier: Apache-2.0
"""Asks a controller's API, with the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from host_ctl.errors import InputError, PulseError, UsageError, printable

DEFAULT_SERVER = "http://127.0.0.1:7472"
_TIMEOUT_S = 15.0
# The stream says that it is still there every 15 s.
_STREAM_TIMEOUT_S = 45.0
_MOST_BYTES = 256 << 20


class RefusedError(PulseError):
    """The controller said no, and why."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a controller's API is, and what it asks of clients."""

    url: str = DEFAULT_SERVER
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of the stream; ``id`` is where to resume after it."""

    id: str
    kind: str
    data: Any


class ApiClient:
    """Asks one controller. Every method raises InputError when it cannot be reached, or RefusedError."""

    def __init__(self, server: Server) -> None:
        self._server = server
        try:
            parts = urlsplit(server.url)
            self._host, self._port, self._secure = parts.hostname or "", parts.port, parts.scheme == "https"
        except ValueError:
            self._host = ""
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not self._host or parts.path.strip("/"):
            raise UsageError(f"--server {server.url}: expected http://HOST:PORT or https://HOST:PORT")

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """Return what is at a path, without /api/v1."""
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        return self._ask("GET", path + (f"?{urlencode(asked)}" if asked else ""), None)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Send something, and return what came of it."""
        return self._ask("POST", path, {key: value for key, value in body.items() if value is not None})

    def delete(self, path: str) -> Any:
        """Delete something, and return what it was."""
        return self._ask("DELETE", path, None)

    def events(self, after: str | None = None) -> Iterator[StreamEvent]:
        """Yield events until the stream ends, which it does when the controller does."""
        headers = {} if after is None else {"Last-Event-ID": after}
        with self._asked("GET", "/events", None, headers, _STREAM_TIMEOUT_S) as answer:
            fields: dict[str, str] = {}
            while line := answer.readline(_MOST_BYTES):
                key, _, value = line.decode(errors="replace").rstrip("\r\n").partition(": ")
                if key:
                    fields[key] = value
                elif "event" in fields:
                    yield StreamEvent(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
                    fields = {}

    def _ask(self, method: str, path: str, body: object) -> Any:
        with self._asked(method, path, body, {}, _TIMEOUT_S) as answer:
            return json.loads(answer.read(_MOST_BYTES))

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, body: object, headers: dict[str, str], timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection(timeout_s)
        try:
            data = None if body is None else json.dumps(body)
            sent = {} if data is None else {"Content-Type": "application/json"}
            connection.request(method, f"/api/v1{path}", data, sent | headers | self._authorization())
            answer = connection.getresponse()
            if answer.status != 200:
                raise RefusedError(_refusal(answer))
            yield answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = reason or type(error).__name__
            raise InputError(f"the controller at {self._server.url} cannot be asked: {reason}") from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        server = self._server
        try:
            context = ssl.create_default_context(cafile=server.ca_file)
            if server.cert_file is not None:
                context.load_cert_chain(server.cert_file, server.key_file)
        except OSError as error:
            raise InputError(f"certificates for {server.url} cannot be used: {error}") from error
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)

    def _authorization(self) -> dict[str, str]:
        if self._server.token_file is None:
            return {}
        try:
            token = self._server.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token {self._server.token_file} cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}


def _refusal(answer: http.client.HTTPResponse) -> str:
    text = answer.read(4096).decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["error"]["message"]
    return printable(f"the controller says: {text or answer.reason}")
