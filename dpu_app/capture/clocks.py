# SPDX-License-Identifier: Apache-2.0
"""Which clock stamps packets, how it stands to the system's clock, and what error is claimed for it.

Stamps of the NIC come from its PTP hardware clock (PHC), read here beside the system clock; stamps of the
kernel come from the system clock itself.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpu_app.capture.ptp4l import ask_ptp4l
from dpu_app.wire.frame import ClockInfo

_SIOCETHTOOL = 0x8946
_GET_TS_INFO = 0x41
_SAMPLES = 5
_STEP_NS = 1_000_000  # more than this, and more than clocks drift, is a step
_MAX_DRIFT_PPM = 500
_UNSYNCHRONISED = 0x40


def _request(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | ord("=") << 8 | number


_PRECISE_BYTES = 3 * 16 + 16
_EXTENDED_BYTES = 16 + 25 * 3 * 16
_SYS_OFFSET_PRECISE = _request(3, 8, _PRECISE_BYTES)
_SYS_OFFSET_EXTENDED = _request(3, 9, _EXTENDED_BYTES)

Ioctl = Callable[[int, int, bytearray], object]


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks at one moment, `width_ns` long; the reading of the system clock is its middle."""

    nic_ns: int
    system_ns: int
    width_ns: int


@dataclass(frozen=True, slots=True)
class ClockState:
    """What is known at one moment; `tai_offset_s` is TAI minus UTC, None when nobody told the kernel."""

    info: ClockInfo
    reading: ClockReading
    tai_offset_s: int | None
    steps: int


class StampClock:
    """The clock that stamps packets; `read` looks at it anew. Raises OSError when a PHC cannot be opened."""

    def __init__(
        self,
        interface: str,
        *,
        hardware_stamps: bool,
        ptp4l_socket: Path | None = None,
        dev: Path = Path("/dev"),
    ) -> None:
        self._ptp4l_socket = ptp4l_socket
        self._phc: int | None = None
        self._before: tuple[int, int] | None = None
        self._steps = 0
        if hardware_stamps:
            index = phc_index(interface)
            if index is None:
                raise OSError(f"{interface} stamps packets by a clock that cannot be read")
            self._phc = os.open(dev / f"ptp{index}", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> ClockState:
        """Read both clocks and the claimed error, and notice whether the stamping clock has been set."""
        system = read_system_clock()
        reading = self._pair()
        self._note_step(reading)
        if self._phc is None:
            info = ClockInfo("system", system.error_ns)
        else:
            ptp_error_ns = None if self._ptp4l_socket is None else ask_ptp4l(self._ptp4l_socket)
            info = ClockInfo("free" if ptp_error_ns is None else "ptp", ptp_error_ns)
        return ClockState(info, reading, system.tai_offset_s, self._steps)

    def now_ns(self) -> int:
        """Return the stamping clock's time."""
        return self._pair().nic_ns

    def close(self) -> None:
        """Close the PHC."""
        if self._phc is not None:
            os.close(self._phc)
            self._phc = None

    def _pair(self) -> ClockReading:
        if self._phc is not None:
            return read_pair(self._phc)
        now_ns = time.time_ns()
        return ClockReading(now_ns, now_ns, 0)

    def _note_step(self, reading: ClockReading) -> None:
        elapsed_ns = time.monotonic_ns()
        if self._before is not None:
            passed_ns = elapsed_ns - self._before[0]
            moved_ns = reading.nic_ns - self._before[1]
            if abs(moved_ns - passed_ns) > _STEP_NS + passed_ns * _MAX_DRIFT_PPM // 1_000_000:
                self._steps += 1
        self._before = (elapsed_ns, reading.nic_ns)


def read_pair(phc: int, ioctl: Ioctl = fcntl.ioctl) -> ClockReading:
    """Return a reading of a PHC and the system clock: by the device at once, or the narrowest of several."""
    answer = bytearray(_PRECISE_BYTES)
    with contextlib.suppress(OSError):
        ioctl(phc, _SYS_OFFSET_PRECISE, answer)
        return ClockReading(_time_at(answer, 0), _time_at(answer, 16), 0)
    answer = bytearray(_EXTENDED_BYTES)
    struct.pack_into("=I", answer, 0, _SAMPLES)
    ioctl(phc, _SYS_OFFSET_EXTENDED, answer)
    readings = []
    for sample in range(_SAMPLES):
        before_ns, nic_ns, after_ns = (_time_at(answer, 16 + 48 * sample + 16 * part) for part in range(3))
        readings.append(ClockReading(nic_ns, (before_ns + after_ns) // 2, after_ns - before_ns))
    return min(readings, key=lambda reading: reading.width_ns)


def _time_at(answer: bytearray, at: int) -> int:
    seconds, nanos = struct.unpack_from("=qI", answer, at)
    return int(seconds) * 1_000_000_000 + int(nanos)


def phc_index(interface: str) -> int | None:
    """Return the number of an interface's PTP hardware clock; None when it has none."""
    memory = array.array("B", struct.pack("=I", _GET_TS_INFO) + bytes(40))
    address, _ = memory.buffer_info()
    request = struct.pack("16sP", interface.encode()[:15], address).ljust(40, b"\0")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            fcntl.ioctl(handle, _SIOCETHTOOL, request)
    except OSError:
        return None
    index: int = struct.unpack_from("=i", memory, 8)[0]
    return index if index >= 0 else None


class _Timex(ctypes.Structure):
    """`struct timex` of 64-bit Linux."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "sec", "usec", "tick")),
        *((name, ctypes.c_long) for name in ("ppsfreq", "jitter")),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


@dataclass(frozen=True, slots=True)
class SystemClock:
    """What the kernel claims for its clock; `error_ns` is None when nothing keeps it right."""

    error_ns: int | None
    tai_offset_s: int | None


def read_system_clock() -> SystemClock:
    """Return the claimed error of the system clock and TAI minus UTC."""
    timex = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        return SystemClock(None, None)
    kept = not timex.status & _UNSYNCHRONISED
    return SystemClock(timex.maxerror * 1000 if kept else None, timex.tai or None)
