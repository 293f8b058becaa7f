# SPDX-License-Identifier: Apache-2.0
"""Estimates how far the system clock of a DPU is off from pings over its connection."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dpu_app.wire.transport import Pong

_KEPT = 64
DRIFT_PPM = 50
"""How fast two undisciplined clocks are taken to part while there is no new reading."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The peer's clock minus ours at a time of ours, wrong by at most the uncertainty."""

    at_ns: int
    offset_ns: int
    uncertainty_ns: int

    def uncertainty_at(self, now_ns: int) -> int:
        """Return the uncertainty when the reading has aged."""
        return self.uncertainty_ns + abs(now_ns - self.at_ns) * DRIFT_PPM // 1_000_000


class PeerClock:
    """The readings of one NIC; the one that is surest now is the estimate."""

    def __init__(self) -> None:
        self._readings: deque[ClockReading] = deque(maxlen=_KEPT)

    def take(self, pong: Pong, received_ns: int) -> None:
        """Take an answer that came at a time of our clock; one that cannot be true is passed over."""
        offset_ns, round_trip_ns = pong.clock_offset(received_ns)
        if received_ns < pong.ping_sent_ns or pong.sent_ns < pong.received_ns:
            return
        reading = ClockReading(received_ns, offset_ns, round_trip_ns // 2 + 1)
        if any(_contradicts(reading, old) for old in self._readings):
            self._readings.clear()  # one of the clocks was set
        self._readings.append(reading)

    def estimate(self, now_ns: int) -> ClockReading | None:
        """Return the surest reading, with what its age adds to the uncertainty."""
        best = min(self._readings, key=lambda each: each.uncertainty_at(now_ns), default=None)
        return best and ClockReading(now_ns, best.offset_ns, best.uncertainty_at(now_ns))


def _contradicts(new: ClockReading, old: ClockReading) -> bool:
    apart_ns = abs(new.offset_ns - old.offset_ns)
    return apart_ns > new.uncertainty_ns + old.uncertainty_at(new.at_ns)
