# SPDX-License-Identifier: Apache-2.0
"""What taking frames costs the controller: processor time per frame, and how long answers take."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dpu_app.wire.frame import ClockInfo, Frame, NicIdentity, encode_frame
from dpu_app.wire.tables import Section, Tables
from dpu_app.wire.transport import ALPN, Ack, Decoder, FrameData, Hello, Ping, Pong, encode
from host_ctl.certs import init_authority, issue_machine, issue_server

NICS = 64
SIZES = (50_000, 300_000, 1_000_000)
_IN_FLIGHT = 8
_TICKS = os.sysconf("SC_CLK_TCK")
_LOG_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """One size of frames: the controller's own cost, and how long acknowledgements took."""

    frame_bytes: int
    tls: bool
    frames: int
    cpu_us_per_frame: float
    times_real_time: float
    busy_ack_ms: float
    paced_ack_p50_ms: float
    paced_ack_p99_ms: float
    memory_mib: float
    restart_s: float


def report_controller(seconds: float, *, as_json: bool) -> int:
    """Measure every size, with and without TLS, and print it; return the exit status."""
    rows = [_measure(size, seconds, tls=tls) for tls in (True, False) for size in SIZES]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    print(f"{NICS} NICs, one frame per second each is real time; processor time is the controller's alone")
    heads = ("us/frame", "x real time", "ack ms, p50")
    print(
        f"{'frame':>9} {'TLS':>5} {heads[0]:>9} {heads[1]:>12} {heads[2]:>12} {'p99':>7} {'MiB':>6} restart s"
    )
    for row in rows:
        print(
            f"{row.frame_bytes:>9} {'yes' if row.tls else 'no':>5} {row.cpu_us_per_frame:>9.0f} "
            f"{row.times_real_time:>12.1f} {row.paced_ack_p50_ms:>12.1f} {row.paced_ack_p99_ms:>7.1f} "
            f"{row.memory_mib:>6.0f} {row.restart_s:>9.2f}"
        )
    return 0


class _Controller:
    """A controller process with a history of its own."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self._log = folder / "log"
        settings = {
            "listen.address": "127.0.0.1:0", "history.directory": str(folder / "history"),
            "history.max_gib": 4.0, "limits.connections_per_machine": 64,
            "limits.frames_per_s": 10_000.0, "limits.mib_per_s": 10_000.0,
            "api.address": "",
        }  # fmt: skip
        self.client: ssl.SSLContext | None = None
        if tls:
            pki = folder / "pki"
            if not pki.exists():
                init_authority(pki, "authority of a measurement", 2)
                issue_server(pki, ("localhost",), 1)
                issue_machine(pki, "bench", 1)
            files = (("ca", "ca.crt"), ("cert", "controller.crt"), ("key", "controller.key"))
            settings |= {f"tls.{key}_file": str(pki / name) for key, name in files}
            self.client = ssl.create_default_context(cafile=pki / "ca.crt")
            self.client.load_cert_chain(pki / "bench.crt", pki / "bench.key")
            self.client.set_alpn_protocols([ALPN])
        else:
            settings["listen.plaintext"] = True
        file = folder / "controller.toml"
        file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
        begin_s = time.monotonic()
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "host_ctl.cli.main", "controller", "--config", str(file)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while (found := re.search(r"listening for DPUs on .* port (\d+)", self._log.read_text())) is None:
            if self._process.poll() is not None or time.monotonic() - begin_s > _LOG_WAIT_S:
                raise OSError(f"the controller did not start: {self._log.read_text()}")
            time.sleep(0.01)
        self.start_s = time.monotonic() - begin_s
        self.port = int(found[1])

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mib(self) -> float:
        """Most memory that it has had."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        return 0.0 if found is None else int(found[1]) / 1024

    def stop(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_LOG_WAIT_S)


