# SPDX-License-Identifier: Apache-2.0
"""The parser against scapy: what scapy builds or reads, the parser must read alike."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.geneve import GENEVE
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, PadN
from scapy.layers.l2 import ARP, CookedLinux, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet as ScapyPacket

from pulse_native import OUTCOME_NAMES, CaptureReader
from tests.native.captures import Packet, Roce, frame, ip_packet, pcap, reth

# opcode -> bytes of extension headers, for operations that carry payload
DATA_OPERATIONS = {
    **dict.fromkeys((0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0E, 0x24), 0),
    **dict.fromkeys((0x03, 0x05, 0x09, 0x0D, 0x0F, 0x10, 0x16, 0x17), 4),
    **dict.fromkeys((0x06, 0x0A, 0x2A), 16),
    0x0B: 20,
    0x64: 8,
    0x65: 12,
}


def parse(data: bytes, link_type: int = 1) -> np.void:
    """Parse one packet by way of a capture file."""
    batch = CaptureReader().feed(pcap([Packet(5, data, len(data))], link_type=link_type))
    record: np.void = batch.parse()[0]
    return record


def outcome(data: bytes) -> str:
    name: str = OUTCOME_NAMES[parse(data)["outcome"]]
    return name


def roce_bytes() -> bytes:
    """Return UDP payload of a WRITE_FIRST with 64 bytes of payload."""
    return ip_packet(Roce(0x06, reth(4096), b"p" * 64))[28:] + bytes(4)


def inner() -> ScapyPacket:
    return IP(src="10.1.0.1", dst="10.1.0.2", tos=3) / UDP(sport=50000, dport=4791) / roce_bytes()


@given(
    opcode=st.sampled_from(sorted(DATA_OPERATIONS)),
    payload_bytes=st.integers(0, 300),
    psn=st.integers(0, 2**24 - 1),
    dest_qpn=st.integers(0, 2**24 - 1),
    ack_req=st.booleans(),
    ecn=st.integers(0, 3),
    ipv6=st.booleans(),
)
def test_fields_equal_those_that_scapy_reads(
    opcode: int, payload_bytes: int, psn: int, dest_qpn: int, ack_req: bool, ecn: int, ipv6: bool
) -> None:
    src, dst = ("fd00::1", "fd00::2") if ipv6 else ("10.0.0.1", "10.0.0.2")
    data = frame(
        Roce(
            opcode,
            bytes(DATA_OPERATIONS[opcode]),
            b"p" * payload_bytes,
            dest_qpn,
            psn,
            ack_req,
            src,
            dst,
            tos=ecn,
        )
    )
    seen = Ether(data)
    network = seen[IPv6] if ipv6 else seen[IP]
    record = parse(data)
    assert OUTCOME_NAMES[record["outcome"]] == "roce"
    assert record["opcode"] == seen[BTH].opcode
    assert record["psn"] == seen[BTH].psn
    assert record["dest_qpn"] == seen[BTH].dqpn
    assert record["ack_req"] == seen[BTH].ackreq
    assert record["udp_sport"] == seen[UDP].sport
    assert record["ecn"] == (network.tc if ipv6 else network.tos) & 3
    assert record["payload_bytes"] == payload_bytes
    assert record["wire_bytes"] == len(data)
    for column, address in (("src", network.src), ("dst", network.dst)):
        mapped = address if ipv6 else f"::ffff:{address}"
        assert bytes(record[column]) == ip_address(mapped).packed


WRAPPINGS: dict[str, ScapyPacket] = {
    "plain": Ether() / inner(),
    "VLAN": Ether() / Dot1Q(vlan=5) / inner(),
    "QinQ": Ether() / Dot1AD(vlan=5) / Dot1Q(vlan=6) / inner(),
    "VXLAN": Ether() / IP() / UDP(dport=4789) / VXLAN(vni=9) / Ether() / inner(),
    "VXLAN with inner VLAN": Ether()
    / IP()
    / UDP(dport=4789)
    / VXLAN(vni=9)
    / Ether()
    / Dot1Q(vlan=7)
    / inner(),
    "VXLAN over IPv6": Ether() / IPv6() / UDP(dport=4789) / VXLAN(vni=9) / Ether() / inner(),
    "Geneve": Ether() / IP() / UDP(dport=6081) / GENEVE(proto=0x6558) / Ether() / inner(),
    "Geneve without inner Ethernet": Ether() / IP() / UDP(dport=6081) / GENEVE(proto=0x0800) / inner(),
    "IPv4 options": Ether()
    / IP(src="10.1.0.1", dst="10.1.0.2", tos=3, options=[b"\x01\x01\x01\x00"])
    / UDP(sport=50000, dport=4791)
    / roce_bytes(),
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_every_wrapping_leads_to_the_same_headers(name: str) -> None:
    record = parse(bytes(WRAPPINGS[name]))
    assert OUTCOME_NAMES[record["outcome"]] == "roce"
    assert bytes(record["src"])[12:] == bytes([10, 1, 0, 1])
    assert (record["ecn"], record["payload_bytes"], record["dma_bytes"]) == (3, 64, 4096)
    assert (record["udp_sport"], record["opcode"], record["dest_qpn"]) == (50000, 0x06, 0x123)


def test_ipv6_extension_headers_are_passed() -> None:
    extensions = IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(12))]) / IPv6ExtHdrDestOpt()
    record = parse(bytes(Ether() / IPv6(tc=1) / extensions / UDP(sport=9, dport=4791) / roce_bytes()))
    assert OUTCOME_NAMES[record["outcome"]] == "roce"
    assert (record["family"], record["ecn"], record["payload_bytes"]) == (6, 1, 64)


def test_a_cooked_capture_gives_the_same_record() -> None:
    cooked = parse(bytes(CookedLinux(proto=0x0800) / inner()), link_type=113)
    version_two = parse(struct.pack(">HHIHBB8x", 0x0800, 0, 3, 1, 0, 6) + bytes(inner()), link_type=276)
    assert OUTCOME_NAMES[cooked["outcome"]] == OUTCOME_NAMES[version_two["outcome"]] == "roce"
    assert cooked["psn"] == version_two["psn"]
    assert cooked["payload_bytes"] == version_two["payload_bytes"] == 64


def test_other_traffic_is_counted_by_its_kind() -> None:
    pieces = [piece / UDP(dport=4791) / roce_bytes() for piece in (IP(flags="MF"), IP(frag=100))]
    assert outcome(bytes(Ether() / ARP())) == "not_ip"
    assert outcome(bytes(Ether() / IP() / TCP())) == "not_udp"
    assert outcome(bytes(Ether() / IPv6() / TCP())) == "not_udp"
    assert outcome(bytes(Ether() / IP() / UDP(dport=53) / b"query")) == "other_udp_port"
    assert outcome(bytes(Ether(type=0x8915) / bytes(60))) == "roce_v1"
    assert [outcome(bytes(Ether() / piece)) for piece in pieces] == ["ip_fragment"] * len(pieces)
    assert outcome(bytes(Ether() / IP() / UDP(dport=4791) / bytes([0xE0, 0]) / bytes(30))) == "unknown_opcode"
    assert outcome(bytes(Ether() / IP() / UDP(dport=4791, len=9) / roce_bytes())) == "bad_udp_length"
    assert outcome(bytes(Ether() / IP() / UDP(dport=4791) / b"\x06\x03" / bytes(40))) == "bad_bth"


@given(length=st.integers(1, 200))
def test_payload_size_does_not_depend_on_how_much_was_captured(length: int) -> None:
    data = frame(Roce(0x06, reth(4096), b"p" * 101))
    record = parse(data[:length])
    header_bytes = 14 + 20 + 8 + 12 + 16
    if length < header_bytes:
        assert OUTCOME_NAMES[record["outcome"]] == "truncated_headers"
    else:
        assert record["payload_bytes"] == 101


@given(data=st.binary(min_size=1, max_size=120))
def test_any_bytes_get_an_outcome(data: bytes) -> None:
    record = parse(data)
    name = OUTCOME_NAMES[record["outcome"]]
    if name != "roce":
        assert not record["payload_bytes"]
        assert not record["family"]
