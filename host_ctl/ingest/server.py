# SPDX-License-Identifier: Apache-2.0
"""Listens for DPUs: TLS 1.3 with certificates on both sides, bounded in everything a peer can ask for."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import time
from collections import Counter
from dataclasses import dataclass

from dpu_app.wire.transport import ALPN, RefuseReason, TransportError
from host_ctl.errors import UsageError, printable
from host_ctl.history.frames import FrameHistory
from host_ctl.ingest.committer import Committer
from host_ctl.ingest.connection import Connection, EndedError, Hub
from host_ctl.ingest.identity import IdentityError, machine_of
from host_ctl.ingest.limits import IngestCounts, IngestLimits
from host_ctl.ingest.quiet import QuietLog
from host_ctl.ingest.roster import Roster
from host_ctl.ingest.tls import ServerTls

_LOG = logging.getLogger(__name__)
_BACKLOG = 512
_NO_HANDLES_S = 0.1
_BUFFER_BYTES = 256 << 10
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen. Plain text is for this machine alone unless `plaintext_to_network` says otherwise."""

    host: str
    port: int
    plaintext: bool = False
    plaintext_to_network: bool = False

    def check(self) -> None:
        """Raise UsageError when the network could read and forge frames and nobody asked for that."""
        if not self.plaintext or self.plaintext_to_network or self.host == "localhost":
            return
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(self.host).is_loopback:
                return
        raise UsageError(
            f"plain text on {self.host or 'all addresses'} would be open to the network: "
            f"set tls.ca_file, tls.cert_file and tls.key_file, or listen.plaintext_to_network"
        )


