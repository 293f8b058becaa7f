# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH, cnp
from scapy.layers.inet import IP, UDP

import pulse_native
from tests.native.captures import Roce, frame, icrc_by_zlib, ip_packet, reth

VECTORS = {
    "WRITE_FIRST": (Roce(0x06, reth(8192), b"\xab" * 4096, psn=0xFFFFFE), "64b17fc7"),
    "WRITE_ONLY_IMM": (Roce(0x0B, bytes(16) + struct.pack(">I", 0x2000), ack_req=True), "9ad7ff2e"),
    "ACK": (
        Roce(0x11, bytes.fromhex("1f000001"), dest_qpn=0x456, src="10.0.0.2", dst="10.0.0.1"),
        "616458d9",
    ),
    "NAK": (
        Roce(0x11, bytes.fromhex("60000007"), dest_qpn=0x456, psn=0xFFFFFE, src="10.0.0.2", dst="10.0.0.1"),
        "5e7e9182",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_icrc_of_known_packets(name: str) -> None:
    roce, wire = VECTORS[name]
    assert pulse_native.icrc(ip_packet(roce)).to_bytes(4, "little").hex() == wire


def test_icrc_equals_the_one_that_scapy_puts_into_a_cnp() -> None:
    built = bytes(IP(src="10.0.17.1", dst="10.0.18.1", tos=0xC2) / UDP(sport=0) / cnp(dqpn=0x118))
    assert pulse_native.icrc(built[:-4]).to_bytes(4, "little") == built[-4:]


@given(
    opcode=st.integers(0, 255),
    payload=st.binary(max_size=64),
    sport=st.integers(0, 65535),
    tos=st.integers(0, 255),
    ipv6=st.booleans(),
)
def test_icrc_equals_two_other_implementations(
    opcode: int, payload: bytes, sport: int, tos: int, ipv6: bool
) -> None:
    addresses = ("fd00::1", "fd00::2") if ipv6 else ("10.0.0.1", "10.0.0.2")
    packet = ip_packet(
        Roce(opcode, payload=payload, sport=sport, tos=tos, src=addresses[0], dst=addresses[1])
    )
    assert pulse_native.icrc(packet) == icrc_by_zlib(packet)


@given(payload=st.binary(max_size=64), tos=st.integers(0, 255))
def test_icrc_equals_the_one_of_scapy(payload: bytes, tos: int) -> None:
    data = frame(Roce(0x04, payload=payload, tos=tos))[14:]
    rebuilt = IP(data)
    rebuilt[BTH].icrc = None
    assert bytes(rebuilt)[-4:] == pulse_native.icrc(data[:-4]).to_bytes(4, "little")


@given(data=st.binary(max_size=59))
def test_bytes_shorter_than_any_ipv6_packet_are_refused_unless_ipv4_fits(data: bytes) -> None:
    header_bytes = (data[0] & 15) * 4 if data and data[0] >> 4 == 4 else 40
    if header_bytes >= 20 and len(data) >= header_bytes + 20 and data[0] >> 4 == 4:
        assert pulse_native.icrc(data) == icrc_by_zlib(data)
    else:
        with pytest.raises(ValueError, match="not an IPv4 or IPv6 header"):
            pulse_native.icrc(data)
