# SPDX-License-Identifier: Apache-2.0
"""Who may ask: a token where one is set, and no page of a browser that was led here by a name."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from host_ctl.api.errors import error_response
from host_ctl.errors import UsageError

_LEAST_TOKEN = 16
_LOCAL_NAMES = ("localhost", "")


class TokenFile:
    """A token that may be replaced while the service runs. Raises UsageError when there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._token = b""
        self._refresh()
        if len(self._token) < _LEAST_TOKEN:
            raise UsageError(
                f"api.token_file {path} cannot be used: {_LEAST_TOKEN} characters at least must be in it"
            )

    def fits(self, given: str) -> bool:
        """Whether somebody knows the token; takes as long for any other of that length."""
        self._refresh()
        return hmac.compare_digest(given.encode(), self._token)

    def _refresh(self) -> None:
        """Read the file again when it is another; what cannot be used leaves the token as it was."""
        try:
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            if stamp == self._stamp:
                return
            token = self._path.read_bytes().strip()
        except OSError as error:
            if not self._token:
                raise UsageError(f"api.token_file {self._path} cannot be read: {error.strerror}") from error
            return
        if len(token) >= _LEAST_TOKEN:
            self._stamp, self._token = stamp, token


class Guard:
    """Lets requests through to the application, or answers them itself."""

    def __init__(
        self, application: ASGIApp, token: TokenFile | None, free: Collection[str], *, local: bool
    ) -> None:
        self._application = application
        self._token = token
        self._free = frozenset(free)
        self._local = local
        self.refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = None
        if self._local and not is_local_name(headers.get("host", "")):
            # A page may give its own name this machine's address; a browser then asks us in that name.
            refusal = error_response(403, "this address answers to names of this machine alone")
        elif self._token is not None and scope["path"] not in self._free and not self._knows(headers):
            refusal = error_response(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        if refusal is None:
            await self._application(scope, receive, send)
        else:
            self.refused += 1
            await refusal(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return self._token is not None and kind.lower() == "bearer" and self._token.fits(given.strip())


def is_local_name(host: str) -> bool:
    """Whether the header Host names this machine alone."""
    name = host.rpartition("]")[0].strip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