class _Sender:
    """One NIC: sends frames one after another, a few unacknowledged at most."""

    def __init__(self, number: int, size: int) -> None:
        self._nic = f"mlx5_{number}"
        content = Section.of(0, os.urandom(size))
        identity = NicIdentity("bench", self._nic)
        self._frame = Frame(identity, "life", 0, 0, 1, Tables({"other": content}), ClockInfo("system"))
        self._sent: dict[int, float] = {}
        self._next = 0
        self._landed = asyncio.Event()
        self.delays_ms: list[float] = []

    async def connect(self, controller: _Controller) -> None:
        """Greet."""
        host = None if controller.client is None else "localhost"
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", controller.port, ssl=controller.client, server_hostname=host
        )
        self._writer.write(encode(Hello("bench", self._nic, "life", (), time.time_ns(), (1,), "bench")))
        self._receiving = asyncio.create_task(self._receive())

    async def send(self) -> None:
        """Send a frame once few enough wait."""
        while len(self._sent) >= _IN_FLIGHT:
            self._landed.clear()
            await self._landed.wait()
        data = encode_frame(replace(self._frame, sequence=self._next))
        self._sent[self._next] = time.perf_counter()
        self._next += 1
        self._writer.write(encode(FrameData(data)))
        await self._writer.drain()

    async def finish(self) -> None:
        """Wait for all acknowledgements."""
        while self._sent:
            self._landed.clear()
            await self._landed.wait()

    def close(self) -> None:
        """End the connection."""
        self._receiving.cancel()
        self._writer.transport.abort()

    async def _receive(self) -> None:
        decoder = Decoder()
        while data := await self._reader.read(1 << 16):
            for message in decoder.feed(data):
                if isinstance(message, Ack):
                    self._land(message)
                elif isinstance(message, Ping):
                    now_ns = time.time_ns()
                    self._writer.write(encode(Pong(message.number, message.sent_ns, now_ns, now_ns)))

    def _land(self, message: Ack) -> None:
        now_s = time.perf_counter()
        for sequence in [s for s in self._sent if s <= message.durable[0].sequence]:
            self.delays_ms.append(1e3 * (now_s - self._sent.pop(sequence)))
        self._landed.set()


def _measure(size: int, seconds: float, *, tls: bool) -> Row:
    folder = Path(tempfile.mkdtemp(prefix="pulse-bench-"))
    try:
        controller = _Controller(folder, tls=tls)
        try:
            row = asyncio.run(_load(controller, size, seconds, tls=tls))
        finally:
            controller.stop()
        again = _Controller(folder, tls=tls)
        again.stop()
        return replace(row, restart_s=again.start_s)
    finally:
        shutil.rmtree(folder)


async def _load(controller: _Controller, size: int, seconds: float, *, tls: bool) -> Row:
    senders = [_Sender(number, size) for number in range(NICS)]
    await asyncio.gather(*(sender.connect(controller) for sender in senders))
    before_s = controller.cpu_s()
    end_s = time.monotonic() + seconds
    frames = 0
    while time.monotonic() < end_s:
        await asyncio.gather(*(sender.send() for sender in senders))
        frames += NICS
    await asyncio.gather(*(sender.finish() for sender in senders))
    cpu_us = 1e6 * (controller.cpu_s() - before_s) / frames
    busy = [delay for sender in senders for delay in sender.delays_ms]
    paced = await _paced(senders, seconds)
    memory_mib = controller.memory_mib()
    for sender in senders:
        sender.close()
    percentiles = statistics.quantiles(paced, n=100)
    return Row(
        size, tls, frames, cpu_us, 1e6 / NICS / cpu_us, statistics.median(busy),
        percentiles[49], percentiles[98], memory_mib, 0.0,
    )  # fmt: skip


async def _paced(senders: list[_Sender], seconds: float) -> list[float]:
    """Delays when every NIC sends one frame per second, spread over the second."""
    for sender in senders:
        sender.delays_ms.clear()
    for _ in range(max(1, round(seconds))):
        for sender in senders:
            begin_s = time.perf_counter()
            await sender.send()
            await asyncio.sleep(max(0.0, 1 / NICS - (time.perf_counter() - begin_s)))
    await asyncio.gather(*(sender.finish() for sender in senders))
    return [delay for sender in senders for delay in sender.delays_ms]
