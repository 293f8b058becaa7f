# SPDX-License-Identifier: Apache-2.0
"""Drives packets through the meter and makes one frame of each interval.

Intervals are multiples of their length on the capture's clock. An interval without packets makes no frame
unless that is asked for, as a service does: who waits for frames cannot tell silence from death otherwise.
A packet that arrives after its interval was cut belongs to the next: nothing is lost, joined frames are
exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpu_app.meter.source import PacketSource
from dpu_app.wire.frame import CaptureKind, CaptureMode, ClockInfo, Frame, NicIdentity
from dpu_app.wire.tables import TABLE_DTYPES, Tables, WindowBlob
from pulse_native import Interval, Meter, PacketBatch

_PACKETS_PREFIX = "packets_"
_METER_LOSSES = (
    "flows_lost",
    "packets_lost",
    "records_lost",
    "windows_lost",
    "windows_averaged",
    "burst_gap_doublings",
    "marker_halvings",
)
_MAX_CLOCK_PAIRS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class MeteringConfig:
    """Settings of the measure stage; the meter refuses what it cannot do with ValueError."""

    interval_ns: int = 1_000_000_000
    window_ns: int = 8_000
    burst_gap_ns: int = 50_000
    max_flows: int = 16_384
    idle_ns: int = 600_000_000_000
    window_budget_bytes: int = 5 << 20
    silent_frames: bool = False
    """Make a frame of an interval without packets too: it tells that the capture runs."""

    def __post_init__(self) -> None:
        if self.interval_ns < 1_000_000:
            raise ValueError(f"interval_ns is {self.interval_ns}, must be at least 1000000")


class Metering:
    """The meter of one NIC and life of its process; feed it in the order of capture."""

    def __init__(
        self,
        nic: NicIdentity,
        boot_id: str,
        mode: CaptureMode | None = None,
        clock: ClockInfo | None = None,
        config: MeteringConfig | None = None,
    ) -> None:
        self._nic = nic
        self._boot_id = boot_id
        self._mode = mode or CaptureMode()
        self._clock = clock or ClockInfo("unknown")
        self._config = config or MeteringConfig()
        self._meter = Meter(
            window_ns=self._config.window_ns,
            burst_gap_ns=self._config.burst_gap_ns,
            max_flows=self._config.max_flows,
            idle_ns=self._config.idle_ns,
            steered=self._mode.kind is CaptureKind.STEERED,
            sample_shift=self._mode.sample_shift,
            window_budget_bytes=self._config.window_budget_bytes,
        )
        self._sequence = 0
        self._begin_ns: int | None = None
        self._last_ns = 0
        self._losses_seen: dict[str, int] = {}
        self._losses_told: dict[str, int] = {}
        self._clock_set_back = 0
        self._frames_dropped = 0
        self._frames_dropped_told = 0
        self._counters: dict[str, int] = {}
        self._clock_pairs: list[tuple[int, int]] = []

    def feed(self, batch: PacketBatch) -> Iterator[Frame]:
        """Take a batch; yield the frames of the intervals that it completes. Exhaust the iterator."""
        if len(batch) == 0:
            return
        times = batch.ns
        yield from self._follow_clock_back(int(times[0]))
        at = 0
        while at < len(batch):
            if self._begin_ns is None:
                self._begin_ns = self._last_ns = self._aligned(int(times[at]))
            taken = self._meter.update(batch, at, self._begin_ns + self._config.interval_ns)
            if taken > at:
                self._last_ns = max(self._last_ns, int(times[at:taken].max()))
            if taken < len(batch):
                yield from self._cut()
                self._begin_ns = self._aligned(int(times[taken]))
            at = taken

    def advance(self, now_ns: int) -> Iterator[Frame]:
        """Tell the time of the capture's clock when no packet does; yield the frame that it completes.

        What the last frame covers reaches up to here: that the capture still ran is known.
        """
        if self._begin_ns is None:
            return
        if now_ns >= self._begin_ns + self._config.interval_ns:
            yield from self._cut()
            self._begin_ns = self._aligned(now_ns)
        self._last_ns = max(self._last_ns, now_ns)

    def finish(self) -> Iterator[Frame]:
        """Yield the last frame, marked `final`, with the messages that have not ended.

        Without any packet there is no frame.
        """
        if self._begin_ns is None:
            return
        end_ns = min(self._begin_ns + self._config.interval_ns, max(self._last_ns, self._begin_ns) + 1)
        yield self._frame(self._meter.finish(self._begin_ns, end_ns), final=True)
        self._begin_ns = None

    def note_losses(self, losses: Mapping[str, int]) -> None:
        """Tell what the capture has lost so far; the next frame carries what is new."""
        self._losses_seen = dict(losses)

    def note_frames_dropped(self, total: int) -> None:
        """Tell how many frames so far never reached the controller; the next one carries what is new."""
        self._frames_dropped = total

    def note_clock(self, clock: ClockInfo) -> None:
        """Tell what drives the clock of the stamps from now on."""
        self._clock = clock

    def note_counters(self, counters: Mapping[str, int]) -> None:
        """Tell the device's counters, for the next frame."""
        self._counters = dict(counters)

    def note_clock_pair(self, nic_ns: int, system_ns: int) -> None:
        """Tell a reading of both clocks, for the next frame."""
        if len(self._clock_pairs) < _MAX_CLOCK_PAIRS_KEPT:
            self._clock_pairs.append((nic_ns, system_ns))

    def _aligned(self, ns: int) -> int:
        return ns // self._config.interval_ns * self._config.interval_ns

    def _follow_clock_back(self, ns: int) -> Iterator[Frame]:
        # Disorder is small. A clock that was set back would otherwise fill one interval for hours.
        if self._begin_ns is not None and ns < self._begin_ns - self._config.interval_ns:
            yield from self._cut()
            self._begin_ns = self._aligned(ns)
            self._last_ns = self._begin_ns
            self._clock_set_back = 1  # for the interval that begins here

    def _cut(self) -> Iterator[Frame]:
        assert self._begin_ns is not None
        interval = self._meter.cut(self._begin_ns, self._begin_ns + self._config.interval_ns)
        if self._config.silent_frames or any(interval.counters.values()) or len(interval.messages):
            yield self._frame(interval, final=False)

    def _frame(self, interval: Interval, *, final: bool) -> Frame:
        counters = interval.counters
        frame = Frame(
            nic=self._nic,
            boot_id=self._boot_id,
            sequence=self._sequence,
            begin_ns=interval.begin_ns,
            end_ns=interval.end_ns,
            clock=self._clock,
            clock_pairs=tuple(self._clock_pairs),
            mode=self._mode,
            losses=self._new_losses() | {name: counters[name] for name in _METER_LOSSES if counters[name]},
            packets={
                name.removeprefix(_PACKETS_PREFIX): count
                for name, count in counters.items()
                if name.startswith(_PACKETS_PREFIX) and name not in _METER_LOSSES and count
            },
            counters=self._counters,
            tables=tables_of(interval),
            final=final,
        )
        self._sequence += 1
        self._clock_set_back = 0
        self._counters = {}
        self._clock_pairs.clear()
        return frame

    def _new_losses(self) -> dict[str, int]:
        # A count that goes back was reset: it says nothing about what is new.
        new = {
            f"capture_{name}": count - self._losses_told.get(name, 0)
            for name, count in self._losses_seen.items()
            if count > self._losses_told.get(name, 0)
        }
        self._losses_told = dict(self._losses_seen)
        if self._clock_set_back:
            new["clock_set_back"] = self._clock_set_back
        if self._frames_dropped > self._frames_dropped_told:
            new["frames_dropped"] = self._frames_dropped - self._frames_dropped_told
            self._frames_dropped_told = self._frames_dropped
        return new


def measure(
    source: PacketSource,
    nic: NicIdentity,
    boot_id: str,
    *,
    clock: ClockInfo | None = None,
    config: MeteringConfig | None = None,
) -> Iterator[Frame]:
    """Yield the frames of a source until it ends; the last is marked `final`."""
    metering = Metering(nic, boot_id, source.mode, clock, config)
    for batch in source.batches():
        metering.note_losses(source.losses())
        yield from metering.feed(batch)
    metering.note_losses(source.losses())
    yield from metering.finish()


def tables_of(interval: Interval) -> Tables:
    """Return the tables of a frame that hold what the meter cut."""
    arrays: dict[str, Any] = {name: getattr(interval, name) for name in TABLE_DTYPES}
    windows = WindowBlob(interval.begin_ns, interval.window_ns, series=interval.series)
    return Tables.of(arrays, windows)
