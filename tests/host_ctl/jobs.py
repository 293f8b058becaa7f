# SPDX-License-Identifier: Apache-2.0
"""Small training jobs as captures in memory, ways to distort them, and what the analysis says of them.

A distortion maps a job to one that means the same (other names, other clocks, another file format), so that
the verdict must stay, or to one that says less (a file missing, half of the time).
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from host_ctl.pipeline import Analysis, analyze_paths
from sim.output.run import run_scenario
from sim.spec import FaultKind, FaultSpec, JobSpec, Scenario, StackSpec
from tests.native.captures import Packet, pcap

MACHINES = ("node0", "node1", "node2", "node3")
FAULTS = {
    "healthy": None,
    "slow_compute": FaultSpec(FaultKind.SLOW_COMPUTE, 1, onset_step=8, factor=1.6),
    "slow_nic": FaultSpec(FaultKind.SLOW_NIC, 2, onset_step=8, factor=4.0),
    "hang": FaultSpec(FaultKind.HANG, 1, onset_step=14),
}


@dataclass(frozen=True, slots=True)
class Recording:
    """The captures of a job, by machine; ``end_ns`` is until when they ran, in the first machine's clock."""

    packets: dict[str, tuple[Packet, ...]]
    end_ns: int

    def write(
        self, folder: Path, suffix: str = ".pcap", encode: Callable[[Sequence[Packet]], bytes] = pcap
    ) -> Path:
        """Write one file per machine; return the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for machine, packets in self.packets.items():
            (folder / f"{machine}{suffix}").write_bytes(encode(packets))
        return folder


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a report says that must not depend on how the captures were taken."""

    health: str
    accused: frozenset[tuple[str, str, str | None]]

    @property
    def machines(self) -> set[str]:
        """All accused machines."""
        return {machine for _, _, machine in self.accused if machine is not None}


def outcome(analysis: Analysis) -> Outcome:
    """Health, and severity, cause and machine of every verdict that is no notice."""
    return Outcome(
        analysis.health,
        frozenset((v.severity, v.cause, v.machine) for v in analysis.verdicts if v.severity != "notice"),
    )


def judge(recording: Recording, folder: Path) -> Outcome:
    """Write the captures and analyse them as the command line would."""
    return outcome(analyze_paths([recording.write(folder)], until_ns=recording.end_ns))


def simulate(fault: str, folder: Path, *, steps: int = 20, stack: StackSpec | None = None) -> Recording:
    """Four machines that compute 8 ms and AllReduce 256 KiB per step, with a named fault."""
    job = JobSpec((0, 1, 2, 3), steps=steps, collective_bytes=1 << 18, compute_ns=8_000_000)
    scenario = Scenario(
        fault, 7, 4, jobs=(job,), fault=FAULTS[fault], stack=stack or StackSpec(), watch_ns=200_000_000
    )
    truth = run_scenario(scenario, folder)
    return Recording(
        {m: read_pcap((folder / f"{m}.pcap").read_bytes()) for m in MACHINES},
        truth.data["capture"]["end_ns"],
    )


def load(folder: Path) -> Recording:
    """A folder of compressed nanosecond captures with their ``truth.json``."""
    truth = json.loads((folder / "truth.json").read_text())
    files = sorted(folder.glob("*.pcap.gz"))
    return Recording(
        {f.name.removesuffix(".pcap.gz"): read_pcap(gzip.decompress(f.read_bytes())) for f in files},
        truth["capture"]["end_ns"],
    )


def read_pcap(content: bytes) -> tuple[Packet, ...]:
    """Packets of a little-endian nanosecond pcap file."""
    assert struct.unpack_from("<I", content)[0] == 0xA1B23C4D
    packets, at = [], 24
    while at < len(content):
        seconds, nanos, captured, original = struct.unpack_from("<IIII", content, at)
        packets.append(
            Packet(seconds * 1_000_000_000 + nanos, content[at + 16 : at + 16 + captured], original)
        )
        at += 16 + captured
    return tuple(packets)


def renamed(recording: Recording, names: Iterable[str]) -> Recording:
    """The same captures under other names, in order."""
    return replace(recording, packets=dict(zip(names, recording.packets.values(), strict=True)))


def shifted(recording: Recording, offsets_ns: Sequence[int], drifts_ppm: Sequence[float]) -> Recording:
    """The captures as clocks with these errors would have stamped them."""
    begin = min(p[0].ns for p in recording.packets.values() if p)

    def stamp(ns: int, number: int) -> int:
        return ns + offsets_ns[number] + round((ns - begin) * drifts_ppm[number] * 1e-6)

    packets = {
        machine: tuple(replace(p, ns=stamp(p.ns, number)) for p in own)
        for number, (machine, own) in enumerate(recording.packets.items())
    }
    return Recording(packets, stamp(recording.end_ns, 0))


def without(recording: Recording, machine: str) -> Recording:
    """All captures but one machine's."""
    return replace(recording, packets={m: p for m, p in recording.packets.items() if m != machine})


def between(recording: Recording, first: float, last: float) -> Recording:
    """What was captured in a part of the whole time, given as shares of it."""
    begin = min(p[0].ns for p in recording.packets.values())
    end = max(p[-1].ns for p in recording.packets.values())
    low, high = (begin + int(share * (end - begin)) for share in (first, last))
    packets = {m: tuple(p for p in own if low <= p.ns <= high) for m, own in recording.packets.items()}
    return Recording(packets, min(high, recording.end_ns))


def steered(recording: Recording) -> Recording:
    """What a NIC shows that steers away the middle packets of messages."""
    middles = (0x01, 0x07)
    packets = {
        m: tuple(p for p in own if p.data[opcode_at(p.data)] not in middles)
        for m, own in recording.packets.items()
    }
    return replace(recording, packets=packets)


def opcode_at(frame: bytes) -> int:
    """Where the BTH begins in an Ethernet frame with plain IPv4 and UDP."""
    assert frame[12:14] == b"\x08\x00"
    return 14 + (frame[14] & 15) * 4 + 8


def own_address(recording: Recording, machine: str) -> str:
    """How a report names a machine without a capture of its own."""
    (own,) = set.intersection(*({p.data[26:30], p.data[30:34]} for p in recording.packets[machine]))
    return "ip:" + ".".join(str(byte) for byte in own)
