# SPDX-License-Identifier: Apache-2.0
"""The running service: composes capture, meter, spool and publisher, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from dpu_app.capture.addresses import interface_addresses
from dpu_app.capture.afpacket import AfPacketSource
from dpu_app.capture.clocks import StampClock
from dpu_app.capture.counters import rdma_device_of
from dpu_app.meter.metering import Metering
from dpu_app.service.config import ServiceConfig
from dpu_app.service.measuring import Measuring
from dpu_app.service.notify import Notifier
from dpu_app.service.publisher import Publisher
from dpu_app.service.spool import Spool
from dpu_app.service.status import Status, StatusServer
from dpu_app.settings import SettingsError
from dpu_app.wire.frame import NicIdentity

_LOG = logging.getLogger(__name__)
_SETTLE_S = 0.5
_DRAIN_S = 5.0
_STUCK_S = 10.0
_CAPTURE_COUNTS = ("packets", "outgoing", "dropped", "freezes", "unstamped", "times_down", "times_gone")

Reload = Callable[[], ServiceConfig]


class Agent:
    """One NIC's service. Opening raises OSError or SpoolError with the reason; `run` until a signal."""

    def __init__(self, config: ServiceConfig, reload: Reload) -> None:
        self._config = config
        self._reload = reload
        self._notifier = Notifier()
        self._begin_s = time.monotonic()
        self._boot_id = uuid.uuid4().hex
        rdma_device = rdma_device_of(config.interface)
        self._nic = _identity(config, rdma_device)
        self._source = AfPacketSource(config.capture())
        hardware = self._source.hardware_stamps
        ptp4l = Path(config.ptp4l) if config.ptp4l else None
        self._clock = StampClock(config.interface, hardware_stamps=hardware, ptp4l_socket=ptp4l)
        metering = Metering(self._nic, self._boot_id, self._source.mode, config=config.metering())
        self._spool = Spool(config.spool())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._measuring = Measuring(
            self._source, metering, self._clock, self._spool, config.interface, rdma_device, self._on_frame
        )
        publishing = config.publishing()
        self._publisher = (
            None if publishing is None else Publisher(publishing, self._spool, self._nic, self._boot_id)
        )
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; raises what stopped the measurement otherwise."""
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reconfigure)
        async with contextlib.AsyncExitStack() as stack:
            if self._config.status_socket:
                await stack.enter_async_context(StatusServer(Path(self._config.status_socket), self.status))
            tasks = [asyncio.ensure_future(self._tend())]
            if self._publisher is not None:
                tasks.append(asyncio.ensure_future(self._publisher.run()))
            self._measuring.start()
            stamps = "the NIC's clock" if self._source.hardware_stamps else "the system clock"
            _LOG.info("capturing %s on %s, stamps of %s", self._source.mode, self._config.interface, stamps)
            self._notifier.ready(f"capturing on {self._config.interface}")
            try:
                await self._until_stopped(tasks)
            finally:
                await self._end(tasks)
        if self._measuring.failure is not None:
            raise self._measuring.failure

    def status(self) -> Status:
        """Return all that there is to tell."""
        measuring = self._measuring.status()
        spool = self._spool.counts()
        capture = measuring.capture
        lost = capture.get("dropped", 0) + capture.get("unstamped", 0) + measuring.interface_losses
        return {
            "machine": self._nic.machine,
            "nic": self._nic.nic,
            "interface": self._config.interface,
            "mode": str(self._source.mode),
            "boot_id": self._boot_id,
            "uptime_s": time.monotonic() - self._begin_s,
            "capture": dict.fromkeys(_CAPTURE_COUNTS, 0)
            | capture
            | {"lost": lost, "interface_losses": measuring.interface_losses},
            "frames": {
                "made": measuring.frames,
                "bytes": measuring.frame_bytes,
                "last_sequence": measuring.last_sequence,
            },
            "clock": {
                "source": measuring.clock,
                "hardware_stamps": self._source.hardware_stamps,
                "error_ns": measuring.clock_error_ns,
                "error_s": _seconds(measuring.clock_error_ns),
                "steps": measuring.clock_steps,
                "tai_offset_s": measuring.tai_offset_s,
            },
            "spool": asdict(spool),
            "controller": self._controller_status(),
        }

    def _controller_status(self) -> Status | None:
        if self._publisher is None:
            return None
        status, counts = self._publisher.status, self._publisher.counts
        return {
            "address": status.address,
            "tls": status.tls,
            "connected": status.connected,
            "connections": status.connections,
            "failures": status.failures,
            "error": status.error,
            "since_unix_s": status.since_unix_s,
            "sent": counts.sent,
            "sent_bytes": counts.sent_bytes,
            "acknowledged": counts.acknowledged,
            "offset_s": _seconds(counts.controller_offset_ns),
            "round_trip_s": _seconds(counts.round_trip_ns),
        }

    def _on_frame(self) -> None:
        """Called by the measuring thread."""
        loop = self._loop
        if loop is not None:
            # The loop may just have been closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._take_news)

    def _take_news(self) -> None:
        if not self._measuring.is_running or self._measuring.failure is not None:
            self._stop.set()
        if self._publisher is not None:
            self._publisher.wake()

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        stopped = asyncio.ensure_future(self._stop.wait())
        done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in done:
            task.result()

    async def _tend(self) -> None:
        """Look after the spool and the watchdog."""
        watchdog_s = self._notifier.watchdog_s
        pause_s = _SETTLE_S if watchdog_s is None else min(_SETTLE_S, watchdog_s / 3)
        while True:
            await asyncio.sleep(pause_s)
            await asyncio.to_thread(self._spool.settle)
            # A capture that hangs must end the service, though its loop still turns.
            if time.monotonic() - self._measuring.last_alive_s < _STUCK_S:
                self._notifier.alive()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        self._notifier.stopping()
        await asyncio.to_thread(self._measuring.stop)
        if self._publisher is not None:
            self._publisher.wake()
            end_s = time.monotonic() + _DRAIN_S
            while self._publisher.status.connected and not self._publisher.idle and time.monotonic() < end_s:
                await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._spool.close)
        self._source.close()
        self._clock.close()

    def _reconfigure(self) -> None:
        self._notifier.reloading()
        try:
            config = self._reload()
        except SettingsError as error:
            _LOG.error("%s; the settings stay as they were", error)
        else:
            self._apply(config)
        self._notifier.ready(f"capturing on {self._config.interface}")

    def _apply(self, config: ServiceConfig) -> None:
        logging.getLogger().setLevel(config.log_level.upper())
        publishing = config.publishing()
        if self._publisher is not None and publishing is not None:
            self._publisher.reconfigure(publishing)
        changed = (
            (config.capture(), config.metering(), config.spool(), config.status_socket)
            != (
                self._config.capture(),
                self._config.metering(),
                self._config.spool(),
                self._config.status_socket,
            )
            or (publishing is None) != (self._publisher is None)
            or _identity(config, self._nic.nic) != _identity(self._config, self._nic.nic)
        )
        if changed:
            _LOG.warning("only the connection and the log level change now; restart the service for the rest")
        else:
            self._config = config


def _identity(config: ServiceConfig, rdma_device: str | None) -> NicIdentity:
    addresses = tuple(text.strip() for text in config.addresses.split(",") if text.strip())
    name = config.nic or rdma_device or config.interface
    return NicIdentity(config.machine_name, name, addresses or interface_addresses(config.interface))


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
