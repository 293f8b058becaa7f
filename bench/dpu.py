# SPDX-License-Identifier: Apache-2.0
"""Measures what the DPU service costs per packet and per frame, with a real sender on a veth pair.

The service runs as a process of its own; its processor time is what the kernel counts for it. The kernel's
part, filter and copy into the ring, happens in the sender's context on a veth pair: it is the sender's time
per packet with the capture minus that without. On a NIC it would be the receive interrupt's.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpu_app.service.status import ask_status
from pulse_native._bench import Traffic

_CLONE_NEWNET = 0x4000_0000
_TICKS = os.sysconf("SC_CLK_TCK")
_PACKETS = 1 << 16  # made in advance and sent again and again
_TRICKLE_PACKETS, _TRICKLE_S = 20, 0.02


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """One run of the service under one load; times are of processors."""

    mode: str
    rings: int
    load: str
    sent: int
    sent_per_s: float
    taken: int
    lost: int
    frames: int
    service_ns_per_packet: float
    kernel_ns_per_packet: float
    service_ms_per_frame: float
    peak_mib: float


def measure(seconds: float = 5.0) -> list[ServiceCost]:
    """Run the service in both modes, with one and two rings, at full speed; and once nearly idle."""
    packets = _packets()
    with _namespace() as namespace:
        bare_ns = _send(namespace, packets, seconds).ns_per_packet
        rows = [
            _cost(namespace, packets, seconds, mode, rings, bare_ns)
            for mode in ("all", "steered")
            for rings in (1, 2)
        ]
        rows.append(_cost(namespace, packets[:_TRICKLE_PACKETS], seconds, "all", 1, None))
    return rows


def report_dpu(seconds: float, *, as_json: bool) -> int:
    """Measure and print the rows as a table or as JSON; return the exit status."""
    rows = measure(seconds)
    print(json.dumps([asdict(row) for row in rows]) if as_json else "\n".join(_lines(rows)))
    return 0


def _lines(rows: Sequence[ServiceCost]) -> Iterator[str]:
    yield "mode     rings  load      sent/s    taken     lost    service    kernel   service   peak"
    yield "                                                    ns/packet ns/packet  ms/frame    MiB"
    for row in rows:
        yield (
            f"{row.mode:8} {row.rings:5}  {row.load:7} {row.sent_per_s:8.0f} {row.taken:8} {row.lost:8} "
            f"{row.service_ns_per_packet:10.0f} {row.kernel_ns_per_packet:9.0f} "
            f"{row.service_ms_per_frame:9.2f} {row.peak_mib:6.0f}"
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    packets: int
    seconds: float
    ns_per_packet: float


def _packets() -> list[bytes]:
    batch = Traffic({"flows": 2000, "train_packets": 8, "mtu": 4096}).next_batch(_PACKETS)
    return [batch.data(index) for index in range(len(batch))]


@contextmanager
def _namespace() -> Iterator[str]:
    if os.geteuid() != 0:
        raise OSError("this benchmark makes a network namespace, which needs root")
    name = f"pulse-bench-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        lines = "link add nic0 mtu 9000 type veth peer wire0 mtu 9000\n" + "".join(
            f"link set dev {end} addrgenmode none\nlink set dev {end} up\n" for end in ("nic0", "wire0")
        )
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=lines, text=True, check=True)
        time.sleep(1.5)  # until both ends have a carrier
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def _wire(namespace: str) -> socket.socket:
    opened: list[socket.socket] = []

    def work() -> None:
        with Path("/run/netns", namespace).open("rb") as handle:
            ctypes.CDLL(None).setns(handle.fileno(), _CLONE_NEWNET)
        opened.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        opened[0].bind(("wire0", 0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return opened[0]


def _send(namespace: str, packets: list[bytes], seconds: float) -> _Sent:
    few = len(packets) < _PACKETS
    with _wire(namespace) as wire:
        send: Callable[[bytes], int] = wire.send
        sent, begin_s, used_ns = 0, time.monotonic(), time.thread_time_ns()
        while time.monotonic() - begin_s < seconds:
            part = packets if few else packets[sent % _PACKETS : sent % _PACKETS + 1024]
            for packet in part:
                send(packet)
            sent += len(part)
            if few:
                time.sleep(_TRICKLE_S)
        used_ns = time.thread_time_ns() - used_ns
    return _Sent(sent, time.monotonic() - begin_s, used_ns / sent)


def _cost(
    namespace: str, packets: list[bytes], seconds: float, mode: str, rings: int, bare_ns: float | None
) -> ServiceCost:
    with tempfile.TemporaryDirectory() as folder:
        status = Path(folder) / "status"
        command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "dpu_app.service.main", "run"]
        command += ["--interface", "nic0", "--capture-mode", mode, "--capture-rings", str(rings)]
        command += ["--status-socket", str(status), "--spool-directory", str(Path(folder) / "spool")]
        service = subprocess.Popen(
            command,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"},
        )
        try:
            _await(lambda: status.exists())
            before, used_s = _told(status), _used_s(service.pid)
            sent = _send(namespace, packets, seconds)
            time.sleep(1.5)  # until the last interval is a frame
            after, used_s = _told(status), _used_s(service.pid) - used_s
            peak_mib = _peak_mib(service.pid)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait()
    taken, lost = (after["capture"][name] - before["capture"][name] for name in ("packets", "lost"))
    frames = after["frames"]["made"] - before["frames"]["made"]
    return ServiceCost(
        mode,
        rings,
        "full" if bare_ns is not None else "trickle",
        sent.packets,
        sent.packets / sent.seconds,
        taken,
        lost,
        frames,
        used_s * 1e9 / max(taken, 1),
        sent.ns_per_packet - bare_ns if bare_ns is not None else 0.0,
        used_s * 1e3 / max(frames, 1),
        peak_mib,
    )


def _await(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end_s:
            raise OSError("the service does not start")
        time.sleep(0.05)


def _told(status: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(ask_status(status, "/status"))
    return told


def _used_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
