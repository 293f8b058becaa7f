# SPDX-License-Identifier: Apache-2.0
"""Record layouts of a frame's sections, one NumPy dtype per section.

Each dtype equals the C++ struct of the same name in ``native/include/pulse/records.hpp``;
a test compares the two. Times are nanoseconds of the capturing NIC's clock, sizes are bytes.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

NO_FLOW = 0xFFFFFFFF
CONTROL_MAX_BYTES = 512


class EventKind(IntEnum):
    """What an event record tells; values are part of the frame format."""

    REPEAT = 1
    GAP = 2
    LATE = 3
    NAK_SEQUENCE = 4
    NAK_INVALID = 5
    NAK_ACCESS = 6
    NAK_OPERATIONAL = 7
    RNR = 8
    CNP = 9
    ECN_CE = 10
    RESTART = 11


class MarkerKind(IntEnum):
    """Which packet a clock marker was taken from."""

    FIRST = 1
    ONLY = 2
    CONTROL = 3
    ACK = 4
    NAK = 5
    DATA = 6


class HistogramKind(IntEnum):
    """What a histogram cell counts."""

    GAP_NS = 1
    MESSAGE_BYTES = 2
    ACK_NS = 3


class MessageFlag(IntFlag):
    """How a message or control record was seen."""

    IMMEDIATE = 1
    NO_START = 2
    NO_END = 4
    REPEATED = 8
    LENGTH_KNOWN = 16


FLOW = np.dtype(
    [
        ("first_ns", "<i8"),
        ("last_ns", "<i8"),
        ("packets", "<u8"),
        ("wire_bytes", "<u8"),
        ("data_bytes", "<u8"),
        ("repeat_bytes", "<u8"),
        ("src", "u1", (16,)),
        ("dst", "u1", (16,)),
        ("flow", "<u4"),
        ("dest_qpn", "<u4"),
        ("reverse_flow", "<u4"),
        ("reverse_confidence", "<f4"),
        ("data_packets", "<u4"),
        ("repeat_packets", "<u4"),
        ("gap_psns", "<u4"),
        ("late_packets", "<u4"),
        ("messages", "<u4"),
        ("controls", "<u4"),
        ("read_requests", "<u4"),
        ("acks", "<u4"),
        ("duplicate_acks", "<u4"),
        ("nak_sequence", "<u4"),
        ("nak_other", "<u4"),
        ("rnr", "<u4"),
        ("cnp", "<u4"),
        ("ecn_ce", "<u4"),
        ("lives", "<u4"),
        ("psn_first", "<u4"),
        ("psn_next", "<u4"),
        ("psn_acked", "<u4"),
        ("udp_sport", "<u2"),
        ("family", "u1"),
        ("transport", "u1"),
        ("seen", "<u4"),
    ]
)

MESSAGE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("bytes", "<u8"),
        ("flow", "<u4"),
        ("psn", "<u4"),
        ("packets", "<u4"),
        ("immediate", "<u4"),
        ("opcode", "u1"),
        ("flags", "u1"),
        ("life", "<u2"),
        ("longest_gap_ns", "<u4"),
    ]
)

CONTROL = np.dtype(
    [
        ("ns", "<i8"),
        ("flow", "<u4"),
        ("psn", "<u4"),
        ("bytes", "<u4"),
        ("immediate", "<u4"),
        ("opcode", "u1"),
        ("flags", "u1"),
        ("life", "<u2"),
        ("reserved", "<u4"),
    ]
)

BURST = np.dtype(
    [
        ("first_ns", "<i8"),
        ("last_ns", "<i8"),
        ("bytes", "<u8"),
        ("flow", "<u4"),
        ("packets", "<u4"),
        ("longest_gap_ns", "<i8"),
    ]
)

MARKER = np.dtype(
    [
        ("ns", "<i8"),
        ("flow", "<u4"),
        ("psn", "<u4"),
        ("msn", "<u4"),
        ("kind", "u1"),
        ("reserved", "u1"),
        ("life", "<u2"),
    ]
)

EVENT = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("flow", "<u4"),
        ("psn", "<u4"),
        ("count", "<u4"),
        ("kind", "u1"),
        ("reserved", "u1", (3,)),
    ]
)

WINDOW = np.dtype(
    [("start_ns", "<i8"), ("flow", "<u4"), ("bytes", "<u4"), ("packets", "<u4"), ("reserved", "<u4")]
)

PIECE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("bytes", "<u8"),
        ("flow", "<u4"),
        ("packets", "<u4"),
        ("windows", "<u4"),
        ("reserved", "<u4"),
    ]
)

HISTOGRAM = np.dtype([("flow", "<u4"), ("count", "<u4"), ("kind", "u1"), ("cell", "u1"), ("reserved", "<u2")])

PACKET = np.dtype(
    [
        ("ns", "<i8"),
        ("src", "u1", (16,)),
        ("dst", "u1", (16,)),
        ("wire_bytes", "<u4"),
        ("payload_bytes", "<u4"),
        ("dest_qpn", "<u4"),
        ("psn", "<u4"),
        ("dma_bytes", "<u4"),
        ("immediate", "<u4"),
        ("msn", "<u4"),
        ("src_qpn", "<u4"),
        ("udp_sport", "<u2"),
        ("opcode", "u1"),
        ("syndrome", "u1"),
        ("ecn", "u1"),
        ("ack_req", "u1"),
        ("family", "u1"),
        ("outcome", "u1"),
    ]
)
