# SPDX-License-Identifier: Apache-2.0
"""Checks whether the service can work on this machine, and says what to do where it cannot.

Nothing is changed, and what a check opens it closes again.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpu_app.capture.afpacket import AfPacketSource
from dpu_app.capture.clocks import phc_index, read_system_clock
from dpu_app.capture.counters import rdma_device_of
from dpu_app.capture.ptp4l import ask_ptp4l
from dpu_app.service.config import ServiceConfig
from dpu_app.service.publisher import describe, split_address, tls_context
from dpu_app.wire.transport import ALPN

_CONNECT_S = 5.0
_LEAST_FREE = 2  # times the spool's bound
_MARKS = {"fine": "ok   ", "note": "note ", "wrong": "WRONG"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `advice` says what to do."""

    level: Literal["fine", "note", "wrong"]
    about: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{_MARKS[self.level]} {self.about}: {self.text}" + (
            f"\n        {self.advice}" if self.advice else ""
        )


def examine(config: ServiceConfig) -> list[Finding]:
    """Run all checks."""
    checks: tuple[Callable[[ServiceConfig], Iterator[Finding]], ...] = (
        _interface,
        _capture,
        _clock,
        _spool,
        _controller,
    )
    return [finding for check in checks for finding in check(config)]


def _interface(config: ServiceConfig) -> Iterator[Finding]:
    device = Path("/sys/class/net") / config.interface
    if not device.exists():
        yield Finding(
            "wrong", "interface", f"there is no {config.interface}", "set interface to one of `ip link`"
        )
        return
    state = (device / "operstate").read_text(encoding="ascii").strip()
    mtu = (device / "mtu").read_text(encoding="ascii").strip()
    if state in ("up", "unknown"):
        yield Finding("fine", "interface", f"{config.interface} is up, MTU {mtu}")
    else:
        yield Finding(
            "note", "interface", f"{config.interface} is {state}", "nothing is captured until it is up"
        )
    rdma = rdma_device_of(config.interface)
    if rdma is None:
        text = f"{config.interface} belongs to no RDMA device"
        yield Finding(
            "note", "RDMA device", text, "fine where it receives copies; its RDMA counters are missing"
        )
    else:
        yield Finding("fine", "RDMA device", rdma)


def _capture(config: ServiceConfig) -> Iterator[Finding]:
    try:
        source = AfPacketSource(config.capture())
    except OSError as error:
        yield Finding("wrong", "capture", error.strerror or str(error))
        return
    hardware = source.hardware_stamps
    source.close()
    yield Finding("fine", "capture", f"{config.rings} rings of {config.ring_mib} MiB can be opened")
    if hardware:
        yield Finding("fine", "time stamps", "of the NIC's clock, on all received packets")
    else:
        advice = (
            "where the NIC can, `systemctl enable --now pulse-dpu-device@INTERFACE` switches its stamps on"
        )
        yield Finding("note", "time stamps", "of the system clock, some microseconds late", advice)


def _clock(config: ServiceConfig) -> Iterator[Finding]:
    index = phc_index(config.interface)
    if index is None:
        yield Finding("note", "NIC clock", f"{config.interface} has none")
    elif os.access(f"/dev/ptp{index}", os.R_OK):
        yield Finding("fine", "NIC clock", f"/dev/ptp{index}")
    else:
        yield Finding(
            "wrong", "NIC clock", f"/dev/ptp{index} cannot be read", "let the service's user read it"
        )
    system = read_system_clock()
    if system.error_ns is None:
        yield Finding("note", "system clock", "nothing keeps it right", "run chrony, or phc2sys after ptp4l")
    else:
        yield Finding("fine", "system clock", f"kept right, at most {system.error_ns / 1e6:.3f} ms off")
    if config.ptp4l:
        offset_ns = ask_ptp4l(Path(config.ptp4l))
        text = f"no answer at {config.ptp4l}" if offset_ns is None else f"sees an offset of {offset_ns} ns"
        yield Finding("note" if offset_ns is None else "fine", "ptp4l", text)


def _spool(config: ServiceConfig) -> Iterator[Finding]:
    if not config.spool_directory:
        text = "in memory only: a restart loses what the controller does not have"
        yield Finding("note", "spool", text, "set spool.directory")
        return
    directory = Path(config.spool_directory)
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("wrong", "spool", f"{there} cannot be written", "let the service's user write there")
        return
    free_mib = shutil.disk_usage(there).free >> 20
    if free_mib < config.spool_disk_mib * _LEAST_FREE:
        advice = "lower spool.disk_mib, or give it more room"
        yield Finding("note", "spool", f"{there} has {free_mib} MiB free for {config.spool_disk_mib}", advice)
    else:
        yield Finding("fine", "spool", f"{directory}, {free_mib} MiB free")


def _controller(config: ServiceConfig) -> Iterator[Finding]:
    controller = config.publishing()
    if controller is None:
        yield Finding("note", "controller", "none: frames stay in the spool", "set controller.address")
        return
    host, port = split_address(controller.address)
    try:
        tls = None if controller.plaintext else tls_context(controller)
    except OSError as error:
        yield Finding("wrong", "certificates", error.strerror or str(error))
        return
    try:
        with socket.create_connection((host, port), _CONNECT_S) as plain:
            if tls is None:
                yield Finding("note", "controller", f"{controller.address} is reached, without TLS")
                return
            with tls.wrap_socket(plain, server_hostname=controller.server_name or host) as secured:
                yield _spoken(controller.address, secured)
    except OSError as error:
        # The class says more than the text when a connection is refused.
        text = (
            os.strerror(error.errno)
            if error.errno and not isinstance(error, ssl.SSLError)
            else describe(error)
        )
        advice = "see whether the controller runs, and what stands between"
        yield Finding("wrong", "controller", f"{controller.address}: {text}", advice)


def _spoken(address: str, secured: ssl.SSLSocket) -> Finding:
    if secured.selected_alpn_protocol() != ALPN:
        advice = "see whether controller.address is a Pulse controller"
        return Finding("wrong", "controller", f"{address} does not speak {ALPN}", advice)
    return Finding("fine", "controller", f"{address} is reached, with {secured.version()}")
