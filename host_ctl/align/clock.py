# SPDX-License-Identifier: Apache-2.0
"""The clock of one NIC against the common one, and what is known of its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Basis = Literal["measured", "ptp", "coarse", "coupled", "none"]


@dataclass(frozen=True, slots=True)
class NicClock:
    """nic time = common time + offset_ns + drift_ppm * 1e-6 * (nic time - origin_ns).

    ``bound_ns`` follows from causality alone; ``uncertainty_ns`` assumes an asymmetry of the two
    directions of at most the configured A. Both are None while nothing ties the clock to another, and both
    hold within the ``component``. ``coupled_ns``, where it is given, says how well the constant between the
    component and another is known that was only assumed: good for numbering iterations, not for charges.
    """

    offset_ns: float
    drift_ppm: float
    origin_ns: int
    uncertainty_ns: float | None
    bound_ns: float | None
    basis: Basis
    component: int
    coupled_ns: float | None = None

    def to_common(self, ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """NIC times as times on the common clock (int64 ns)."""
        drifted = (ns - self.origin_ns) * (self.drift_ppm * 1e-6)
        return np.asarray(ns - np.int64(round(self.offset_ns)) - np.rint(drifted).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Alignment:
    """One clock per NIC series, in the series' order, and the findings on the way."""

    clocks: tuple[NicClock, ...]
    warnings: tuple[str, ...]


def identity_clock(origin_ns: int, component: int) -> NicClock:
    """The clock of a NIC that nothing relates to any other: its own time is taken as it is."""
    return NicClock(0.0, 0.0, origin_ns, None, None, "none", component)
