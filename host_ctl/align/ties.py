# SPDX-License-Identifier: Apache-2.0
"""How the times of components relate that no packet connects: by PTP's claim, or by the system clocks.

Neither moves any time. They say how far apart two components are, and how well that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from host_ctl.align.clock import Between, NicClock
from host_ctl.ingest.series import NicSeries

PTP = "ptp"
_LEAST_COARSE_NS = 50_000.0
_LONE_COARSE_NS = 500_000.0
_SIGMAS = 3.0
_MAD_TO_SIGMA = 1.4826
_FEW = 3


def relate_components(
    series: Sequence[NicSeries], clocks: Sequence[NicClock]
) -> tuple[list[NicClock], list[str]]:
    """The clocks with what their components share with others, and remarks on claims that do not hold."""
    between: dict[int, Between] = {}
    remarks = []
    for component in sorted({c.component for c in clocks}):
        members = [(s, c) for s, c in zip(series, clocks, strict=True) if c.component == component]
        found, remark = _by_claim(members)
        remarks += [remark] if remark else []
        found = found or _by_system_clocks(members)
        if found is not None:
            between[component] = found
    return [replace(c, between=between.get(c.component)) for c in clocks], remarks


def _by_claim(members: Sequence[tuple[NicSeries, NicClock]]) -> tuple[Between | None, str | None]:
    """The time that PTP spreads: a NIC shows it itself, to within the error that is claimed."""
    told = [(s, c) for s, c in members if s.clock.source == PTP and s.clock.error_ns is not None]
    if not told:
        return None, None
    offsets = np.array([int(c.to_common(np.array([s.first_ns]))[0]) - s.first_ns for s, c in told])
    claimed = max(float(s.clock.error_ns or 0) for s, _ in told)
    middle = float(np.median(offsets))
    away = np.abs(offsets - middle)
    if away.max() > 2 * claimed + max(c.bound_ns or 0.0 for _, c in told):
        worst, _ = told[int(np.argmax(away))]
        return None, (
            f"{worst.name} claims PTP time to within {claimed:.0f} ns, and its packets show it"
            f" {away.max() / 1e3:.1f} us from others that do: the claims of its rail are not used"
        )
    return Between("ptp", middle, claimed + float(away.max())), None


def _by_system_clocks(members: Sequence[tuple[NicSeries, NicClock]]) -> Between | None:
    """The system clocks' time, from readings of both clocks.

    The system clocks of several machines err each in its own way: their spread tells by how much. Common
    time has the drift of one NIC: what that makes of the run is part of the uncertainty.
    """
    by_machine: dict[str, list[float]] = {}
    sways = []
    for one, clock in members:
        if one.clock_pairs:
            pairs = np.array(one.clock_pairs, dtype=np.int64)
            ahead = clock.to_common(pairs[:, 0]) - pairs[:, 1]
            by_machine.setdefault(one.machine, []).append(float(np.median(ahead)))
            sways.append(float(ahead.max() - ahead.min()) / 2)
    if not by_machine:
        return None
    offsets = np.array([np.median(values) for values in by_machine.values()])
    middle, sway = float(np.median(offsets)), float(np.median(sways))
    if len(offsets) < _FEW:
        return Between("coarse", middle, _LONE_COARSE_NS + sway)
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(offsets - middle)))
    return Between("coarse", middle, max(_LEAST_COARSE_NS, _SIGMAS * spread / len(offsets) ** 0.5) + sway)
