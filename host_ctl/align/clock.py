# SPDX-License-Identifier: Apache-2.0
"""The clock of one NIC against the common one, and what is known of its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Basis = Literal["measured", "ptp", "coarse", "coupled", "none"]


@dataclass(frozen=True, slots=True)
class ClockPiece:
    """From ``from_ns`` of the NIC on: nic time = common time + offset_ns + drift * (nic time - from_ns)."""

    from_ns: int
    offset_ns: float
    drift_ppm: float


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A clock that was set: by ``size_ns`` at ``at_ns``, on the NIC's own clock before the step."""

    at_ns: int
    size_ns: float


@dataclass(frozen=True, slots=True)
class Between:
    """How the time of a clock's component relates to that of others: common time = shared time + offset.

    ``basis`` says what the shared time is: the one that PTP claims to spread (``ptp``), or that of the system
    clocks (``coarse``). Two components with the same basis are ``offset_ns`` apart, to within the sum of both
    uncertainties. No time is moved by it.
    """

    basis: Basis
    offset_ns: float
    uncertainty_ns: float


@dataclass(frozen=True, slots=True)
class NicClock:
    """nic time = common time + offset_ns + drift_ppm * 1e-6 * (nic time - origin_ns).

    Where one straight line does not describe the clock, ``pieces`` do, in the order of the NIC's time, and
    offset and drift are those of its beginning. ``bound_ns`` follows from causality alone;
    ``uncertainty_ns`` assumes an asymmetry of the two directions of at most the configured A. Both are None
    while nothing ties the clock to another, and both hold within the ``component``, against its first clock.
    ``between`` says how the component relates to others. ``coupled_ns``, where it is given, says how well
    the constant between the component and another is known that was only assumed: good for numbering
    iterations, not for charges.
    """

    offset_ns: float
    drift_ppm: float
    origin_ns: int
    uncertainty_ns: float | None
    bound_ns: float | None
    basis: Basis
    component: int
    coupled_ns: float | None = None
    pieces: tuple[ClockPiece, ...] = ()
    steps: tuple[ClockStep, ...] = ()
    between: Between | None = None

    def to_common(self, ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """NIC times as times on the common clock (int64 ns)."""
        if not self.pieces:
            drifted = (ns - self.origin_ns) * (self.drift_ppm * 1e-6)
            return np.asarray(ns - np.int64(round(self.offset_ns)) - np.rint(drifted).astype(np.int64))
        begins = np.array([piece.from_ns for piece in self.pieces], dtype=np.int64)
        at = np.maximum(np.searchsorted(begins, ns, side="right") - 1, 0)
        offsets = np.array([round(piece.offset_ns) for piece in self.pieces], dtype=np.int64)
        drifts = np.array([piece.drift_ppm * 1e-6 for piece in self.pieces])
        drifted = (ns - begins[at]) * drifts[at]
        return np.asarray(ns - offsets[at] - np.rint(drifted).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Alignment:
    """One clock per NIC series, in the series' order, and the findings on the way."""

    clocks: tuple[NicClock, ...]
    warnings: tuple[str, ...]


def identity_clock(origin_ns: int, component: int) -> NicClock:
    """The clock of a NIC that nothing relates to any other: its own time is taken as it is."""
    return NicClock(0.0, 0.0, origin_ns, None, None, "none", component)
