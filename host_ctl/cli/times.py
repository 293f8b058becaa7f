# SPDX-License-Identifier: Apache-2.0
"""Times on the command line: ISO 8601, integer nanoseconds, and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from host_ctl.errors import UsageError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str, option: str) -> int:
    """Return nanoseconds since 1970; UTC where no zone is given. Raises UsageError, naming the option."""
    try:
        ns = int(text)
    except ValueError:
        ns = _iso_ns(text, option)
    if not 0 <= ns < 1 << 63:
        raise UsageError(f"{option} {text}: lies outside of what 64-bit nanoseconds since 1970 can say")
    return ns


def _iso_ns(text: str, option: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: expected ISO 8601 or integer nanoseconds") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000


def iso(ns: int) -> str:
    """A time to the second, UTC."""
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(ns: int) -> str:
    """A duration in its largest unit, as 3 h."""
    fitting = [unit for unit, seconds in _UNITS_S.items() if ns >= 2 * seconds * 10**9]
    unit = fitting[-1] if fitting else "s"
    return f"{ns / (_UNITS_S[unit] * 10**9):.0f} {'min' if unit == 'm' else unit}"


def duration_s(text: str, option: str) -> float:
    """Return seconds of a duration as 90s, 30m, 2h or 1d. Raises UsageError, naming the option."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    if match is None:
        raise UsageError(f"{option} {text}: expected a duration as 90s, 30m, 2h or 1d")
    return float(match[1]) * _UNITS_S[match[2]]
