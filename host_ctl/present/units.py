# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them: three digits and a unit that fits."""

from __future__ import annotations

from datetime import UTC, datetime

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_EARLIEST_REAL_NS = (
    1_000_000_000 * 1_000_000_000
)  # clocks that count from a start are below, those of a day above


def duration(ns: float) -> str:
    """A length of time: ``12.3 ms``."""
    if ns == 0:
        return "0"
    scale, unit = next(((s, u) for s, u in _TIMES if abs(ns) >= s), _TIMES[-1])
    return f"{digits(ns / scale)} {unit}"


def digits(value: float) -> str:
    """Three digits that count, with thousands apart."""
    if value == 0:
        return "0"
    size = abs(value)
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{places}f}"


def moment(ns: int) -> str:
    """A time of a clock: as UTC where it counts from 1970, in seconds of that clock otherwise."""
    if ns < _EARLIEST_REAL_NS:
        return f"{ns / 1e9:.6f} s of the captures' clock"
    when = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    return f"{when:%Y-%m-%d %H:%M:%S}.{ns % 1_000_000_000 // 1000:06d} UTC"


def size(count: int) -> str:
    """Bytes: ``4.2 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{digits(value)} {unit}"
        value /= 1024
    return f"{digits(value)} GiB"


def share(value: float) -> str:
    """A share as per cent."""
    return f"{value:.0%}"
