# SPDX-License-Identifier: Apache-2.0
"""Carries the clocks that one look has found to the next ones: finding them costs as much as reconstruction.

Clocks are straight for some seconds. Packets that would have arrived before they left tell when one is not,
or was set; then, and after a while in any case, they are found anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from host_ctl.align.clock import Alignment
from host_ctl.ingest.series import NicSeries
from host_ctl.live.window import Window
from host_ctl.reconstruct.transfers import MISSING, Traffic

_MOST_NS = 10_000_000_000
_SHARE = 0.5  # of the traffic that clocks were found in
_WANDER = 50e-9
"""How fast a clock may leave the line that was found for it."""
_SOME = 1e-3
_JITTER_NS = 1_000


class CarriedClocks:
    """The alignment of an earlier look, for as long as it may be used."""

    def __init__(self) -> None:
        self._alignment: Alignment | None = None
        self._lives: tuple[tuple[str, ...], ...] = ()
        self._end_ns = 0
        self._until_ns = 0
        self.found = 0

    def carry(self, window: Window, series: Sequence[NicSeries]) -> Alignment | None:
        """The clocks for a later window, None when they must be found anew."""
        if self._alignment is None or window.end_ns > self._until_ns or _lives(series) != self._lives:
            return None
        further_ns = (window.end_ns - self._end_ns) * _WANDER
        clocks = tuple(
            replace(
                clock,
                uncertainty_ns=None if clock.uncertainty_ns is None else clock.uncertainty_ns + further_ns,
                bound_ns=None if clock.bound_ns is None else clock.bound_ns + further_ns,
            )
            for clock in self._alignment.clocks
        )
        return Alignment(clocks, ())

    def keep(self, window: Window, series: Sequence[NicSeries], found: Alignment, *, related: bool) -> None:
        """Take the clocks that a look has found; ``related``: also those of rails that never meet."""
        self.found += 1
        self._alignment = found if related else None
        self._lives = _lives(series)
        self._end_ns = window.end_ns
        seen_ns = min((one.last_ns - one.first_ns for one in series), default=0)
        self._until_ns = window.end_ns + min(_MOST_NS, round(_SHARE * seen_ns))


def _lives(series: Sequence[NicSeries]) -> tuple[tuple[str, ...], ...]:
    return tuple((one.name, *sorted({frame.boot_id for frame in one.frames})) for one in series)


def contradicted(traffic: Traffic) -> bool:
    """Whether some transfers would have arrived before they left, by more than clocks are uncertain."""
    rows = traffic.transfers
    seen = rows[(rows["tx_start"] != MISSING) & (rows["rx_start"] != MISSING)]
    if not len(seen):
        return False
    uncertain = np.array([clock.uncertainty_ns or 0.0 for clock in traffic.clocks])
    of_link = [
        sum(uncertain[traffic.endpoints[end].series or 0] for end in (link.src, link.dst))
        for link in traffic.links
    ]
    allowed = np.array(of_link)[seen["link"]] + _JITTER_NS
    early = seen["tx_start"] - seen["rx_start"] > allowed
    return bool(early.mean() > _SOME)
