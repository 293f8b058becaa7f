# SPDX-License-Identifier: Apache-2.0
"""Packets of a Linux network interface, through AF_PACKET rings.

The interface may go down, or vanish and come back, while the capture runs: it goes on, and counts.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpu_app.wire.frame import CaptureKind, CaptureMode
from pulse_native import PacketBatch
from pulse_native._live import LiveCapture

_READ_MS = 50
_CHECK_S = 0.5
_FEW_PACKETS, _GATHER_S = 2048, 0.02
_GONE = (errno.ENODEV, errno.ENXIO, errno.ENETDOWN)


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """Settings of a capture; `ring_bytes` is the memory of each of the `rings`."""

    interface: str
    steered: bool = False
    rings: int = 1
    ring_bytes: int = 16 << 20
    block_bytes: int = 1 << 18
    promiscuous: bool = True
    outgoing: bool = True

    def __post_init__(self) -> None:
        if self.block_bytes < 4096 or self.block_bytes & (self.block_bytes - 1):
            raise ValueError(f"block_bytes is {self.block_bytes}, must be a power of two from 4096 up")
        if self.ring_bytes < 2 * self.block_bytes:
            raise ValueError(f"ring_bytes is {self.ring_bytes}, must hold two blocks of {self.block_bytes}")
        if not 1 <= self.rings <= 64:
            raise ValueError(f"rings is {self.rings}, must be 1 to 64")


class AfPacketSource:
    """A `PacketSource` that ends when `stop` is called. Opening raises OSError with the reason."""

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config
        self._capture: LiveCapture | None = self._open()
        self._hardware_stamps = self._capture.hardware_stamps
        # What captures that are over have counted: an interface that came back is captured anew.
        self._before: Counter[str] = Counter()
        self._next_check = time.monotonic() + _CHECK_S
        self._stopped = False

    @property
    def mode(self) -> CaptureMode:
        """Which packets are taken."""
        return CaptureMode(CaptureKind.STEERED if self._config.steered else CaptureKind.ALL)

    @property
    def hardware_stamps(self) -> bool:
        """Whether stamps are of the NIC's clock, otherwise of the system's."""
        return self._hardware_stamps

    def stop(self) -> None:
        """Make `batches` end after what has been captured; from any thread or signal handler."""
        self._stopped = True

    def batches(self) -> Iterator[PacketBatch]:
        """Yield batches; an empty one says that a moment has passed without packets."""
        while not self._stopped:
            capture = self._attached()
            if capture is None:
                time.sleep(_READ_MS / 1000)
                yield PacketBatch()
            else:
                batch = capture.read(_READ_MS)
                yield batch
                if 0 < len(batch) < _FEW_PACKETS:
                    # More packets share what a batch costs besides them; the rings have room for longer.
                    time.sleep(_GATHER_S)
        if self._capture is not None:
            # What the rings hold; a ring that fills as fast as it is read must not keep this going.
            for _ in range(64):
                batch = self._capture.read(_READ_MS)
                if len(batch) == 0:
                    break
                yield batch

    def counts(self) -> dict[str, int]:
        """Return what was captured and lost so far, over all captures; each count only grows."""
        total = Counter(self._before)
        if self._capture is not None:
            total.update(self._capture.counts())
        return dict(total)

    def losses(self) -> Mapping[str, int]:
        """Return packets that passed and were not taken: the ring was full, or they had no hardware stamp."""
        counts = self.counts()
        return {"ring": counts.get("dropped", 0), "unstamped": counts.get("unstamped", 0)}

    def close(self) -> None:
        """Give the interface back."""
        self._end_capture()

    def _open(self) -> LiveCapture:
        config = self._config
        return LiveCapture(
            config.interface,
            steered=config.steered,
            rings=config.rings,
            block_bytes=config.block_bytes,
            blocks=config.ring_bytes // config.block_bytes,
            promiscuous=config.promiscuous,
            outgoing=config.outgoing,
        )

    def _attached(self) -> LiveCapture | None:
        """Return the capture, opened anew when the interface has come back; None while it is gone."""
        if time.monotonic() < self._next_check:
            return self._capture
        self._next_check = time.monotonic() + _CHECK_S
        if self._capture is not None and not self._capture.is_attached():
            self._end_capture()
            self._before["times_gone"] += 1
        if self._capture is None:
            try:
                capture = self._open()
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                return None
            if capture.hardware_stamps is not self._hardware_stamps:
                capture.close()
                raise OSError(
                    errno.EIO,
                    f"capture on {self._config.interface}: the interface came back with another kind of time "
                    "stamps; start the service again",
                )
            self._capture = capture
        return self._capture

    def _end_capture(self) -> None:
        capture, self._capture = self._capture, None
        if capture is not None:
            self._before.update(capture.counts())
            capture.close()
