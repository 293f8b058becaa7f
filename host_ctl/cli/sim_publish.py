# SPDX-License-Identifier: Apache-2.0
"""Software DPUs of a simulation publish to a controller, by the publisher and spool of the DPU service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from dpu_app.service.publisher import ControllerConfig, Publisher, check_plaintext, split_address, tls_context
from dpu_app.service.spool import Spool, SpoolConfig
from dpu_app.wire.frame import Frame, NicIdentity
from host_ctl.certs import CA_NAME
from host_ctl.errors import OutputError, UsageError
from sim.output.run import OutputForm, write_run
from sim.output.sinks import DpuOptions, identity_of
from sim.output.truth import Truth
from sim.simulate import Pacing, Progress, moved_to, prepare
from sim.spec import Scenario

_MAX_WAITING_BYTES = 64 << 20  # of all NICs, before the simulation waits
_MAX_SPOOL_BYTES = 1 << 30  # never reached: a spool that is full would drop frames
_LONGEST_AWAY_S = 60.0
_LOOK_S = 0.02
_ANSWER_S = 10.0
_STRETCH_S = 0.05  # real time by which a paced simulation runs ahead
_FASTEST = 1000.0
_LATE_S = 1.0  # worth telling
_SECOND_NS = 1_000_000_000
_LOG = logging.getLogger(Publisher.__module__)


@dataclass(frozen=True, slots=True)
class Target:
    """Where frames go: HOST:PORT, and a folder of ``pulse certs``; without one there is no TLS."""

    address: str
    certs: Path | None = None
    server_name: str | None = None

    def config(self, machine: str) -> ControllerConfig:
        """Return the settings of a machine's DPUs. Raises UsageError for what cannot work."""
        try:
            host, _ = split_address(self.address)
        except ValueError as error:
            raise UsageError(f"--to: {error}") from error
        if self.certs is None:
            config = ControllerConfig(self.address, plaintext=True)
            try:
                check_plaintext(config)
            except ValueError as error:
                text = f"--to {self.address}: plain text to {host} would cross the network; give --certs DIR"
                raise UsageError(text) from error
            return config
        authority, own = self.certs / f"{CA_NAME}.crt", self.certs / f"{machine}.crt"
        for path in (authority, own, own.with_suffix(".key")):
            if not path.is_file():
                make = "init" if path is authority else f"issue --machine {machine}"
                text = f"--certs: {path} does not exist; pulse certs {make} --dir {self.certs} makes it"
                raise UsageError(text)
        config = ControllerConfig(
            self.address, self.server_name, authority, own, own.with_suffix(".key"), backoff_s=0.1
        )
        try:
            tls_context(config)
        except OSError as error:
            raise UsageError(f"--certs: {error.strerror or error}") from error
        return config


def target_of(
    address: str | None, certs: Path | None, server_name: str | None, speed: float | None
) -> Target | None:
    """The target that options describe, if any. Raises UsageError for options that need one."""
    if speed is not None and not 0 < speed <= _FASTEST:
        raise UsageError(f"--pace {speed:g}: expected more than 0 and at most {_FASTEST:g}")
    if address is not None:
        return Target(address, certs, server_name)
    if certs is not None or server_name is not None or speed is not None:
        raise UsageError("--certs, --server-name and --pace go with --to HOST:PORT")
    return None


