# SPDX-License-Identifier: Apache-2.0
"""Header bytes of captured packets: Ethernet, VLAN, IPv4 or IPv6, UDP, BTH and extensions, ICRC.

All packets of a tap are written at once, column by column, into one byte matrix.
Field layouts: the InfiniBand architecture's RoCEv2 annex, as in Linux ``rxe_hdr.h``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from sim import packets as op
from sim.packets import Packet
from sim.spec import NetworkSpec
from sim.transport import Message

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

SNAP_BYTES = 128
ROCE_PORT = 4791
TTL = 64
_CNP_TOS = 0xC0


@dataclass(frozen=True, slots=True)
class WireStyle:
    """Choices that hold for a whole run: addressing family, VLAN, TOS, MigReq bit, P_Key."""

    network: NetworkSpec
    migration_bit: bool = True
    partition_key: int = 0xFFFF

    @property
    def ip_offset(self) -> int:
        """Offset of the IP header."""
        return 14 if self.network.vlan is None else 18

    @property
    def bth_offset(self) -> int:
        """Offset of the BTH."""
        return self.ip_offset + (40 if self.network.ipv6 else 20) + 8


@dataclass(frozen=True, slots=True)
class Frames:
    """Captured bytes: ``data`` (n, 96), valid up to ``captured``; ``original`` is the frame's length."""

    data: Bytes
    captured: Ints
    original: Ints


def build_frames(
    packets: Sequence[Packet], received: npt.NDArray[np.bool_], style: WireStyle, rng: np.random.Generator
) -> Frames:
    """Header bytes of ``packets``; a congestion mark shows only where the packet was ``received``."""
    count = len(packets)
    data = rng.integers(0, 256, (count, SNAP_BYTES), dtype=np.uint8)
    size = _column(packets, "size")
    opcode = _column(packets, "opcode")
    if count:
        _put_link(data, packets, style)
        marked = received & np.fromiter((p.ce for p in packets), bool, count)
        _put_ip(data, packets, size, opcode, marked, style)
        _put_udp(data, packets, size, style)
        _put_bth(data, packets, opcode, style)
        _put_extensions(data, packets, opcode, style.bth_offset + 12)
        _put_padding_and_crc(data, packets, size, style)
    return Frames(data, np.minimum(size, SNAP_BYTES), size)


def _column(packets: Sequence[Packet], name: str) -> Ints:
    return np.fromiter(map(attrgetter(name), packets), np.int64, len(packets))


def _put(data: Bytes, offset: int, width: int, values: Ints | int) -> None:
    """Write ``values`` big-endian into ``width`` bytes at ``offset`` of every row."""
    for place in range(width):
        data[:, offset + place] = (np.asarray(values) >> 8 * (width - 1 - place)) & 0xFF


def _put_link(data: Bytes, packets: Sequence[Packet], style: WireStyle) -> None:
    data[:, 0:6] = np.frombuffer(b"".join(p.target.address.mac for p in packets), np.uint8).reshape(-1, 6)
    data[:, 6:12] = np.frombuffer(b"".join(p.source.address.mac for p in packets), np.uint8).reshape(-1, 6)
    network = style.network
    if network.vlan is not None:
        _put(data, 12, 2, 0x8100)
        _put(data, 14, 2, 3 << 13 | network.vlan)
    _put(data, style.ip_offset - 2, 2, 0x86DD if network.ipv6 else 0x0800)


