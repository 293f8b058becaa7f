# SPDX-License-Identifier: Apache-2.0
"""Rates with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of Wilson's score, which is fair near 0 and 1 and with few runs."""
        return wilson(self.hits, self.of)

    def text(self) -> str:
        """As tables show it."""
        if not self.of:
            return "-"
        low, high = self.interval
        return f"{self.hits / self.of:.1%} ({self.hits} of {self.of}; {low:.1%} to {high:.1%})"

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain data."""
        low, high = self.interval
        return {"hits": self.hits, "n": self.of, "rate": self.value, "low": low, "high": high}


def rate(flags: Iterable[bool]) -> Rate:
    """The share of true flags."""
    values = list(flags)
    return Rate(sum(values), len(values))


def wilson(hits: int, of: int, z: float = _Z95) -> tuple[float, float]:
    """Wilson's score interval of a share; from 0 to 1 when nothing was tried."""
    if of == 0:
        return 0.0, 1.0
    share = hits / of
    scale = 1.0 + z * z / of
    middle = (share + z * z / (2 * of)) / scale
    half = z * math.sqrt(share * (1.0 - share) / of + z * z / (4 * of * of)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)