class Fleet:
    """The connections of all NICs of a run, in a thread of their own as long as the context lasts.

    Raises OutputError when the controller cannot be reached or stays away.
    """

    def __init__(self, target: Target, nics: Mapping[int, NicIdentity], boot_id: str) -> None:
        configs = {machine: target.config(machine) for machine in {nic.machine for nic in nics.values()}}
        self._spools = {number: Spool(SpoolConfig(memory_bytes=_MAX_SPOOL_BYTES)) for number in nics}
        self._publishers = {
            number: Publisher(configs[nic.machine], self._spools[number], nic, boot_id)
            for number, nic in nics.items()
        }
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="publishing")
        self._main: asyncio.Task[None] | None = None
        self._away_since_s: float | None = None
        self._log_level = _LOG.level
        self.frames = self.bytes = 0

    def __enter__(self) -> Self:
        """Connect all; what keeps the first one from it is what is told."""
        # What goes wrong is told once for all NICs, by who waits for them.
        _LOG.setLevel(logging.ERROR)
        self._thread.start()
        try:
            while self._problem() is None and not self._is_connected():
                time.sleep(_LOOK_S)
            problem = self._problem()
            if problem is not None:
                raise OutputError(problem)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the connections; what has not been acknowledged is dropped."""
        with contextlib.suppress(RuntimeError):  # a loop that ended by an error is closed
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()
        _LOG.setLevel(self._log_level)

    def put(self, number: int, frame: Frame, data: bytes) -> None:
        """Have a NIC's frame sent."""
        self._spools[number].put(frame.boot_id, frame.sequence, data)
        self.frames += 1
        self.bytes += len(data)
        self._loop.call_soon_threadsafe(self._publishers[number].wake)

    def wait_for_room(self) -> None:
        """Wait while much is not acknowledged yet."""
        self._wait(_MAX_WAITING_BYTES)

    def wait_for_all(self) -> None:
        """Wait until everything is durable. Raises OutputError for frames that were not taken."""
        self._wait(0)
        refused = sum(spool.counts().refused for spool in self._spools.values())
        if refused:
            raise OutputError(f"the controller refused {refused} of {self.frames} frames; its log says why")

    def _wait(self, most_bytes: int) -> None:
        while sum(spool.counts().memory_bytes for spool in self._spools.values()) > most_bytes:
            problem, now_s = self._problem(), time.monotonic()
            if problem is None:
                self._away_since_s = None
            elif self._away_since_s is None:
                self._away_since_s = now_s
            elif now_s - self._away_since_s > _LONGEST_AWAY_S:
                waits = sum(spool.counts().frames for spool in self._spools.values())
                raise OutputError(f"{problem}; {waits} of {self.frames} frames were not taken")
            time.sleep(_LOOK_S)

    def _is_connected(self) -> bool:
        return all(self._look())

    def _problem(self) -> str | None:
        """What keeps a NIC from being connected; None when nothing is known to."""
        return next((text for text in self._look() if isinstance(text, str)), None)

    def _look(self) -> list[bool | str]:
        """For every NIC whether it is connected, or what keeps it from that."""

        async def look() -> list[bool | str]:
            states = [publisher.status for publisher in self._publishers.values()]
            return [state.connected or state.error or False for state in states]

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(_ANSWER_S)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)

        async def run_all() -> None:
            await asyncio.gather(*(publisher.run() for publisher in self._publishers.values()))

        self._main = self._loop.create_task(run_all())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class Pace:
    """Holds a simulation back to ``speed`` simulated seconds per second, and to what the controller takes."""

    def __init__(self, fleet: Fleet, speed: float | None, begin_ns: int) -> None:
        self._fleet = fleet
        self._speed = speed
        self._begin_s = time.monotonic() + (begin_ns - time.time_ns()) / 1e9
        self.latest_s = 0.0

    def reached(self, now_ns: int) -> None:
        """Wait for the time at which the simulation may be there, and for room."""
        self._fleet.wait_for_room()
        if self._speed is None:
            return
        early_s = self._begin_s + now_ns / 1e9 / self._speed - time.monotonic()
        self.latest_s = max(self.latest_s, -early_s)
        if early_s > 0:
            time.sleep(early_s)


def _next_like(epoch_ns: int) -> int:
    """The next time at the same place within a second: frames are cut where those of the seed are."""
    now_ns = time.time_ns()
    return now_ns + (epoch_ns - now_ns) % _SECOND_NS


def publish_run(
    scenario: Scenario,
    folder: Path,
    counterfactual: bool,
    progress: Progress,
    target: Target,
    options: DpuOptions,
    speed: float | None,
) -> tuple[Truth, str]:
    """Simulate a scenario that begins now, write its frames and truth, and have every frame durable.

    Returns the truth and a line that tells what was sent.
    """
    setting = prepare(scenario)
    nics = {nic.number: identity_of(setting, nic) for nic in setting.world.nics if not nic.external}
    options = replace(
        options, boot_id=uuid.uuid4().hex
    )  # of this run: the seed's frames may be there already
    with Fleet(target, nics, options.boot_id or "") as fleet:
        begin_ns = _next_like(setting.epoch_ns)
        pace = Pace(fleet, speed, begin_ns)
        pacing = Pacing(pace.reached)
        if speed is not None:
            stretch_ns = max(1, round(_STRETCH_S * speed * 1e9))
            pacing = replace(pacing, longest_stretch_ns=min(pacing.longest_stretch_ns, stretch_ns))
        setting = moved_to(setting, begin_ns)
        options = replace(options, told=fleet.put)
        truth = write_run(setting, folder, counterfactual, progress, OutputForm.FRAMES, options, pacing)
        fleet.wait_for_all()
    late = f", up to {pace.latest_s:.1f} s behind the pace" if pace.latest_s > _LATE_S else ""
    size = f"{fleet.bytes / 1e6:.1f} MB"
    return truth, f"{target.address}: {fleet.frames} frames of {len(nics)} NICs, {size}, are durable{late}\n"