def _put_ip(
    data: Bytes,
    packets: Sequence[Packet],
    size: Ints,
    opcode: Ints,
    marked: npt.NDArray[np.bool_],
    style: WireStyle,
) -> None:
    tos = np.where(opcode == op.CNP, _CNP_TOS, style.network.tos)
    tos = np.where(marked, tos | 0x03, tos)
    at = style.ip_offset
    if style.network.ipv6:
        _put(data, at, 4, 6 << 28 | tos << 20)
        _put(data, at + 4, 2, size - at - 40)
        _put(data, at + 6, 2, 17 << 8 | TTL)
        for place, end in ((8, "source"), (24, "target")):
            joined = b"".join(getattr(p, end).address.ipv6 for p in packets)
            data[:, at + place : at + place + 16] = np.frombuffer(joined, np.uint8).reshape(-1, 16)
        return
    _put(data, at, 1, 0x45)
    _put(data, at + 1, 1, tos)
    _put(data, at + 2, 2, size - at)
    _put(data, at + 4, 2, _column(packets, "ip_id"))
    _put(data, at + 6, 2, 0x4000)
    _put(data, at + 8, 2, TTL << 8 | 17)
    _put(data, at + 10, 2, 0)
    count = len(packets)
    _put(data, at + 12, 4, _column(packets, "source.address.ipv4"))
    _put(data, at + 16, 4, _column(packets, "target.address.ipv4"))
    words = data[:, at : at + 20].reshape(count, 10, 2).astype(np.int64)
    total = (words[:, :, 0] << 8 | words[:, :, 1]).sum(axis=1)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    _put(data, at + 10, 2, ~total & 0xFFFF)


def _put_udp(data: Bytes, packets: Sequence[Packet], size: Ints, style: WireStyle) -> None:
    at = style.bth_offset - 8
    _put(data, at, 2, _column(packets, "sport"))
    _put(data, at + 2, 2, ROCE_PORT)
    _put(data, at + 4, 2, size - at)
    _put(data, at + 6, 2, 0)


def _put_bth(data: Bytes, packets: Sequence[Packet], opcode: Ints, style: WireStyle) -> None:
    at = style.bth_offset
    pad = -_column(packets, "payload") % 4
    _put(data, at, 1, opcode)
    _put(data, at + 1, 1, pad << 4 | (0x40 if style.migration_bit else 0))
    _put(data, at + 2, 2, style.partition_key)
    _put(data, at + 4, 1, np.where(opcode == op.CNP, 0x40, 0))
    _put(data, at + 5, 3, _column(packets, "dest_qpn"))
    _put(data, at + 8, 1, _column(packets, "ack_request") << 7)
    _put(data, at + 9, 3, _column(packets, "psn"))


def _put_extensions(data: Bytes, packets: Sequence[Packet], opcode: Ints, at: int) -> None:
    """Extension headers, one opcode after the other; each opcode has one layout."""
    for code in np.unique(opcode).tolist():
        rows = np.flatnonzero(opcode == code)
        chosen = [packets[row] for row in rows.tolist()]
        block = data[rows]
        end = at
        if code in op.WITH_RETH:
            _put_remote_address(block, chosen, at)
            _put(block, at + 12, 4, np.array([_message(p).size for p in chosen], dtype=np.int64))
            end = at + 16
        elif code == op.FETCH_ADD:
            _put_remote_address(block, chosen, at)
            _put(block, at + 12, 8, 1)
            _put(block, at + 20, 8, 0)
        if code in op.WITH_IMMEDIATE:
            _put(block, end, 4, np.array([_message(p).immediate for p in chosen], dtype=np.int64))
        if code in op.WITH_AETH:
            _put(block, at, 4, np.array([p.aeth for p in chosen], dtype=np.int64))
        if code == op.CNP:
            block[:, at : at + 16] = 0
        if code == op.ATOMIC_ACK:
            _put(block, at + 4, 8, np.array([p.index for p in chosen], dtype=np.int64))
        data[rows] = block


def _message(packet: Packet) -> Message:
    assert packet.message is not None
    return packet.message


def _put_remote_address(block: Bytes, packets: list[Packet], at: int) -> None:
    _put(block, at, 8, np.array([_message(p).address for p in packets], dtype=np.int64))
    _put(block, at + 8, 4, np.array([_message(p).remote_key for p in packets], dtype=np.int64))


def _put_padding_and_crc(data: Bytes, packets: Sequence[Packet], size: Ints, style: WireStyle) -> None:
    """Packets that fit into the snap length end in a valid ICRC; equal rows cost one computation each."""
    for row in np.flatnonzero(size <= SNAP_BYTES).tolist():
        length = int(size[row])
        pad = -packets[row].payload % 4
        if pad:
            data[row, length - 4 - pad : length - 4] = 0
        frame = data[row, :length].tobytes()
        crc = invariant_crc(frame[style.ip_offset : -4], style.network.ipv6)
        data[row, length - 4 : length] = np.frombuffer(crc, np.uint8)


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
