# SPDX-License-Identifier: Apache-2.0
"""Network namespaces with veth pairs: one namespace per simulated machine, one pair per NIC.

Frames that are sent into a pair's wire side arrive at its other side, where a software DPU captures.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sim.spec import SimulationError

if TYPE_CHECKING:  # a sender process needs nothing native
    from sim.planning.world import NicInfo

_PREFIX = "pulse-sim-"
_NAMESPACES = Path("/run/netns")
_IPV6_SETTINGS = Path("/proc/sys/net/ipv6/conf")
_MTU_BYTES = 9_216
_CLONE_NEWNET = 0x4000_0000
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_runs = itertools.count()
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """One simulated NIC as a network device; frames sent into ``wire`` are received by ``name``."""

    nic: int
    machine: int
    namespace: str
    name: str
    wire: str
    mac: str


class LiveNetwork:
    """A context with a namespace per machine and a veth pair per NIC; nothing of it remains afterwards.

    Raises SimulationError without root or without `ip`. In the main thread SIGINT, SIGTERM and
    SIGHUP first call ``at_stop`` and then end the context by KeyboardInterrupt or SystemExit.
    """

    def __init__(self, nics: Sequence[NicInfo]) -> None:
        prefix = f"{_PREFIX}{os.getpid()}-{next(_runs)}"
        self.devices = tuple(
            LiveDevice(
                nic.number,
                nic.machine,
                f"{prefix}-node{nic.machine}",
                f"mlx5_{nic.rail}",
                f"mlx5_{nic.rail}w",
                nic.mac.hex(":"),
            )
            for nic in nics
            if not nic.external
        )
        self.at_stop: list[Callable[[], None]] = []
        self._made: list[str] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise SimulationError("live output makes network namespaces, which needs root; run it with sudo")
        atexit.register(self._remove)
        self._catch_signals()
        try:
            by_namespace: dict[str, list[LiveDevice]] = {}
            for device in self.devices:
                by_namespace.setdefault(device.namespace, []).append(device)
            for namespace, devices in by_namespace.items():
                self._make(namespace, devices)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second signal must not leave half of the namespaces; `ip` inherits that it is ignored.
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            self._remove()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers.clear()
            atexit.unregister(self._remove)

    def received_packets(self) -> dict[int, int]:
        """How many packets each device has received so far, by the NIC's number."""
        received = {}
        for namespace in self._made:
            links = json.loads(_ip("-n", namespace, "-s", "-j", "link", "show"))
            packets = {link["ifname"]: int(link["stats64"]["rx"]["packets"]) for link in links}
            of_namespace = [device for device in self.devices if device.namespace == namespace]
            received.update({device.nic: packets[device.name] for device in of_namespace})
        return received

    def _make(self, namespace: str, devices: Sequence[LiveDevice]) -> None:
        self._made.append(namespace)
        _ip("netns", "add", namespace)
        in_namespace(namespace, _switch_ipv6_off)
        lines = []
        for device in devices:
            pair = f"address {device.mac} mtu {_MTU_BYTES} type veth peer name {device.wire} mtu {_MTU_BYTES}"
            lines.append(f"link add name {device.name} {pair}")
            for end in (device.name, device.wire):
                lines += [f"link set dev {end} addrgenmode none", f"link set dev {end} up"]
        _ip("-n", namespace, "-batch", "-", text="\n".join(lines) + "\n")

    def _remove(self) -> None:
        if os.getpid() != self._process:
            return  # a forked child; the namespaces are its parent's
        made, self._made = self._made, []
        _delete(made)

    def _catch_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _STOP_SIGNALS:
                self._handlers[number] = signal.signal(number, self._stop)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        for action in self.at_stop:
            action()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def remove_leftovers() -> list[str]:
    """Remove the namespaces of runs whose process is gone; return their names. Needs root."""
    names = [path.name for path in _NAMESPACES.glob(f"{_PREFIX}*")] if _NAMESPACES.is_dir() else []
    left = [name for name in sorted(names) if _is_leftover(name)]
    _delete(left)
    return left


def in_namespace(namespace: str, function: Callable[[], _T]) -> _T:
    """Call ``function`` in a network namespace; sockets that it opens stay there.

    Raises what the function raises, and OSError when there is no such namespace.
    """
    results: list[_T] = []
    failures: list[BaseException] = []

    # A thread of its own, because it cannot come back: the caller's namespace stays as it is.
    def work() -> None:
        try:
            _enter(namespace)
            results.append(function())
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=work, name=namespace)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def open_wire(namespace: str, device: str) -> socket.socket:
    """A raw socket that sends whole frames out of a device and receives nothing."""

    def open_here() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.bind((device, 0))
        return opened

    return in_namespace(namespace, open_here)


def _enter(namespace: str) -> None:
    setns: Callable[[int, int], None] | None = getattr(os, "setns", None)
    with (_NAMESPACES / namespace).open("rb") as handle:
        if setns is not None:
            setns(handle.fileno(), _CLONE_NEWNET)
        elif ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), namespace)


def _switch_ipv6_off() -> None:
    """Without it every new device announces itself, and software DPUs see packets of no NIC."""
    for which in ("all", "default"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            (_IPV6_SETTINGS / which / "disable_ipv6").write_text("1")


def _is_leftover(name: str) -> bool:
    process = name.removeprefix(_PREFIX).partition("-")[0]
    return process.isdecimal() and not Path("/proc", process).exists()


def _delete(namespaces: Sequence[str]) -> None:
    failures = []
    for name in namespaces:
        if not (_NAMESPACES / name).exists():
            continue
        try:
            _ip("netns", "delete", name)
        except SimulationError as error:
            failures.append(str(error))
    if failures:
        raise SimulationError("; ".join(failures))


def _ip(*arguments: str, text: str = "") -> str:
    try:
        done = subprocess.run(["ip", *arguments], input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise SimulationError("live output needs the program `ip`; install iproute2") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or f"ended with {done.returncode}").splitlines()[0]
        raise SimulationError(f"live output: `ip {' '.join(arguments)}`: {reason}")
    return done.stdout
