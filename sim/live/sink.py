# SPDX-License-Identifier: Apache-2.0
"""The sink that sends packets into network devices, by one process per group of software DPUs."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pulse_native import PacketBatch
from sim.live.messages import START, Kind, message, packet_messages
from sim.live.network import LiveDevice
from sim.spec import SimulationError

_ROOM_BYTES = 64 << 20
_PIPE_BYTES = 1 << 20
_LEAD_NS = 300_000_000


@dataclass(frozen=True, slots=True)
class SendReport:
    """What the senders did: packets ``sent`` by NIC, late ones too; ``retried`` counts full queues."""

    sent: dict[int, int]
    late: int
    latest_ns: int
    retried: int


class LiveSink:
    """Sends every packet when its stamp is due, ``speed`` simulated seconds per second.

    A packet's stamp must lie on one clock for all NICs. ``room_bytes`` bounds what waits in each process
    (compressed, beyond one stretch of the simulation); when it is full, ``take`` waits. Machines are spread
    over ``groups`` processes, which are there as long as the context.
    """

    def __init__(
        self, devices: Sequence[LiveDevice], speed: float, groups: int, room_bytes: int = _ROOM_BYTES
    ) -> None:
        if not speed > 0:
            raise SimulationError(f"speed {speed:g}: give simulated seconds per second, more than 0")
        machines = sorted({device.machine for device in devices})
        groups = max(1, min(groups, len(machines)))
        group_of = {machine: number % groups for number, machine in enumerate(machines)}
        self._group = {device.nic: group_of[device.machine] for device in devices}
        self._last_nic = max(self._group)
        self._speed = speed
        self._held: list[tuple[int, bytes]] = []
        self._stopped = False
        self._reports: list[SendReport] = []
        self.first_ns: int | None = None
        self.begin_ns: int | None = None
        self._senders: list[subprocess.Popen[bytes]] = []
        self._settings = [
            {
                "devices": [[d.nic, d.namespace, d.wire] for d in devices if self._group[d.nic] == group],
                "room_bytes": room_bytes,
            }
            for group in range(groups)
        ]

    def __enter__(self) -> Self:
        try:
            for group, setting in enumerate(self._settings):
                self._senders.append(_start_sender())
                self._write(group, json.dumps(setting).encode() + b"\n")
            for group in range(len(self._senders)):
                if self._line(group) != b"ready\n":
                    raise self._failure(group)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
        for sender in self._senders:
            sender.wait()
            for pipe in (sender.stdin, sender.stdout):
                if pipe is not None:
                    pipe.close()

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Hand packets over; waits while the process that sends them has enough."""
        if len(batch):
            self._take_packets(nic, batch)
        if nic == self._last_nic:
            self._end_round()

    def close(self, end_ns: int) -> None:
        """Wait until everything is sent. Raises SimulationError when a process stopped."""
        self._end_round()
        for group in range(len(self._senders)):
            self._write(group, message(Kind.END))
        for group, sender in enumerate(self._senders):
            line = self._line(group)
            if sender.wait() != 0 or not line:
                raise self._failure(group)
            report = json.loads(line)
            report["sent"] = dict(report["sent"])
            self._reports.append(SendReport(**report))

    def abort(self) -> None:
        """Stop sending at once; whoever waits in ``take`` or ``close`` gets a SimulationError.

        Signal handlers may call it.
        """
        self._stopped = True
        for sender in self._senders:
            sender.terminate()

    @property
    def report(self) -> SendReport:
        """What was sent; complete after ``close``."""
        return SendReport(
            {nic: count for report in self._reports for nic, count in report.sent.items()},
            sum(report.late for report in self._reports),
            max((report.latest_ns for report in self._reports), default=0),
            sum(report.retried for report in self._reports),
        )

    def _take_packets(self, nic: int, batch: PacketBatch) -> None:
        if (batch.captured_bytes != batch.wire_bytes).any():
            raise SimulationError("live output sends whole packets: set the capture's snap_bytes to 0")
        started = self.begin_ns is not None
        if not started:
            first_ns = int(batch.ns[0])
            self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        group = self._group[nic]
        for part in packet_messages(nic, batch):
            if started:
                self._write(group, part)
            else:
                self._held.append((group, part))

    def _end_round(self) -> None:
        """The packets of all NICs up to some time are there."""
        if self.begin_ns is None:
            if self.first_ns is None:
                return
            # Only now is the first packet of all NICs known.
            self.begin_ns = time.monotonic_ns() + _LEAD_NS
            start = START.pack(self.first_ns, self.begin_ns, self._speed)
            for group in range(len(self._senders)):
                self._write(group, message(Kind.START, start))
            for group, part in self._held:
                self._write(group, part)
            self._held.clear()
        for group in range(len(self._senders)):
            self._write(group, message(Kind.ROUND))

    def _write(self, group: int, content: bytes) -> None:
        pipe = self._senders[group].stdin
        assert pipe is not None
        rest = memoryview(content)
        try:
            while rest:  # a signal may cut a write short
                rest = rest[pipe.write(rest) :]
        except OSError as error:
            raise self._failure(group) from error

    def _line(self, group: int) -> bytes:
        pipe = self._senders[group].stdout
        assert pipe is not None
        return pipe.readline()

    def _failure(self, group: int) -> SimulationError:
        if self._stopped:
            return SimulationError("live output was stopped")
        sender = self._senders[group]
        code = sender.wait()
        return SimulationError(f"live output: sender process {group} ended too early, with code {code}")


def _start_sender() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(place for place in sys.path if place)
    sender = subprocess.Popen(
        [sys.executable, "-m", "sim.live.sender"],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert sender.stdin is not None
    fcntl.fcntl(sender.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return sender
