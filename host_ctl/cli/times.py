# SPDX-License-Identifier: Apache-2.0
"""Times on the command line: ISO 8601, or integer nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from host_ctl.errors import UsageError

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
