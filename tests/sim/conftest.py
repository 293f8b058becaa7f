# SPDX-License-Identifier: Apache-2.0
"""A capture reader written from the format's description, and small scenarios."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sim.spec import FaultSpec, JobSpec, Scenario, StackSpec

SNAP_BYTES = 128


@dataclass(frozen=True, slots=True)
class Seen:
    """One captured packet, decoded by hand."""

    ns: int
    source: bytes
    target: bytes
    ecn: int
    ip_bytes: int
    sport: int
    opcode: int
    dest_qpn: int
    psn: int
    ack_request: bool
    message_bytes: int | None
    syndrome: int | None
    wire_bytes: int
    raw: bytes


def read_pcap(path: Path) -> list[Seen]:
    """Every packet of a nanosecond pcap file with plain Ethernet and IPv4."""
    content = path.read_bytes()
    magic, major, minor, _, _, snap, link = struct.unpack_from("<IHHiIII", content)
    assert (magic, major, minor, snap, link) == (0xA1B23C4D, 2, 4, SNAP_BYTES, 1)
    seen, at = [], 24
    while at < len(content):
        seconds, nanos, captured, original = struct.unpack_from("<IIII", content, at)
        assert nanos < 1_000_000_000
        assert captured == min(original, SNAP_BYTES)
        raw = content[at + 16 : at + 16 + captured]
        at += 16 + captured
        ether, version, tos, ip_bytes = struct.unpack_from(">HBBH", raw, 12)
        assert (ether, version) == (0x0800, 0x45)
        sport, dport, udp_bytes = struct.unpack_from(">HHH", raw, 34)
        assert (dport, ip_bytes - 20, ip_bytes + 14) == (4791, udp_bytes, original)
        opcode, _, key, qpn, ack_psn = struct.unpack_from(">BBHII", raw, 42)
        assert key == 0xFFFF
        length = struct.unpack_from(">I", raw, 66)[0] if opcode in (0x06, 0x0A, 0x0B) else None
        syndrome = raw[54] if opcode in (0x11, 0x12) else None
        seen.append(
            Seen(
                seconds * 1_000_000_000 + nanos,
                raw[26:30],
                raw[30:34],
                tos & 3,
                ip_bytes,
                sport,
                opcode,
                qpn & 0xFFFFFF,
                ack_psn & 0xFFFFFF,
                bool(ack_psn >> 31),
                length,
                syndrome,
                original,
                raw,
            )
        )
    return seen


@pytest.fixture
def read_capture() -> Callable[[Path], list[Seen]]:
    """The hand-written reader."""
    return read_pcap


@pytest.fixture
def small() -> Callable[..., Scenario]:
    """Four machines, six short iterations; keyword arguments replace scenario fields."""

    def make(fault: FaultSpec | None = None, seed: int = 7, **fields: object) -> Scenario:
        job = JobSpec((0, 1, 2, 3), steps=6, collective_bytes=1 << 18, compute_ns=4_000_000)
        values: dict[str, object] = {
            "jobs": (job,),
            "fault": fault,
            "stack": StackSpec(),
            "watch_ns": 60_000_000,
            **fields,
        }
        return Scenario("small", seed, 4, **values)  # type: ignore[arg-type]

    return make
