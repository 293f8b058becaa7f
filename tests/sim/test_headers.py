# SPDX-License-Identifier: Apache-2.0
"""Header bytes against published vectors, a hand-written reader and scapy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim import packets as op
from sim.events import EventLoop
from sim.headers import SNAP_BYTES, WireStyle, build_frames, invariant_crc
from sim.network import Address, Nic
from sim.packets import Packet
from sim.run import run_scenario
from sim.spec import NetworkSpec


def _nic(last: int, spec: NetworkSpec) -> Nic:
    address = Address(
        last, 0, bytes([2, 0, 0, 0, 0, last]), 10 << 24 | last, b"\xfd" + bytes(14) + bytes([last])
    )
    return Nic(EventLoop(), address, spec, 8, [0])


def _packet(opcode: int, psn: int, aeth: int, spec: NetworkSpec) -> Packet:
    source, target = _nic(2, spec), _nic(1, spec)
    size = source.packet_size(opcode, 0)
    return Packet(source, target, 0x456, 49152, opcode, psn, psn, size, 0, 0, aeth=aeth)


@pytest.mark.parametrize(
    ("psn", "aeth", "crc"), [(0, 0x1F000001, "616458d9"), (0xFFFFFE, 0x60000007, "5e7e9182")]
)
def test_ack_and_nak_end_in_the_reference_icrc(psn: int, aeth: int, crc: str) -> None:
    spec = NetworkSpec(tos=0)
    packet = _packet(op.ACK, psn, aeth, spec)
    frames = build_frames([packet], np.array([False]), WireStyle(spec), np.random.default_rng(0))
    assert frames.original[0] == 62
    assert frames.data[0, 58:62].tobytes().hex() == crc


def test_icrc_of_a_recorded_congestion_notification() -> None:
    ip = bytes.fromhex("45c2003c718c4000401191610a0011010a001201")
    rest = bytes.fromhex("000012b7002800008100ffff4000011800000000") + bytes(16)
    assert invariant_crc(ip + rest).hex() == "82fd002a"


def test_congestion_mark_shows_only_at_the_receiver() -> None:
    spec = NetworkSpec(tos=0x02)
    packet = _packet(op.SEND_ONLY, 5, 0, spec)
    packet.ce = True
    frames = build_frames(
        [packet, packet], np.array([False, True]), WireStyle(spec), np.random.default_rng(0)
    )
    assert [int(frames.data[row, 15]) & 3 for row in (0, 1)] == [2, 3]


@pytest.mark.parametrize("network", [NetworkSpec(vlan=77), NetworkSpec(ipv6=True), NetworkSpec()])
def test_scapy_reads_the_same_fields(network: NetworkSpec) -> None:
    roce = pytest.importorskip("scapy.contrib.roce", reason="scapy is a second reader")
    ether = pytest.importorskip("scapy.layers.l2").Ether
    packet = _packet(op.ACK, 0xABCDEF, 0x1F000009, network)
    frames = build_frames([packet], np.array([False]), WireStyle(network), np.random.default_rng(0))
    decoded = ether(frames.data[0, : frames.captured[0]].tobytes())
    assert decoded[roce.BTH].psn == 0xABCDEF
    assert decoded[roce.BTH].dqpn == 0x456
    assert decoded[roce.AETH].msn == 9
    assert decoded["UDP"].dport == 4791
    if not network.ipv6:
        checksum = decoded["IP"].chksum
        del decoded["IP"].chksum
        assert ether(bytes(decoded))["IP"].chksum == checksum


def test_captures_read_back_with_consistent_lengths_and_ordered_stamps(
    tmp_path: Path, small, read_capture
) -> None:
    run_scenario(small(), tmp_path)
    for path in sorted(tmp_path.glob("*.pcap")):
        seen = read_capture(path)
        assert len(seen) > 500
        stamps = [packet.ns for packet in seen]
        assert stamps == sorted(stamps)
        assert {packet.ecn for packet in seen} == {2}


def test_complete_packets_in_a_capture_carry_a_valid_icrc(tmp_path: Path, small, read_capture) -> None:
    run_scenario(replace(small(), seed=11), tmp_path)
    whole = [p for p in read_capture(tmp_path / "node0.pcap") if p.wire_bytes <= SNAP_BYTES]
    assert len(whole) > 100
    assert all(invariant_crc(p.raw[14:-4]) == p.raw[-4:] for p in whole)
