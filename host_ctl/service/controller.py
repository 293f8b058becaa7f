# SPDX-License-Identifier: Apache-2.0
"""The running controller: history, server and status, begun and ended in order."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path
from typing import Protocol

from dpu_app.tasks import until_first_ends
from host_ctl.api.server import ApiThread
from host_ctl.api.snapshot import Snapshot, take_snapshot
from host_ctl.certs import read_certificate
from host_ctl.errors import InputError
from host_ctl.history.frames import FrameHistory
from host_ctl.incidents.desk import Desk
from host_ctl.ingest.server import IngestServer
from host_ctl.ingest.tls import ServerTls
from host_ctl.live.findings import Findings
from host_ctl.live.supervisor import Listener, Supervisor
from host_ctl.service.outcome import LATEST_NAME, ChangeLog, LatestReport
from host_ctl.service.settings import ControllerSettings

_LOG = logging.getLogger(__name__)
_TEND_S = 1.0
_DAY_S = 86_400
_WARN_DAYS = 14


class ServiceManager(Protocol):
    """What systemd wants to hear."""

    @property
    def watchdog_s(self) -> float | None:
        """How often `alive` is expected."""

    def ready(self, status: str) -> None:
        """Tell that the service works."""

    def status(self, status: str) -> None:
        """Tell in a line how it goes."""

    def alive(self) -> None:
        """Reset the watchdog."""

    def stopping(self) -> None:
        """Tell that the service ends."""


class Controller:
    """Takes frames and keeps them. Raises PulseError or OSError with the reason when it cannot begin."""

    def __init__(self, settings: ControllerSettings, manager: ServiceManager) -> None:
        self._settings = settings
        self._manager = manager
        files = settings.tls()
        self._tls = None if files is None else ServerTls(files)
        self._history = FrameHistory(settings.keeping())
        self._server = IngestServer(
            settings.listen(), self._tls, settings.limits(), self._history, settings.gather_ms / 1000
        )
        self._desk: Desk | None = None
        self._api: ApiThread | None = None
        order = settings.looking()
        self._supervisor = None if order is None else Supervisor(order)
        self._begun_s = time.monotonic()
        self._expires_s: float | None = None
        self._warned_of_expiry = False
        self._snapshot: Snapshot | None = None

    def latest(self) -> Snapshot:
        """The last snapshot; may be called from any thread once the controller runs."""
        assert self._snapshot is not None
        return self._snapshot

    def take(self, findings: Findings) -> None:
        """Take the result of a look, from any thread; it is lost before the start and after the end."""
        desk = self._desk
        if desk is not None:
            desk.take(findings)

    def listen(self, listener: Listener) -> None:
        """Have every result of live analysis told; without analysis there is none."""
        if self._supervisor is not None:
            self._supervisor.listen(listener)

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        try:
            await self._server.start()
            self._look_at_certificate()
            self._renew_snapshot()
            # A file of a year is looked at whole; meanwhile frames are taken.
            self._desk = await asyncio.to_thread(Desk, self._settings.incidents())
            config = self._settings.api()
            if config is not None:
                folder = self._settings.keeping().directory
                self._api = ApiThread(config, self.latest, self._desk, folder)
            self._tell_begin()
            await until_first_ends(self._tend(), self._server.failed(), self._analyse(), _wait(stopped))
        finally:
            self._manager.stopping()
            _LOG.info("ending")
            await self._server.stop()
            for part in (self._api, self._desk):
                if part is not None:
                    await asyncio.to_thread(part.stop)
            self._history.close()
            _LOG.info("ended; %d frames made durable", self._server.committer.durable_frames)

    async def _analyse(self) -> None:
        if self._supervisor is None:
            await asyncio.Event().wait()
            return
        self.listen(LatestReport(Path(self._settings.history) / LATEST_NAME))
        self.listen(ChangeLog())
        self.listen(self)
        await self._supervisor.run()

    def _tell_begin(self) -> None:
        counts, host = self._history.counts, self._settings.listen().host
        _LOG.info("history: %d frames in %d files, %d bytes", counts.frames, counts.segments, counts.bytes)
        secured = "TLS 1.3" if self._tls is not None else "PLAIN TEXT"
        _LOG.info("listening for DPUs on %s port %d, %s", host or "all addresses", self._server.port, secured)
        if self._api is not None:
            _LOG.info("status on port %d: /healthz, /readyz, /metrics, /api/v1/status", self._api.port)
        self._manager.ready(f"listening on port {self._server.port}")

    async def _tend(self) -> None:
        watchdog_s = self._manager.watchdog_s
        pause_s = _TEND_S if watchdog_s is None else min(_TEND_S, watchdog_s / 3)
        last_problem: str | None = None
        reload_at_s = time.monotonic()
        while True:
            await asyncio.sleep(pause_s)
            self._manager.alive()
            self._renew_snapshot()
            if self._desk is not None:
                self._desk.tick()
            if time.monotonic() >= reload_at_s:
                reload_at_s = time.monotonic() + self._settings.reload_s
                if self._tls is not None and self._tls.refresh():
                    self._warned_of_expiry = False
                self._look_at_certificate()
                if self._api is not None:
                    self._api.refresh()
            problem = self.latest().problem
            if problem != last_problem:
                self._manager.status(problem or f"listening on port {self._server.port}")
            last_problem = problem

    def _renew_snapshot(self) -> None:
        problem = None if self._tls is None else self._tls.problem
        analysis = None if self._supervisor is None else self._supervisor.status
        certificate = self._expires_s, problem
        self._snapshot = take_snapshot(self._server, self._history, self._begun_s, certificate, analysis)

    def _look_at_certificate(self) -> None:
        if self._tls is None:
            return
        try:
            certificate = read_certificate(self._tls.files.cert_file)
        except InputError:
            return  # `refresh` has told what is wrong with it
        self._expires_s = certificate.expires.timestamp()
        left_days = (self._expires_s - time.time()) / _DAY_S
        if left_days < _WARN_DAYS and not self._warned_of_expiry:
            self._warned_of_expiry = True
            _LOG.warning("the certificate %s expires in %.1f days: renew it", certificate.path, left_days)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
