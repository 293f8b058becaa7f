# SPDX-License-Identifier: Apache-2.0
"""Frames written field by field from the InfiniBand architecture's RoCEv2 annex: a second implementation."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM = 0x06, 0x07, 0x08, 0x09
WRITE_ONLY, WRITE_ONLY_IMM = 0x0A, 0x0B
ACK, ATOMIC_ACK, FETCH_ADD = 0x11, 0x12, 0x14
CNP = 0x81

ROCE_PORT = 4791
_TTL = 64
_CNP_TOS = 0xC0
_PAYLOAD = b"\xab"


@dataclass(frozen=True, slots=True)
class Style:
    """What all frames of a run have in common."""

    ipv6: bool = False
    vlan: int | None = None
    tos: int = 0x02
    migration_bit: bool = True
    partition_key: int = 0xFFFF

    @property
    def header_bytes(self) -> int:
        """Ethernet, VLAN tag, IP and UDP."""
        return 14 + (4 if self.vlan is not None else 0) + (40 if self.ipv6 else 20) + 8


@dataclass(frozen=True, slots=True)
class Node:
    """Addresses of a NIC."""

    mac: bytes
    ipv4: bytes
    ipv6: bytes


@dataclass(frozen=True, slots=True)
class NaivePacket:
    """What a frame says; ``extensions`` are the bytes between BTH and payload."""

    source: Node
    target: Node
    sport: int
    opcode: int
    dest_qpn: int
    psn: int
    ip_id: int = 0
    ack_request: bool = False
    marked: bool = False
    extensions: bytes = field(default=b"")
    payload_bytes: int = 0


def reth(address: int, key: int, length: int) -> bytes:
    """RDMA extended transport header."""
    return struct.pack(">QII", address, key, length)


def immediate(value: int) -> bytes:
    """Immediate data."""
    return struct.pack(">I", value)


def aeth(syndrome: int, msn: int) -> bytes:
    """ACK extended transport header."""
    return struct.pack(">I", syndrome << 24 | msn)


def atomic_eth(address: int, key: int, add: int = 1, compare: int = 0) -> bytes:
    """Atomic extended transport header."""
    return struct.pack(">QIQQ", address, key, add, compare)


def frame(packet: NaivePacket, style: Style) -> bytes:
    """The whole frame without its FCS."""
    pad = -packet.payload_bytes % 4
    flags = pad << 4 | (0x40 if style.migration_bit else 0)
    becn = 0x40 if packet.opcode == CNP else 0
    bth = struct.pack(
        ">BBHII", packet.opcode, flags, style.partition_key, becn << 24 | packet.dest_qpn,
        int(packet.ack_request) << 31 | packet.psn,
    )  # fmt: skip
    body = bth + packet.extensions + _PAYLOAD * packet.payload_bytes + bytes(pad)
    udp = struct.pack(">HHHH", packet.sport, ROCE_PORT, 8 + len(body) + 4, 0)
    ip = _ip(packet, style, len(udp) + len(body) + 4) + udp + body
    tag = b"" if style.vlan is None else struct.pack(">HH", 0x8100, 3 << 13 | style.vlan)
    kind = struct.pack(">H", 0x86DD if style.ipv6 else 0x0800)
    link = packet.target.mac + packet.source.mac + tag + kind
    return link + ip + invariant_crc(ip, style.ipv6)


def _ip(packet: NaivePacket, style: Style, payload: int) -> bytes:
    tos = _CNP_TOS if packet.opcode == CNP else style.tos
    tos |= 3 if packet.marked else 0
    if style.ipv6:
        head = struct.pack(">IHBB", 6 << 28 | tos << 20, payload, 17, _TTL)
        return head + packet.source.ipv6 + packet.target.ipv6
    head = struct.pack(">BBHHHBBH", 0x45, tos, 20 + payload, packet.ip_id, 0x4000, _TTL, 17, 0)
    head += packet.source.ipv4 + packet.target.ipv4
    total = sum(struct.unpack(">10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + head[12:]


def invariant_crc(packet: bytes, ipv6: bool = False) -> bytes:
    """The 4 ICRC bytes, in wire order, of ``packet`` from its IP header to the end of its padding."""
    masked = bytearray(packet)
    if ipv6:
        masked[0] |= 0x0F
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
        udp = 40
    else:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
        udp = 20
    masked[udp + 6 : udp + 8] = b"\xff\xff"
    masked[udp + 12] = 0xFF
    return zlib.crc32(masked, zlib.crc32(b"\xff" * 8)).to_bytes(4, "little")
