# SPDX-License-Identifier: Apache-2.0
"""Clocks: which one stamps, how it stands to the system's, and what is claimed for it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from dpu_app.capture import clocks
from dpu_app.capture.clocks import ClockReading, StampClock, read_pair, read_system_clock
from dpu_app.capture.ptp4l import ask_ptp4l

SECOND = 1_000_000_000


def ptp_time(ns: int) -> bytes:
    """`struct ptp_clock_time`."""
    return struct.pack("=qII", *divmod(ns, SECOND), 0)


class Phc:
    """A hardware clock as the kernel shows it; a `precise` device reads both clocks at once."""

    def __init__(self, *, precise: bool) -> None:
        self.precise = precise
        self.requests: list[int] = []

    def __call__(self, _handle: int, request: int, answer: bytearray) -> None:
        self.requests.append(request)
        if request >> 16 & 0x3FFF == 64:
            if not self.precise:
                raise OSError(95, "not supported")
            answer[:32] = ptp_time(7 * SECOND + 5) + ptp_time(3 * SECOND + 1)
            return
        assert len(answer) == request >> 16 & 0x3FFF == 1216
        (samples,) = struct.unpack_from("=I", answer)
        for sample in range(samples):
            width_ns = 1000 - 100 * sample if sample < 3 else 5000
            begin_ns = 3 * SECOND + 10_000 * sample
            parts = (begin_ns, begin_ns + 4 * SECOND, begin_ns + width_ns)
            answer[16 + 48 * sample : 64 + 48 * sample] = b"".join(map(ptp_time, parts))


def test_a_device_that_reads_both_clocks_at_once_is_believed() -> None:
    assert read_pair(0, Phc(precise=True)) == ClockReading(7 * SECOND + 5, 3 * SECOND + 1, 0)


def test_of_several_readings_the_narrowest_counts() -> None:
    begin_ns = 3 * SECOND + 20_000
    assert read_pair(0, Phc(precise=False)) == ClockReading(begin_ns + 4 * SECOND, begin_ns + 400, 800)


def test_requests_have_the_numbers_of_the_kernel() -> None:
    phc = Phc(precise=False)
    read_pair(0, phc)
    assert phc.requests == [0xC0403D08, 0xC4C03D09]


def test_without_hardware_stamps_the_system_clock_stamps() -> None:
    state = StampClock("lo", hardware_stamps=False).read()
    assert state.info.source == "system"
    assert state.reading.nic_ns == state.reading.system_ns
    assert abs(state.reading.nic_ns - time.time_ns()) < 10 * SECOND
    assert state.steps == 0


def test_a_clock_that_is_set_is_noticed_and_one_that_drifts_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"time": 100 * SECOND, "monotonic": 5 * SECOND}
    monkeypatch.setattr(clocks.time, "time_ns", lambda: now["time"])
    monkeypatch.setattr(clocks.time, "monotonic_ns", lambda: now["monotonic"])
    clock = StampClock("lo", hardware_stamps=False)
    steps = []
    for time_ns, monotonic_ns in (
        (SECOND, SECOND),
        (SECOND + 400_000, SECOND),
        (4 * SECOND, SECOND),
        (-SECOND, SECOND),
    ):
        now["time"] += time_ns
        now["monotonic"] += monotonic_ns
        steps.append(clock.read().steps)
    assert steps == [0, 0, 1, 2]


def test_stamps_of_a_clock_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(OSError, match="lo stamps packets by a clock that cannot be read"):
        StampClock("lo", hardware_stamps=True)


def test_the_kernel_tells_of_its_clock() -> None:
    system = read_system_clock()
    assert system.error_ns is None or system.error_ns >= 0
    expected_s = round(time.clock_gettime(time.CLOCK_TAI) - time.time())
    assert system.tai_offset_s == (expected_s or None)


class Ptp4l(threading.Thread):
    """Answers one question as ptp4l does, after messages that are none of ours."""

    def __init__(self, path: Path, offset: int, *, number_off: int = 0, action: int = 2) -> None:
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)
        self.offset, self.number_off, self.action = offset, number_off, action
        self.question = b""
        self.start()

    def run(self) -> None:
        self.question, sender = self.socket.recvfrom(1500)
        (number,) = struct.unpack_from(">H", self.question, 30)
        header = (
            self.question[:30] + struct.pack(">H", number + self.number_off & 0xFFFF) + self.question[32:34]
        )
        target = self.question[34:44] + struct.pack(">BBBB", 0, 0, self.action, 0)
        tlv = struct.pack(">HHHHqq", 1, 20, 0x2001, 1, self.offset << 16, 500 << 16)
        self.socket.sendto(b"short", sender)
        self.socket.sendto(header + target + tlv, sender)
        self.socket.close()


@pytest.mark.parametrize("offset_ns", [0, 123, -123])
def test_ptp4l_is_asked_for_the_offset_that_it_sees(tmp_path: Path, offset_ns: int) -> None:
    ptp4l = Ptp4l(tmp_path / "ptp4l", offset_ns)
    assert ask_ptp4l(tmp_path / "ptp4l", timeout_s=5) == abs(offset_ns)
    ptp4l.join()
    assert ptp4l.question[0] & 0x0F == 0x0D
    assert struct.unpack_from(">H", ptp4l.question, 2)[0] == len(ptp4l.question) == 54
    assert struct.unpack_from(">HHH", ptp4l.question, 48) == (1, 2, 0x2001)


@pytest.mark.parametrize(("number_off", "action"), [(1, 2), (0, 0)], ids=["of another", "no answer"])
def test_what_is_no_answer_is_passed_over(tmp_path: Path, number_off: int, action: int) -> None:
    ptp4l = Ptp4l(tmp_path / "ptp4l", 5, number_off=number_off, action=action)
    assert ask_ptp4l(tmp_path / "ptp4l", timeout_s=0.3) is None
    ptp4l.join()


def test_without_ptp4l_nothing_is_claimed(tmp_path: Path) -> None:
    assert ask_ptp4l(tmp_path / "nobody") is None
