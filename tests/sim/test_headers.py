# SPDX-License-Identifier: Apache-2.0
"""Header bytes against published vectors, a second implementation, a hand-written reader, scapy, tshark."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pulse_native._sim import ActionKind, CaptureWriter, Verb
from sim.output.run import run_scenario
from sim.spec import NetworkSpec
from tests.sim import naive_headers as naive
from tests.sim.bench import PS_PER_NS, Bench
from tests.sim.conftest import SNAP_BYTES
from tests.sim.watching import watch

MTU = 1_024
_STYLES = [
    naive.Style(),
    naive.Style(tos=0x6A, migration_bit=False),
    naive.Style(vlan=77),
    naive.Style(ipv6=True, tos=0x01),
    naive.Style(ipv6=True, vlan=4095, partition_key=0x8001),
]
_NAMES = ["ipv4", "tos", "vlan", "ipv6", "ipv6-vlan"]
_SIZES = (0, 1, 2, 3, 4, 63, 64, 500, 1_023, 1_024, 1_025, 2_048, 3_001, 5_000)
_INJECTION_ADDRESS = 1 << 40
_LANE_ADDRESS, _LANE_KEY, _DEPTH = 0x7F12_3456_0000, 0x00AB_CD07, 4
_SLOTS = [9_001, 64, 3, 20_000, 1_024, 7, 12_000]


@dataclass(frozen=True)
class Message:
    """One work request as the test expects it on the wire."""

    verb: Verb
    size: int
    address: int = 0
    key: int = 0
    immediate: int = 0


@dataclass
class World:
    """A bench with packets of every kind on it, and what each of its ends was asked to send."""

    bench: Bench
    style: naive.Style
    messages: dict[int, list[Message]]
    simulation: Any

    def node(self, nic: int) -> naive.Node:
        row = self.bench.rows["addresses"][nic]
        return naive.Node(bytes(row["mac"]), row["ipv4"].to_bytes(4, "big"), bytes(row["ipv6"]))


def _world(style: naive.Style) -> World:
    """Every verb and size, both ways, with losses and marks."""
    bench = Bench(3).tune("transport", mtu=MTU, timeout_ps=10**9, ack_every=2)
    bench.tune("transport", cnp_interval_ps=50_000 * PS_PER_NS, retry_limit=1_000)
    bench.tune("network", header_bytes=style.header_bytes, mark_from_bytes=20_000, mark_all_bytes=60_000)
    bench.tune("network", mark_probability=0.3).tune("library", depth=_DEPTH, credit_bytes=48)
    bench.style = {
        "ipv6": style.ipv6, "vlan": -1 if style.vlan is None else style.vlan,
        "type_of_service": style.tos, "migration_bit": style.migration_bit,
        "partition_key": style.partition_key,
    }  # fmt: skip
    messages: dict[int, list[Message]] = {}
    for sender, receiver, psn in ((1, 0, 5), (2, 0, (1 << 24) - 100), (0, 1, 0xABCDEF)):
        end = bench.connect(sender, receiver, psn)
        messages[end] = []
        for size in _SIZES:
            for verb in (Verb.WRITE, Verb.WRITE_IMM, Verb.SEND, Verb.FETCH_ADD):
                number = len(bench.rows["injections"])
                bench.inject(end, size, verb=verb)
                messages[end].append(Message(verb, size, _INJECTION_ADDRESS, number + 1))
    lane_end = len(bench.rows["ends"])
    bench.stream(2, 1, _SLOTS, 3, address=_LANE_ADDRESS, remote_key=_LANE_KEY)
    messages[lane_end] = [
        Message(Verb.WRITE_IMM, size, _LANE_ADDRESS + n % _DEPTH * max(_SLOTS), _LANE_KEY, size)
        for n, size in enumerate(_SLOTS)
    ]
    messages[lane_end + 1] = [
        Message(Verb.WRITE, 48, _LANE_ADDRESS + (1 << 30) + n % _DEPTH * 64, _LANE_KEY ^ 0x100)
        for n in range(len(_SLOTS))
    ]
    bench.act(ActionKind.LOSS_ON_WIRE, 1, 0.05)
    simulation = bench.start()
    simulation.advance(200_000_000)
    return World(bench, style, messages, simulation)


def _requests(messages: list[Message], mtu: int) -> list[tuple[int, bytes, int, bool]]:
    """Opcode, extensions, payload and whether it is a message's last, by place in the sequence."""
    found = []
    for message in messages:
        if message.verb == Verb.FETCH_ADD:
            found.append((naive.FETCH_ADD, naive.atomic_eth(message.address, message.key), 0, True))
            continue
        count = max(1, -(-message.size // mtu))
        for place in range(count):
            first, last = place == 0, place == count - 1
            opcodes = {
                Verb.WRITE: (naive.WRITE_FIRST, naive.WRITE_MIDDLE, naive.WRITE_LAST, naive.WRITE_ONLY),
                Verb.WRITE_IMM: (
                    naive.WRITE_FIRST, naive.WRITE_MIDDLE, naive.WRITE_LAST_IMM, naive.WRITE_ONLY_IMM
                ),
                Verb.SEND: (naive.SEND_FIRST, naive.SEND_MIDDLE, naive.SEND_LAST, naive.SEND_ONLY),
            }[message.verb]  # fmt: skip
            opcode = opcodes[3 if first and last else 2 if last else 0 if first else 1]
            extensions = b""
            if first and message.verb != Verb.SEND:
                extensions += naive.reth(message.address, message.key, message.size)
            if last and message.verb == Verb.WRITE_IMM:
                extensions += naive.immediate(message.immediate)
            found.append((opcode, extensions, min(mtu, message.size - place * mtu), last))
    return found


def _expected(world: World, packet: Any, ip_id: int, requests: dict[int, list[Any]]) -> bytes:
    """The frame as it should be, from what was asked for and the least that must be read from the packet."""
    ends = world.bench.rows["ends"]
    end = int(packet["dest_qpn"]) - 100 ^ 1
    row = ends[end]
    opcode, psn = int(packet["opcode"]), int(packet["psn"])
    common = {
        "source": world.node(row["nic"]), "target": world.node(row["peer_nic"]),
        "sport": row.get("udp_source_port", 0), "dest_qpn": row["dest_qpn"], "ip_id": ip_id,
        "marked": packet["ecn"] == 3,
    }  # fmt: skip
    if opcode == naive.CNP:
        notice = naive.NaivePacket(**common, opcode=opcode, psn=0, extensions=bytes(16))
        return naive.frame(notice, world.style)
    if opcode in (naive.ACK, naive.ATOMIC_ACK):
        extensions = naive.aeth(int(packet["syndrome"]), int(packet["msn"]))
        if opcode == naive.ATOMIC_ACK:
            extensions += ((psn - row["peer_start_psn"]) % (1 << 24)).to_bytes(8, "big")
        answer = naive.NaivePacket(**common, opcode=opcode, psn=psn, extensions=extensions)
        return naive.frame(answer, world.style)
    index = (psn - row["start_psn"]) % (1 << 24)
    opcode, extensions, payload, last = requests[end][index]
    asks = last or _asks_within(requests[end], index)
    return naive.frame(
        naive.NaivePacket(
            **common, opcode=opcode, psn=psn, ack_request=asks, extensions=extensions, payload_bytes=payload
        ),
        world.style,
    )


def _asks_within(requests: list[Any], index: int) -> bool:
    """Every second packet of a message asks for an acknowledgement."""
    begin = index
    while begin > 0 and not requests[begin - 1][3]:
        begin -= 1
    return (index - begin) % 2 == 1


@pytest.mark.parametrize("snap_bytes", [SNAP_BYTES, 0])
@pytest.mark.parametrize("style", _STYLES, ids=_NAMES)
def test_every_byte_of_every_kind_of_packet_is_that_of_the_second_implementation(
    style: naive.Style, snap_bytes: int
) -> None:
    world = _world(style)
    requests = {end: _requests(messages, MTU) for end, messages in world.messages.items()}
    at = 14 + (4 if style.vlan is not None else 0)
    kinds: set[int] = set()
    for batches in world.bench.captured(world.simulation, snap_bytes):
        for batch in batches:
            for row, packet in enumerate(batch.parse()):
                kept = batch.data(row)
                ip_id = 0 if style.ipv6 else int.from_bytes(kept[at + 4 : at + 6], "big")
                whole = _expected(world, packet, ip_id, requests)
                assert int(packet["wire_bytes"]) == len(whole)
                assert kept == (whole[:snap_bytes] if snap_bytes else whole)
                kinds.add(int(packet["opcode"]))
    requested = {0, 1, 2, 4, 6, 7, 8, 9, 0xA, 0xB, naive.FETCH_ADD}
    assert kinds == requested | {naive.ACK, naive.ATOMIC_ACK, naive.CNP}


def test_a_nic_numbers_its_packets_one_after_the_other() -> None:
    world = _world(naive.Style())
    for nic, batches in enumerate(world.bench.captured(world.simulation)):
        numbers = [
            int.from_bytes(batch.data(row)[18:20], "big")
            for batch in batches
            for row in range(len(batch))
            if batch.data(row)[26:30] == bytes([10, 0, 0, nic])
        ]
        assert len(numbers) > 100
        assert [n % (1 << 16) for n in range(numbers[0], numbers[0] + len(numbers))] == numbers


@pytest.mark.parametrize(
    ("psn", "aeth", "crc"), [(0, 0x1F000001, "616458d9"), (0xFFFFFE, 0x60000007, "5e7e9182")]
)
def test_ack_and_nak_end_in_the_reference_icrc(psn: int, aeth: int, crc: str) -> None:
    # The second implementation against the vectors; the first against the second, above.
    nodes = [naive.Node(bytes([2, 0, 0, 0, 0, n]), bytes([10, 0, 0, n]), bytes(16)) for n in (2, 1)]
    packet = naive.NaivePacket(
        *nodes, sport=49152, opcode=naive.ACK, dest_qpn=0x456, psn=psn, extensions=aeth.to_bytes(4, "big")
    )
    frame = naive.frame(packet, naive.Style(tos=0))
    assert len(frame) == 62
    assert frame[58:].hex() == crc


def test_icrc_of_a_recorded_congestion_notification() -> None:
    ip = bytes.fromhex("45c2003c718c4000401191610a0011010a001201")
    rest = bytes.fromhex("000012b7002800008100ffff4000011800000000") + bytes(16)
    assert naive.invariant_crc(ip + rest).hex() == "82fd002a"


def test_congestion_mark_shows_only_at_the_receiver() -> None:
    world = _world(naive.Style())
    packets = world.bench.packets(world.simulation)
    for nic in range(3):
        mine = packets[nic]["src"][:, 15] == nic
        assert not (packets[nic]["ecn"][mine] == 3).any()
    assert (packets[0]["ecn"] == 3).any()


# ---- other readers


@pytest.mark.parametrize("style", _STYLES, ids=_NAMES)
def test_scapy_reads_the_same_fields(style: naive.Style) -> None:
    roce = pytest.importorskip("scapy.contrib.roce", reason="scapy is a second reader")
    ether = pytest.importorskip("scapy.layers.l2").Ether
    world = _world(style)
    for batches in world.bench.captured(world.simulation, snap_bytes=0):
        batch = batches[0]
        records = batch.parse()
        for row in range(0, len(batch), 7):
            raw, packet = batch.data(row), records[row]
            decoded = ether(raw)
            assert decoded["UDP"].dport == 4791
            bth = decoded[roce.BTH]
            fields = [bth.opcode, bth.psn, bth.dqpn, bth.ackreq]
            assert fields == [int(packet[name]) for name in ("opcode", "psn", "dest_qpn", "ack_req")]
            if packet["opcode"] == naive.ACK:
                assert decoded[roce.AETH].msn == packet["msn"]
                assert decoded[roce.AETH].syndrome == packet["syndrome"]
            if not style.ipv6:
                checksum = decoded["IP"].chksum
                del decoded["IP"].chksum
                assert ether(bytes(decoded))["IP"].chksum == checksum


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("style", _STYLES, ids=_NAMES)
def test_tshark_finds_nothing_malformed(style: naive.Style, tmp_path: Path) -> None:
    world = _world(style)
    for nic, batches in enumerate(world.bench.captured(world.simulation, snap_bytes=0)):
        path = tmp_path / f"nic{nic}.pcap"
        writer = CaptureWriter(str(path), 0)
        for batch in batches:
            writer.append(batch)
        writer.close()
        assert _frames_that_tshark_finds(path, "infiniband.bth") == sum(len(batch) for batch in batches)
        assert _frames_that_tshark_finds(path, "_ws.malformed or ip.checksum.status == 0") == 0


def _frames_that_tshark_finds(path: Path, what: str) -> int:
    command = ["tshark", "-r", str(path), "-o", "ip.check_checksum:TRUE"]
    # tshark guesses what a payload is: certain source ports make it TFTP, any SEND RPC over RDMA, cut short.
    for guessed in ("tftp", "rpcordma"):
        command += ["--disable-protocol", guessed]
    command += ["-Y", what, "-T", "fields", "-e", "frame.number"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return len(output.splitlines())


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


@pytest.mark.parametrize("network", [NetworkSpec(), NetworkSpec(vlan=9), NetworkSpec(ipv6=True)])
def test_complete_packets_in_a_capture_carry_a_valid_icrc(small, network: NetworkSpec) -> None:
    done = watch(replace(small(network=network), seed=11))
    at = 14 + (4 if network.vlan else 0)
    kept = [frame for frame in done.frames(0) if len(frame) < SNAP_BYTES]
    assert len(kept) > 100
    assert all(naive.invariant_crc(raw[at:-4], network.ipv6) == raw[-4:] for raw in kept)
