# SPDX-License-Identifier: Apache-2.0
"""RoCEv2 frames made with scapy, of every shape that a capture has to know."""

from __future__ import annotations

import struct
from typing import Any

from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

ETHERNET = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY, ACK, CNP = 6, 7, 8, 10, 17, 0x81
SEND_MIDDLE, READ_RESPONSE_MIDDLE, UC_SEND_MIDDLE, UC_WRITE_MIDDLE = 1, 14, 0x21, 0x27
MIDDLES = (SEND_MIDDLE, WRITE_MIDDLE, READ_RESPONSE_MIDDLE, UC_SEND_MIDDLE, UC_WRITE_MIDDLE)


def transport(opcode: int, psn: int = 0, qpn: int = 0x12, payload_bytes: int = 64) -> bytes:
    """BTH, the longest extension headers that an opcode may have as zeros, payload and ICRC."""
    bth = struct.pack(">BBHII", opcode, 0x40, 0xFFFF, qpn, psn)
    return bth + bytes(28) + bytes(payload_bytes) + bytes(4)


def frame(layers: Packet, opcode: int = WRITE_ONLY, **more: Any) -> bytes:
    """Layers up to IP or a tunnel, then UDP to the RoCEv2 port and what follows."""
    return bytes(layers / UDP(sport=0xC000, dport=4791, chksum=0) / Raw(transport(opcode, **more)))


def plain(opcode: int = WRITE_ONLY, **more: Any) -> bytes:
    """Ethernet and IPv4."""
    return frame(Ether(**ETHERNET) / IP(src="10.0.0.1", dst="10.0.0.2"), opcode, **more)


def carriers() -> dict[str, Packet]:
    """What may stand in front of UDP, by name."""
    ether = Ether(**ETHERNET)
    ipv4, ipv6 = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="fd00::1", dst="fd00::2")
    tunnel = IP(src="10.9.0.1", dst="10.9.0.2") / UDP(sport=5555, dport=4789, chksum=0) / VXLAN(vni=7)
    tunnel6 = IPv6(src="fd09::1", dst="fd09::2") / UDP(sport=5555, dport=4789) / VXLAN(vni=7)
    return {
        "ipv4": ether / ipv4,
        "ipv4 with options": ether / IP(src="10.0.0.1", dst="10.0.0.2", options=[b"\x94\x04\x00\x00"]),
        "ipv6": ether / ipv6,
        "ipv6 with a header": ether / ipv6 / IPv6ExtHdrHopByHop(),
        "ipv6 with two headers": ether / ipv6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt(),
        "vlan": ether / Dot1Q(vlan=5) / ipv4,
        "vlan ipv6": ether / Dot1Q(vlan=5) / ipv6,
        "qinq": ether / Dot1AD(vlan=4) / Dot1Q(vlan=5) / ipv4,
        "four tags": ether / Dot1AD(vlan=4) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / ipv4,
        "vxlan": ether / tunnel / ether / ipv4,
        "vxlan ipv6 inside": ether / tunnel / ether / ipv6,
        "vxlan over ipv6": ether / tunnel6 / ether / ipv4,
        "vxlan with vlan tags": ether / Dot1Q(vlan=3) / tunnel / ether / Dot1Q(vlan=5) / ipv4,
        "geneve": ether / _geneve(0x6558, 2) / ether / ipv4,
        "geneve without a frame": ether / _geneve(0x0800, 0) / ipv4,
        "geneve without a frame, ipv6": ether / _geneve(0x86DD, 1) / ipv6,
    }


def others() -> dict[str, bytes]:
    """Frames that are no RoCEv2, by name."""
    ether = Ether(**ETHERNET)
    ipv4 = IP(src="10.0.0.1", dst="10.0.0.2")
    vxlan = UDP(sport=1, dport=4789, chksum=0) / VXLAN(vni=7)
    return {
        "arp": bytes(ether / ARP()),
        "tcp": bytes(ether / ipv4 / TCP(sport=4791, dport=4791) / Raw(bytes(60))),
        "icmp": bytes(ether / ipv4 / ICMP() / Raw(bytes(60))),
        "from the port": bytes(ether / ipv4 / UDP(sport=4791, dport=53) / Raw(bytes(60))),
        "later fragment": bytes(
            ether / IP(src="10.0.0.1", dst="10.0.0.2", frag=9, proto=17) / Raw(bytes(99))
        ),
        "two tunnels": frame(ether / ipv4 / vxlan / ether / ipv4 / vxlan / ether / ipv4),
        "tcp in vxlan": bytes(ether / ipv4 / vxlan / ether / ipv4 / TCP(dport=4791) / Raw(bytes(60))),
        "short": bytes(ether / ipv4)[:30],
    }


def _geneve(protocol: int, option_words: int) -> Packet:
    options = [GeneveOptions(data=bytes(4 * option_words - 4))] if option_words else []
    udp = UDP(sport=1, dport=6081, chksum=0)
    return IP(src="10.9.0.1", dst="10.9.0.2") / udp / GENEVE(vni=7, proto=protocol, options=options)
