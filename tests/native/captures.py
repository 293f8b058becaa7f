# SPDX-License-Identifier: Apache-2.0
"""Capture files and RoCEv2 packets built by hand, for tests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

ETHERNET = 1


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet as a capture file states it."""

    ns: int
    data: bytes
    wire_bytes: int


def pcap(
    packets: Sequence[Packet], *, order: str = "<", nanoseconds: bool = True, link_type: int = ETHERNET
) -> bytes:
    """Return a pcap file; `order` is a struct byte-order mark."""
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link_type)]
    for packet in packets:
        seconds, fraction = divmod(packet.ns, 1_000_000_000)
        parts.append(
            struct.pack(order + "IIII", seconds, fraction // unit, len(packet.data), packet.wire_bytes)
            + packet.data
        )
    return b"".join(parts)


def block(order: str, kind: int, body: bytes) -> bytes:
    """Return one pcapng block."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def pcapng(packets: Sequence[Packet], *, order: str = "<", link_type: int = ETHERNET) -> bytes:
    """Return a pcapng file of one interface with nanosecond times."""
    resolution = struct.pack(order + "HHB3x", 9, 1, 9) + bytes(4)
    parts = [
        block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(order, 1, struct.pack(order + "HHI", link_type, 0, 0) + resolution),
    ]
    for packet in packets:
        fixed = struct.pack(
            order + "IIIII", 0, packet.ns >> 32, packet.ns & 0xFFFFFFFF, len(packet.data), packet.wire_bytes
        )
        parts.append(block(order, 6, fixed + packet.data))
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Roce:
    """Fields of a RoCEv2 packet; `extension` are the bytes between BTH and payload."""

    opcode: int
    extension: bytes = b""
    payload: bytes = b""
    dest_qpn: int = 0x123
    psn: int = 0
    ack_req: bool = False
    src: str = "10.0.0.1"
    dst: str = "10.0.0.2"
    sport: int = 49152
    tos: int = 0


def icrc_by_zlib(ip_packet: bytes) -> int:
    """Return the ICRC by the zlib module, a second implementation that shares no code with the first."""
    masked = bytearray(ip_packet)
    if masked[0] >> 4 == 6:
        udp = 40
        masked[0] |= 0x0F
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
    else:
        udp = (masked[0] & 15) * 4
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    masked[udp + 6] = masked[udp + 7] = 0xFF
    masked[udp + 12] = 0xFF
    return zlib.crc32(bytes(masked), zlib.crc32(b"\xff" * 8))


def ip_packet(roce: Roce) -> bytes:
    """Return the packet from its IP header to the end of the padded payload."""
    pad = -len(roce.payload) % 4
    bth = struct.pack(
        ">BBHII",
        roce.opcode,
        0x40 | pad << 4,
        0xFFFF,
        roce.dest_qpn,
        roce.ack_req << 31 | roce.psn,
    )
    body = bth + roce.extension + roce.payload + bytes(pad)
    udp_bytes = 8 + len(body) + 4
    udp = struct.pack(">HHHH", roce.sport, 4791, udp_bytes, 0)
    src, dst = ip_address(roce.src).packed, ip_address(roce.dst).packed
    if len(src) == 16:
        header = struct.pack(">IHBB", 6 << 28 | roce.tos << 20, udp_bytes, 17, 64) + src + dst
    else:
        header = struct.pack(">BBHHHBBH", 0x45, roce.tos, 20 + udp_bytes, 0, 0x4000, 64, 17, 0) + src + dst
    return header + udp + body


def frame(roce: Roce) -> bytes:
    """Return the packet as an Ethernet frame with a valid ICRC."""
    packet = ip_packet(roce)
    ether_type = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    return (
        bytes.fromhex("020000000002020000000001")
        + ether_type
        + packet
        + icrc_by_zlib(packet).to_bytes(4, "little")
    )


def reth(length: int) -> bytes:
    """Return a RETH for a message of `length` bytes."""
    return struct.pack(">QII", 0x7F0000001000, 0x1234, length)
