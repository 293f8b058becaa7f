# SPDX-License-Identifier: Apache-2.0
"""Serves the API from a thread of its own.

So an answer comes, and says that something is wrong, also when the controller's loop hangs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

import pulse_native
from host_ctl.api.application import build_application
from host_ctl.api.context import Context
from host_ctl.api.events import Broadcaster
from host_ctl.api.guard import Guard, TokenFile
from host_ctl.api.openapi import build_document
from host_ctl.api.snapshot import Snapshot
from host_ctl.api.stream import EventSource
from host_ctl.api.table import FREE, OPERATIONS
from host_ctl.errors import InputError, UsageError
from host_ctl.incidents.desk import Desk
from host_ctl.incidents.queries import IncidentReader

_LOG = logging.getLogger(__name__)
_STOP_S = 5.0
_GRACE_S = 2
_CONNECTIONS = 128
_KEEP_ALIVE_S = 5
_IDLE_S = 10.0
# A reader that takes nothing for so long is cut off by the kernel.
_STUCK_MS = 30_000


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Where the API is, and what one needs to ask it; an empty host means all addresses."""

    host: str
    port: int
    url: str
    streams: int
    token_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    def check(self) -> None:
        """Raise UsageError when others could ask without proving who they are, or without TLS."""
        where = f"api.address {self.host or 'all addresses'} port {self.port}"
        if not self.is_local and self.token_file is None and self.client_ca_file is None:
            raise UsageError(
                f"{where} is open to the network: set api.token_file or api.client_ca_file, "
                "or an address of this machine alone"
            )
        if not self.is_local and self.cert_file is None:
            raise UsageError(
                f"{where} is open to the network, and needs TLS: set api.cert_file and api.key_file"
            )
        if (self.cert_file is None) != (self.key_file is None):
            raise UsageError("api.cert_file and api.key_file belong together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise UsageError("api.client_ca_file needs TLS: set api.cert_file and api.key_file")


def is_loopback(host: str) -> bool:
    """Whether a host to listen on is this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ApiThread:
    """Serves; `snapshot` is asked for every answer. Raises PulseError, or OSError when it cannot listen."""

    def __init__(self, config: ApiConfig, snapshot: Callable[[], Snapshot], desk: Desk, folder: Path) -> None:
        config.check()
        self._config = config
        token = None if config.token_file is None else TokenFile(config.token_file)
        self._context = _tls(config)
        self._stamps = self._read_stamps()
        self._events = Broadcaster(config.streams)
        desk.listen(EventSource(desk, self._events))
        document = build_document(OPERATIONS, FREE, pulse_native.__version__)
        context = Context(
            snapshot, desk, IncidentReader(folder), self._events, document, lambda: self._guard.refused
        )
        by_name = token is None and config.client_ca_file is None and config.is_local
        self._guard = Guard(build_application(context), token, FREE, local=by_name)
        self._listener = _listening(config)
        self._idle: dict[int, float] = {}
        self._server = uvicorn.Server(self._uvicorn_config())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._thread.start()
        # What happens from now on is in the stream.
        self._begun.wait(_STOP_S)

    @property
    def port(self) -> int:
        """The port that is listened on, also when any was asked for."""
        return int(self._listener.getsockname()[1])

    def refresh(self) -> None:
        """Use certificates that have changed for new connections."""
        if self._context is None or self._loop is None or self._stamps == self._read_stamps():
            return
        self._stamps = self._read_stamps()
        self._loop.call_soon_threadsafe(self._reload)

    def stop(self) -> None:
        """End it."""
        self._events.close()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._listener.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events.attach(self._loop)
        self._begun.set()
        await self._server.serve(sockets=[self._listener])

    def _uvicorn_config(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._guard,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            limit_concurrency=_CONNECTIONS + self._config.streams,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            timeout_notify=1,
            callback_notify=self._reap,
            server_header=False,
        )
        config.load()
        config.ssl = self._context
        return config

    async def _reap(self) -> None:
        """End connections on which nothing was asked for long: they count against the limit."""
        now_s = time.monotonic()
        connections: set[Any] = set(self._server.server_state.connections)
        waiting = {id(each): each for each in connections if each.cycle is None}
        self._idle = {key: since_s for key, since_s in self._idle.items() if key in waiting}
        for key, each in waiting.items():
            if now_s - self._idle.setdefault(key, now_s) > _IDLE_S:
                each.transport.abort()

    def _reload(self) -> None:
        assert self._context is not None
        try:
            _load_chain(self._context, self._config)
        except InputError as error:
            _LOG.error("%s; the one before it stays in use", error)

    def _read_stamps(self) -> tuple[tuple[int, int], ...]:
        found = []
        for path in (self._config.cert_file, self._config.key_file):
            if path is not None and path.exists():
                stat = path.stat()
                found.append((stat.st_ino, stat.st_mtime_ns))
        return tuple(found)


def _tls(config: ApiConfig) -> ssl.SSLContext | None:
    if config.cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_chain(context, config)
    if config.client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(config.client_ca_file)
        except OSError as error:
            raise InputError(f"api.client_ca_file {config.client_ca_file} cannot be used: {error}") from error
    return context


def _load_chain(context: ssl.SSLContext, config: ApiConfig) -> None:
    assert config.cert_file is not None
    try:
        context.load_cert_chain(config.cert_file, config.key_file)
    except OSError as error:
        raise InputError(f"api.cert_file {config.cert_file} with its key cannot be used: {error}") from error


def _listening(config: ApiConfig) -> socket.socket:
    host = config.host or "::"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((host, config.port), family=family, dualstack_ipv6=both)
    except OSError as error:
        text = f"api.address {config.host}:{config.port} cannot be listened on: {error.strerror or error}"
        raise OSError(error.errno, text) from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
    return listener
