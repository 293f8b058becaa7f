# SPDX-License-Identifier: Apache-2.0
"""The thread that captures and measures: from packets to encoded frames in the spool."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dpu_app.capture.afpacket import AfPacketSource
from dpu_app.capture.clocks import ClockState, StampClock
from dpu_app.capture.counters import interface_losses, read_counters
from dpu_app.meter.metering import Metering
from dpu_app.service.spool import Spool
from dpu_app.wire.errors import PulseWireError
from dpu_app.wire.frame import Frame, encode_frame

_LOG = logging.getLogger(__name__)
# Packets may lie in the rings for this long: an interval is over only then.
_SETTLE_NS = 100_000_000
_NOTE_CLOCK_S = 0.25


@dataclass(frozen=True, slots=True)
class MeasuringStatus:
    """How the measurement goes; counts are of the life of the process."""

    frames: int
    frame_bytes: int
    last_sequence: int | None
    capture: dict[str, int]
    interface_losses: int
    clock: str
    clock_error_ns: int | None
    clock_steps: int
    tai_offset_s: int | None


@dataclass(slots=True)
class _Told:
    frames: int = 0
    frame_bytes: int = 0
    last_sequence: int | None = None


class Measuring:
    """Runs in a thread of its own from `start` to `stop`; `failure` says why it ended early.

    `on_frame` is called in that thread after a frame has been put into the spool.
    """

    def __init__(
        self,
        source: AfPacketSource,
        metering: Metering,
        clock: StampClock,
        spool: Spool,
        interface: str,
        rdma_device: str | None,
        on_frame: Callable[[], None],
    ) -> None:
        self._source = source
        self._metering = metering
        self._clock = clock
        self._spool = spool
        self._interface = interface
        self._rdma_device = rdma_device
        self._on_frame = on_frame
        self._thread = threading.Thread(target=self._work, name="measuring")
        self._told = _Told()
        self._not_encoded = 0
        self._state: ClockState = clock.read()
        self._interface_losses = _GrowingCount()
        self._interface_losses.see(interface_losses(interface))
        self._next_note_s = 0.0
        self.failure: BaseException | None = None
        self.last_alive_s = time.monotonic()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Measure what has been captured, make the final frame, and end."""
        self._source.stop()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work."""
        return self._thread.is_alive()

    def status(self) -> MeasuringStatus:
        """How it goes."""
        state = self._state
        return MeasuringStatus(
            self._told.frames,
            self._told.frame_bytes,
            self._told.last_sequence,
            self._source.counts(),
            self._interface_losses.total,
            state.info.source,
            state.info.error_ns,
            state.steps,
            state.tai_offset_s,
        )

    def _work(self) -> None:
        try:
            for batch in self._source.batches():
                self.last_alive_s = time.monotonic()
                if self.last_alive_s >= self._next_note_s:
                    self._note_device()
                self._note_losses()
                if len(batch):
                    self._keep(self._metering.feed(batch))
                else:
                    self._keep(self._metering.advance(self._clock.now_ns() - _SETTLE_NS))
            self._note_device()
            self._note_losses()
            self._keep(self._metering.finish())
        except BaseException as error:  # noqa: BLE001  told to the main thread, which ends the process
            self.failure = error
        finally:
            self._on_frame()

    def _note_losses(self) -> None:
        self._metering.note_losses({**self._source.losses(), "interface": self._interface_losses.total})
        counts = self._spool.counts()
        gone = counts.dropped + counts.refused + counts.damaged + self._not_encoded
        self._metering.note_frames_dropped(gone)

    def _note_device(self) -> None:
        """Read clocks and counters; several times per interval, because a frame may be cut at any time."""
        self._next_note_s = time.monotonic() + _NOTE_CLOCK_S
        self._interface_losses.see(interface_losses(self._interface))
        before = self._state
        state = self._state = self._clock.read()
        if state.steps != before.steps:
            _LOG.warning("the clock of the stamps has been set; frames from here on are on another time")
        self._metering.note_clock(state.info)
        self._metering.note_clock_pair(state.reading.nic_ns, state.reading.system_ns)
        counters = read_counters(self._interface, self._rdma_device)
        counts = self._source.counts()
        for name in ("freezes", "times_down", "times_gone"):
            counters[f"capture_{name}"] = counts.get(name, 0)
        counters["clock_steps"] = state.steps
        counters["clock_reading_width_ns"] = state.reading.width_ns
        if state.tai_offset_s is not None:
            counters["clock_tai_offset_s"] = state.tai_offset_s
        self._metering.note_counters(counters)

    def _keep(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            try:
                data = encode_frame(frame)
            except PulseWireError as error:
                self._not_encoded += 1
                _LOG.error("frame %d is lost: %s", frame.sequence, error)
                continue
            self._spool.put(frame.boot_id, frame.sequence, data)
            self._told.frames += 1
            self._told.frame_bytes += len(data)
            self._told.last_sequence = frame.sequence
            self._on_frame()


class _GrowingCount:
    """A device's counter that may start anew: the total of what it has counted since first seen."""

    def __init__(self) -> None:
        self._last: int | None = None
        self.total = 0

    def see(self, value: int) -> None:
        """Take a reading."""
        if self._last is not None:
            # A counter that went back began at zero again.
            self.total += value - self._last if value >= self._last else value
        self._last = value
