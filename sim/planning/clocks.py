# SPDX-License-Identifier: Apache-2.0
"""Each NIC's clock error: offset, drift that wanders, steps, TAI."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sim.spec import ClockSpec, stream

TAI_MINUS_UTC_NS = 37_000_000_000
_WANDER_INTERVAL_NS = 100_000_000
_MAX_POINTS = 1_000  # of one clock, however long the run


@dataclass(frozen=True, slots=True)
class NicClock:
    """A NIC's clock as points (true ns since the simulation began, shown epoch ns), straight in between.

    Two points of one true time are a step. ``offset_ns`` and ``drift_ppm`` are those at the beginning.
    """

    offset_ns: int
    drift_ppm: float
    start_ns: int
    points: tuple[tuple[int, int], ...]

    def show(self, true_ns: int) -> int:
        """What the clock shows at ``true_ns`` since the beginning."""
        index = max(0, min(len(self.points) - 2, _last_at(self.points, true_ns)))
        (t0, s0), (t1, s1) = self.points[index : index + 2]
        return s0 + round((true_ns - t0) * (s1 - s0) / (t1 - t0))

    def moved_by(self, ns: int) -> NicClock:
        """The clock with the same errors in a simulation that begins at another time."""
        points = tuple((true_ns, shown_ns + ns) for true_ns, shown_ns in self.points)
        return replace(self, start_ns=self.start_ns + ns, points=points)


def _last_at(points: tuple[tuple[int, int], ...], true_ns: int) -> int:
    """The last point at or before a time from which a piece of positive length begins."""
    found = 0
    for number in range(len(points) - 1):
        if points[number][0] <= true_ns and points[number + 1][0] > points[number][0]:
            found = number
    return found


def draw_clock(
    spec: ClockSpec, seed: int, machine: int, rail: int, start_ns: int, length_ns: int
) -> NicClock:
    """The clock of one NIC, drawn within the bounds of ``spec``; true time begins at epoch ``start_ns``."""
    rng = stream(seed, "clock", machine, rail)
    offset, drift = rng.uniform(-1.0, 1.0, 2)
    offset_ns, drift_ppm = int(offset * spec.offset_ns), float(drift * spec.drift_ppm)
    if rng.random() < spec.tai_share:
        offset_ns += TAI_MINUS_UTC_NS
    step_at_ns = int(rng.uniform(0.3, 0.7) * length_ns) if spec.step_ns and rng.random() < 0.5 else None
    points: list[tuple[int, int]] = [(0, start_ns + offset_ns)]
    wandering = drift_ppm
    interval_ns = max(length_ns, 1_000_000_000)
    if spec.wander_ppm:
        interval_ns = max(_WANDER_INTERVAL_NS, length_ns // _MAX_POINTS)
    for true_ns in range(interval_ns, length_ns + 2 * interval_ns, interval_ns):
        before_ns, shown_ns = points[-1]
        rate = 1.0 + wandering * 1e-6
        if step_at_ns is not None and before_ns < step_at_ns < true_ns:
            at_step = shown_ns + round((step_at_ns - before_ns) * rate)
            points += [(step_at_ns, at_step), (step_at_ns, at_step + spec.step_ns)]
            before_ns, shown_ns = points[-1]
        points.append((true_ns, shown_ns + round((true_ns - before_ns) * rate)))
        wandering += float(rng.normal(0.0, spec.wander_ppm)) * (interval_ns / 1e9) ** 0.5
    return NicClock(offset_ns, drift_ppm, start_ns, tuple(points))


class ClockReadings:
    """Readings (NIC clock, system clock) at regular times, as a DPU's service takes them.

    The system clock of a machine follows true time within 50 us, and a reading takes some microseconds.
    """

    def __init__(self, clock: NicClock, seed: int, machine: int, rail: int, every_ns: int) -> None:
        self._clock = clock
        self._error_ns = int(stream(seed, "system clock", machine).normal(0.0, 50_000))
        self._rng = stream(seed, "clock pair", machine, rail)
        self._every_ns = every_ns
        self._next_ns = 0

    def until(self, shown_ns: int) -> list[tuple[int, int]]:
        """The next readings, those before the NIC's clock shows a time."""
        readings = []
        while self._clock.show(self._next_ns) < shown_ns:
            readings.append(self.at(self._next_ns))
            self._next_ns += self._every_ns
        return readings

    def at(self, true_ns: int) -> tuple[int, int]:
        """One more reading."""
        reading_ns = int(self._rng.exponential(2_000))
        return self._clock.show(true_ns), self._clock.start_ns + true_ns + self._error_ns + reading_ns


def stamp_noise(spec: ClockSpec) -> dict[str, float]:
    """The settings of a tap that concern stamps."""
    return {
        "stamp_noise_ns": float(spec.jitter_ns),
        "copy_delay_ns": float(spec.copy_delay_ns),
        "copy_jitter_ns": float(spec.copy_jitter_ns),
        "poll_interval_ns": float(spec.poll_ns),
    }


def seed_of(*labels: str | int, seed: int) -> int:
    """A 64-bit seed for the native generator of one purpose."""
    return int(stream(seed, *labels).integers(0, 1 << 63, dtype=np.int64))
