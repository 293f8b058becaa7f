# SPDX-License-Identifier: Apache-2.0
"""One packet on the wire, and the opcodes of the reliable-connection transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.network import Nic
    from sim.transport import Message

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM = 0x06, 0x07, 0x08, 0x09
WRITE_ONLY, WRITE_ONLY_IMM = 0x0A, 0x0B
ACK, ATOMIC_ACK, FETCH_ADD = 0x11, 0x12, 0x14
CNP = 0x81

PSN_MASK = 0xFFFFFF
SYNDROME_ACK = 0x1F
SYNDROME_NAK_SEQUENCE = 0x60

WITH_RETH = frozenset({WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM})
WITH_IMMEDIATE = frozenset({WRITE_LAST_IMM, WRITE_ONLY_IMM})
WITH_AETH = frozenset({ACK, ATOMIC_ACK})
RESPONSES = frozenset({ACK, ATOMIC_ACK, CNP})

_HEADER_BYTES = {
    **dict.fromkeys((SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_MIDDLE, WRITE_LAST), 12),
    **dict.fromkeys((WRITE_FIRST, WRITE_ONLY), 12 + 16),
    WRITE_LAST_IMM: 12 + 4,
    WRITE_ONLY_IMM: 12 + 16 + 4,
    ACK: 12 + 4,
    ATOMIC_ACK: 12 + 4 + 8,
    FETCH_ADD: 12 + 28,
    CNP: 12 + 16,
}


def transport_header_bytes(opcode: int) -> int:
    """Bytes of BTH and extension headers of ``opcode``."""
    return _HEADER_BYTES[opcode]


@dataclass(slots=True, eq=False)
class Packet:
    """One packet in flight.

    ``index`` is its unwrapped sequence number on the connection; ``psn`` is what the header shows.
    ``size`` is the frame without FCS. ``ce`` is set by a switch, so only the receiving tap shows it.
    """

    source: Nic
    target: Nic
    dest_qpn: int
    sport: int
    opcode: int
    psn: int
    index: int
    size: int
    payload: int
    ip_id: int
    ack_request: bool = False
    message: Message | None = None
    aeth: int = 0
    last: bool = False
    repeat: bool = False
    ce: bool = False
