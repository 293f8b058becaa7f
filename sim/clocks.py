# SPDX-License-Identifier: Apache-2.0
"""Each NIC's clock error and how its stamps come about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.spec import ClockSpec, TxStamp, stream

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NicClock:
    """A NIC's clock: shown = true + offset + drift x (true - start)."""

    offset_ns: int
    drift_ppm: float
    start_ns: int

    def show(self, true_ns: Times) -> Times:
        """What the clock shows at ``true_ns`` (int64 array, epoch nanoseconds)."""
        drift: Times = np.rint((true_ns - self.start_ns) * (self.drift_ppm * 1e-6)).astype(np.int64)
        shown: Times = true_ns + self.offset_ns + drift
        return shown


def draw_clock(spec: ClockSpec, seed: int, machine: int, rail: int, start_ns: int) -> NicClock:
    """The clock of one NIC, drawn within the bounds of ``spec``."""
    offset, drift = stream(seed, "clock", machine, rail).uniform(-1.0, 1.0, 2)
    return NicClock(int(offset * spec.offset_ns), float(drift * spec.drift_ppm), start_ns)


def stamp(
    true_ns: Times, sent: npt.NDArray[np.bool_], clock: NicClock, spec: ClockSpec, rng: np.random.Generator
) -> Times:
    """Stamps of a tap's packets.

    Received packets carry wire time; sent ones too, or with ``copy`` the later time at which their
    copy arrives in a queue that keeps its order. Stamps of one direction never run backwards.
    """
    seen = true_ns.copy()
    if spec.tx_stamp is TxStamp.COPY:
        delay = spec.copy_delay_ns + rng.exponential(max(1, spec.copy_jitter_ns), int(sent.sum())).astype(
            np.int64
        )
        seen[sent] += delay
    shown = clock.show(seen)
    if spec.jitter_ns:
        shown += np.rint(rng.normal(0.0, spec.jitter_ns, len(shown))).astype(np.int64)
    for direction in (sent, ~sent):
        shown[direction] = np.maximum.accumulate(shown[direction])
    return shown
