# SPDX-License-Identifier: Apache-2.0
"""Keeps a connection to the controller: TLS 1.3 both ways, and again after every failure."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import random
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from dpu_app.service.session import RefusedError, Session, SessionCounts
from dpu_app.service.spool import Spool
from dpu_app.wire.frame import NicIdentity
from dpu_app.wire.transport import ALPN, DEFAULT_PORT, RefuseReason, TransportError

_LOG = logging.getLogger(__name__)
_CONNECT_S = 10.0
# Trying again soon would change nothing about these.
_LASTING = (RefuseReason.IDENTITY, RefuseReason.SCHEMA, RefuseReason.PROTOCOL)


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Where the controller is and how both sides prove who they are; `address` is HOST or HOST:PORT."""

    address: str
    server_name: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    plaintext: bool = False
    plaintext_to_network: bool = False
    backoff_s: float = 0.5
    max_backoff_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PublisherStatus:
    """How it goes with the connection; `error` is what ended the last one or keeps it from being made."""

    connected: bool
    address: str
    tls: bool
    connections: int
    failures: int
    error: str | None
    since_unix_s: float


class Publisher:
    """Sends what the spool holds for as long as `run` runs; `wake` and `reconfigure` belong to its loop."""

    def __init__(self, config: ControllerConfig, spool: Spool, nic: NicIdentity, boot_id: str) -> None:
        self._config = config
        self._spool = spool
        self._nic = nic
        self._boot_id = boot_id
        self._session: Session | None = None
        self._running: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._random = random.SystemRandom()
        self._connections = self._failures = 0
        self._error: str | None = None
        self._since_unix_s = time.time()
        self.counts = SessionCounts()

    @property
    def status(self) -> PublisherStatus:
        """How it goes."""
        return PublisherStatus(
            self._session is not None and self._session.welcomed,
            self._config.address,
            not self._config.plaintext,
            self._connections,
            self._failures,
            self._error,
            self._since_unix_s,
        )

    @property
    def idle(self) -> bool:
        """Whether the controller has everything."""
        return self._session is not None and self._session.idle

    def wake(self) -> None:
        """Tell that the spool has a new frame."""
        if self._session is not None:
            self._session.wake()

    def reconfigure(self, config: ControllerConfig) -> None:
        """Connect anew, with other settings or certificates that have been renewed."""
        self._config = config
        if self._running is not None:
            self._running.cancel()
        self._again.set()

    async def run(self) -> None:
        """Connect, and again after every failure, until cancelled."""
        attempts = 0
        try:
            while True:
                self._running = asyncio.ensure_future(self._connect())
                lasting = False
                try:
                    await asyncio.wait([self._running])
                    if self._running.cancelled():
                        attempts = 0
                        continue
                    self._running.result()
                except (OSError, asyncio.TimeoutError, TransportError, RefusedError) as error:
                    welcomed = self._session is not None and self._session.welcomed
                    attempts = 1 if welcomed else attempts + 1
                    lasting = isinstance(error, RefusedError) and error.reason in _LASTING
                    self._note_failure(error)
                finally:
                    self._session = None
                await self._pause(attempts, lasting=lasting)
        finally:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)

    async def _connect(self) -> None:
        config = self._config
        host, port = split_address(config.address)
        tls = None if config.plaintext else tls_context(config)
        if config.plaintext:
            check_plaintext(config)
        opening = asyncio.open_connection(
            host, port, ssl=tls, server_hostname=None if tls is None else config.server_name or host
        )
        reader, writer = await asyncio.wait_for(opening, _CONNECT_S)
        try:
            if tls is not None and writer.get_extra_info("ssl_object").selected_alpn_protocol() != ALPN:
                raise TransportError(f"the other side does not speak {ALPN}: is this a Pulse controller?")
            self._session = Session(
                (reader, writer), self._spool, self._nic, self._boot_id, self.counts, self._note_welcome
            )
            self._connections += 1
            await self._session.run()
        finally:
            writer.transport.abort()
            # The transport reports its end, for which nobody else waits.
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)

    def _note_welcome(self) -> None:
        self._error, self._since_unix_s = None, time.time()
        _LOG.info("connected to the controller %s", self._config.address)

    def _note_failure(self, error: BaseException) -> None:
        self._failures += 1
        text = f"controller {self._config.address}: {describe(error)}"
        if text != self._error:
            _LOG.warning("%s; trying again", text)
            self._since_unix_s = time.time()
        self._error = text

    async def _pause(self, attempts: int, *, lasting: bool) -> None:
        config = self._config
        most_s = min(config.max_backoff_s, config.backoff_s * 2 ** min(attempts - 1, 16))
        delay_s = (config.max_backoff_s if lasting else most_s) * self._random.uniform(0.5, 1.0)
        self._again.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._again.wait(), delay_s)


def describe(error: BaseException) -> str:
    """Return what a failure was in words that help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved: {error.strerror}"
    if isinstance(error, OSError) and error.errno and "Connect call failed" in str(error):
        return os.strerror(error.errno)  # asyncio's own text names the address once more
    return str(error) or type(error).__name__


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. Raises ValueError."""
    host, port = address, ""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"{address!r} is not HOST, HOST:PORT or [IPV6]:PORT")
    return host, int(port) if port else DEFAULT_PORT


def check_plaintext(config: ControllerConfig) -> None:
    """Raise ValueError when frames would cross a network unprotected and nobody asked for that."""
    host, _ = split_address(config.address)
    if config.plaintext_to_network or host == "localhost":
        return
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise ValueError(
        f"plain text to {host} would cross the network: use TLS, or set controller.plaintext_to_network"
    )


def tls_context(config: ControllerConfig) -> ssl.SSLContext:
    """Return TLS 1.3 with the own certificate, checking the other. Raises OSError, naming the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([ALPN])
    try:
        if config.ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(config.ca_file)
    except OSError as error:
        raise OSError(error.errno, f"{config.ca_file} cannot be used as CA: {error}") from error
    if config.cert_file is not None:
        try:
            context.load_cert_chain(config.cert_file, config.key_file)
        except OSError as error:
            text = f"{config.cert_file} and {config.key_file} cannot be used as certificate and key: {error}"
            raise OSError(error.errno, text) from error
    return context
