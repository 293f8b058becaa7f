# SPDX-License-Identifier: Apache-2.0
"""What a CaptureReader tells about a file."""

from __future__ import annotations

from typing import TypedDict


class CaptureStats(TypedDict):
    """What was read of a capture file so far, and what could not be used.

    Times are nanoseconds since 1970 on the capture's clock.
    """

    packets: int
    """Handed out in batches."""
    bytes: int
    """Of the file, fed so far."""
    truncated_bytes: int
    """Of an incomplete item at the end of the file; known after ``finish()``."""
    zero_length: int
    """Packets of which no byte was captured."""
    bad_timestamps: int
    """Packets whose time is negative, overflows or has an impossible fraction."""
    untimed: int
    """Packets of the pcapng simple kind, which carry no time."""
    interface_drops: int
    """Packets that the capture itself lost, as pcapng interface statistics tell."""
    skipped_link_types: dict[int, int]
    """Packets of link types other than Ethernet, SLL and SLL2, by LINKTYPE value."""
    first_ns: int | None
    last_ns: int | None
    statistics_ns: int | None
    """Latest interface statistics: the capture still ran at that time."""
    corrupt: str | None
    """Why and at which byte reading stopped; packets handed out before stay valid."""