class IngestServer:
    """Takes frames into a history. `start`, then `stop`, in one loop."""

    def __init__(
        self,
        listen: Listen,
        tls: ServerTls | None,
        limits: IngestLimits,
        history: FrameHistory,
        gather_s: float = 0.01,
    ) -> None:
        listen.check()
        if tls is None and not listen.plaintext:
            raise UsageError(
                "without certificates nothing may listen: set tls.ca_file, cert_file and key_file"
            )
        self._listen = listen
        self._tls = None if listen.plaintext else tls
        self.counts = IngestCounts()
        self.committer = Committer(history, gather_s, limits.pending_bytes)
        self.roster = Roster(limits, self.counts)
        self._hub = Hub(limits, history, self.committer, self.roster, self.counts)
        self._listeners: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._of_machine: Counter[str] = Counter()
        self._handshaking: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._quiet = QuietLog(_LOG)

    @property
    def port(self) -> int:
        """The port that is listened on, also when any was asked for."""
        return int(self._listeners[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """Connections with a name, and handshakes under way."""
        return len(self._serving)

    async def start(self) -> None:
        """Listen. Raises OSError with the address in its text."""
        try:
            self._listeners = _bound(self._listen.host, self._listen.port)
        except OSError as error:
            where = f"{self._listen.host}:{self._listen.port}"
            raise OSError(error.errno, f"{where} cannot be listened on: {error.strerror or error}") from error
        work = [self.committer.run(), *(self._accept(listener) for listener in self._listeners)]
        self._tasks = [asyncio.create_task(each) for each in work]

    async def failed(self) -> None:
        """Wait until a part of the server ends, which none should; raises what ended it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Take no more, make durable what has come, acknowledge it, and end all connections."""
        if not self._tasks:
            self.committer.close()
            return
        committing, *accepting = self._tasks
        await _cancelled([*accepting, *self._handshaking])
        for listener in self._listeners:
            listener.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self.committer.drain()
        for connection in self._connections:
            connection.end(EndedError("the controller ends", RefuseReason.STOPPING))
        if self._serving:
            await asyncio.wait(self._serving, timeout=_STOP_S)
        await _cancelled([*self._serving, committing])
        self.committer.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        limits = self._hub.limits
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                self._quiet.warn(f"no connection can be accepted: {error.strerror or error}")
                await asyncio.sleep(_NO_HANDLES_S)
                continue
            if len(self._connections) >= limits.connections:
                self.counts.refused_full += 1
                self._quiet.warn(f"{_where(address)}: too many connections")
                connection.close()
                continue
            if len(self._handshaking) >= limits.handshakes:
                # A DPU's handshake takes milliseconds: the oldest is the likeliest to be nobody's.
                oldest = next(iter(self._handshaking))
                del self._handshaking[oldest]
                oldest.cancel()
                self.counts.refused_full += 1
            task = asyncio.create_task(self._serve(connection, _where(address)))
            self._handshaking[task] = None
            self._serving.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._handshaking.pop(task, None)

    async def _serve(self, connection: socket.socket, where: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            streams = await self._handshake(connection)
        except asyncio.CancelledError:
            connection.close()
            raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            connection.close()
            self.counts.failed_handshakes += 1
            self._quiet.warn(f"{where}: TLS handshake: {_reason(error)}")
            return
        self._handshaking.pop(task, None)
        try:
            await self._converse(streams, where)
        finally:
            streams[1].transport.abort()

    async def _handshake(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(_BUFFER_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        seconds = self._hub.limits.handshake_s
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=None if self._tls is None else self._tls.context,
            ssl_handshake_timeout=None if self._tls is None else seconds,
            ssl_shutdown_timeout=None if self._tls is None else 2.0,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _converse(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], where: str) -> None:
        machine: str | None = None
        name = where
        try:
            machine = self._identified(streams[1])
            self._enter(machine)
            connection = Connection(streams, machine, self._hub)
            self._connections.add(connection)
            self.counts.accepted += 1
            try:
                await self._until_expiry(connection, streams[1])
            finally:
                self._connections.discard(connection)
                self._of_machine[machine or ""] -= 1
                name = f"{connection.name} at {where}"
        except IdentityError as error:
            self.counts.refused_identity += 1
            self._quiet.warn(f"{name}: {error}")
        except (EndedError, TransportError) as error:
            self._count(error)
            self._quiet.warn(f"{name}: {error}")
        except OSError as error:
            self._quiet.warn(f"{name}: {_reason(error)}")

    def _identified(self, writer: asyncio.StreamWriter) -> str | None:
        secured = writer.get_extra_info("ssl_object")
        if secured is None:
            return None
        if secured.selected_alpn_protocol() != ALPN:
            raise IdentityError(f"it does not speak {ALPN}")
        return machine_of(secured.getpeercert() or {})

    def _enter(self, machine: str | None) -> None:
        if machine is not None and self._of_machine[machine] >= self._hub.limits.connections_per_machine:
            raise IdentityError(f"{machine} has {self._of_machine[machine]} connections already")
        self._of_machine[machine or ""] += 1

    @staticmethod
    async def _until_expiry(connection: Connection, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, at most until its certificate expires."""
        secured = writer.get_extra_info("ssl_object")
        rest_s = None
        if secured is not None:
            rest_s = max(ssl.cert_time_to_seconds(secured.getpeercert()["notAfter"]) - time.time(), 0.0)
        try:
            async with asyncio.timeout(rest_s) as until_expiry:
                await connection.run()
        except TimeoutError:
            if not until_expiry.expired():
                raise
            raise EndedError("its certificate has expired") from None

    def _count(self, error: EndedError | TransportError) -> None:
        reason = error.reason if isinstance(error, EndedError) else RefuseReason.PROTOCOL
        if reason is RefuseReason.PROTOCOL:
            self.counts.protocol_errors += 1
        elif reason is RefuseReason.IDENTITY:
            self.counts.refused_identity += 1
        elif reason is RefuseReason.SCHEMA:
            self.counts.refused_schema += 1
        elif reason is RefuseReason.BUSY:
            self.counts.refused_busy += 1


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a name; an empty one means all addresses of the machine."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            # One port for all, also when any will do.
            listener.bind(
                (address[0], listeners[0].getsockname()[1] if port == 0 and len(listeners) > 1 else port)
            )
            listener.listen(_BACKLOG)
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _where(address: tuple[str, int]) -> str:
    return f"[{address[0]}]" if ":" in address[0] else str(address[0])


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).replace("_", " ").lower()
    return printable(str(error)) or type(error).__name__
