# SPDX-License-Identifier: Apache-2.0
"""Capture of real packets on a veth pair: all of them, or counted."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpu_app.capture.afpacket import AfPacketSource, CaptureConfig
from pulse_native import PacketBatch
from pulse_native._live import LiveCapture
from tests.dpu.devices import Pair, in_namespace, made_pair, needs_root
from tests.dpu.packets import MIDDLES, carriers, frame, others, plain, transport

pytestmark = needs_root


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A veth pair of its own for each test."""
    with made_pair() as made:
        yield made


def opened(pair: Pair, **settings: object) -> LiveCapture:
    """A capture on the NIC of the pair."""
    return in_namespace(pair.namespace, lambda: LiveCapture(pair.nic, **settings))  # type: ignore[arg-type]


def drain(capture: LiveCapture) -> list[PacketBatch]:
    """All that has been captured."""
    batches = []
    while len(batch := capture.read(100)):
        batches.append(batch)
    return batches


def frames_of(flows: int, packets: int) -> Iterator[bytes]:
    """Packets of many flows, as a network card spreads them: by their UDP source port."""
    kinds = []
    for flow in range(flows):
        content = bytearray(plain(qpn=flow))
        content[34:36] = (0xC000 + flow).to_bytes(2, "big")
        kinds.append(bytes(content))
    return itertools.islice(itertools.cycle(kinds), packets)


def test_headers_lengths_and_stamps_are_those_of_what_was_sent(pair: Pair) -> None:
    capture = opened(pair)
    before_ns = time.time_ns()
    sent = [frame(layers, payload_bytes=1024) for layers in carriers().values()]
    pair.send([*sent, *others().values()])
    (batch,) = drain(capture)
    assert len(batch) == len(sent)
    assert batch.wire_bytes.tolist() == [len(packet) for packet in sent]
    # The kernel may have taken a VLAN tag off; the rest is the same.
    untagged = [
        packet[:12] + packet[16:] if packet[12:14] in (b"\x81\0", b"\x88\xa8") else packet for packet in sent
    ]
    for index, packet in enumerate(sent):
        data = batch.data(index)
        assert packet.startswith(data) or untagged[index].startswith(data)
        assert len(data) < len(packet) - 1000
    assert (batch.parse()["outcome"] == 0).all()
    assert before_ns <= int(batch.ns.min()) <= int(batch.ns.max()) <= time.time_ns()
    assert not capture.hardware_stamps
    assert capture.counts() == {
        "packets": len(sent), "outgoing": 0, "dropped": 0, "freezes": 0, "unstamped": 0, "times_down": 0,
    }  # fmt: skip


@pytest.mark.parametrize("rings", [1, 4])
def test_what_a_tiny_ring_cannot_hold_is_counted_packet_by_packet(pair: Pair, rings: int) -> None:
    capture = opened(pair, rings=rings, block_bytes=4096, blocks=2)
    sent = pair.send(frames_of(16, 5_000))
    captured = sum(len(batch) for batch in drain(capture))
    counts = capture.counts()
    assert 0 < captured < sent
    assert counts["freezes"] > 0
    assert captured + counts["dropped"] == sent
    # The capture goes on, and the count is one of the whole life.
    sent += pair.send(frames_of(16, 3_000))
    captured += sum(len(batch) for batch in drain(capture))
    assert captured + capture.counts()["dropped"] == sent
    assert captured == capture.counts()["packets"]


def test_packets_of_several_rings_come_in_the_order_of_their_stamps(pair: Pair) -> None:
    capture = opened(pair, rings=5, block_bytes=1 << 16, blocks=32)
    batches: list[PacketBatch] = []
    sender = threading.Thread(target=pair.send, args=(frames_of(64, 30_000),))
    sender.start()
    while sender.is_alive():
        batches.append(capture.read(10, max_packets=700))
    sender.join()
    batches += drain(capture)
    stamps = np.concatenate([batch.ns for batch in batches])
    assert len(stamps) + capture.counts()["dropped"] == 30_000
    assert (np.diff(stamps) >= 0).all()
    ports = np.concatenate([batch.parse()["udp_sport"] for batch in batches])
    assert len(set(ports.tolist())) == 64


def test_steered_takes_what_the_parser_would_choose_from_the_same_packets(pair: Pair) -> None:
    everything, steered = opened(pair), opened(pair, steered=True)
    pair.send([frame(layers, opcode) for layers in carriers().values() for opcode in range(256)])
    records = np.concatenate([batch.parse() for batch in drain(everything)])
    chosen = np.concatenate([batch.parse() for batch in drain(steered)])
    expected = records[~np.isin(records["opcode"], MIDDLES)]
    assert len(chosen) == len(expected) > 0
    names = [name for name in records.dtype.names or () if name != "ns"]
    assert all((chosen[name] == expected[name]).all() for name in names)


def test_both_directions_are_taken_and_known(pair: Pair) -> None:
    both, received = opened(pair), opened(pair, outgoing=False)
    pair.send([plain()] * 30)
    pair.send([plain()] * 12, pair.nic)
    assert sum(len(batch) for batch in drain(both)) == 42
    assert both.counts()["outgoing"] == 12
    assert sum(len(batch) for batch in drain(received)) == 30


def test_an_interface_that_goes_down_and_up_is_captured_on(pair: Pair) -> None:
    capture = opened(pair)
    pair.send([plain()] * 7)
    assert sum(len(batch) for batch in drain(capture)) == 7
    pair.set_nic("down")
    assert len(capture.read(50)) == 0
    pair.set_nic("up")
    pair.send([plain()] * 9)
    assert sum(len(batch) for batch in drain(capture)) == 9
    assert capture.counts()["times_down"] == 1
    assert capture.is_attached()


def test_an_interface_that_is_made_anew_is_captured_anew_and_counts_go_on(pair: Pair) -> None:
    source = in_namespace(pair.namespace, lambda: AfPacketSource(CaptureConfig(pair.nic)))
    got: list[int] = []
    changes: list[threading.Thread] = []

    def change() -> None:
        pair.send([plain()] * 5)
        time.sleep(0.2)
        pair.ip("link", "delete", pair.nic)
        time.sleep(1.0)
        pair.add()
        time.sleep(1.5)
        pair.send([plain()] * 6)
        time.sleep(0.2)
        source.stop()

    def work() -> None:
        changes.append(threading.Thread(target=change))
        changes[0].start()
        got.extend(len(batch) for batch in source.batches())

    in_namespace(pair.namespace, work)
    changes[0].join()
    assert sum(got) == 11
    assert source.counts()["packets"] == 11
    assert source.counts()["times_gone"] == 1
    assert source.losses() == {"ring": 0, "unstamped": 0}
    source.close()


def _flags(pair: Pair) -> int:
    shown = subprocess.run(
        ["ip", "netns", "exec", pair.namespace, "cat", f"/sys/class/net/{pair.nic}/flags"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(shown.stdout, 16)


def _promiscuity(pair: Pair) -> str:
    shown = subprocess.run(
        ["ip", "-n", pair.namespace, "-d", "link", "show", pair.nic],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.partition("promiscuity ")[2].split()[0]


def test_a_killed_capture_leaves_the_interface_as_it_was(pair: Pair) -> None:
    code = (
        "from pulse_native._live import LiveCapture\n"
        f"c = LiveCapture({pair.nic!r}); print(1, flush=True); c.read(60000)"
    )
    process = subprocess.Popen(
        ["ip", "netns", "exec", pair.namespace, sys.executable, "-c", code],
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    flags = _flags(pair)
    assert _promiscuity(pair) == "1"
    process.kill()
    process.communicate()
    assert _promiscuity(pair) == "0"
    assert _flags(pair) & ~0x100 == flags & ~0x100


def test_an_unknown_interface_is_named(pair: Pair) -> None:
    with pytest.raises(OSError, match="capture on nic9: there is no such interface") as caught:
        in_namespace(pair.namespace, lambda: LiveCapture("nic9"))
    assert caught.value.errno == errno.ENODEV


def test_without_the_capability_there_is_a_reason(pair: Pair) -> None:
    code = (
        "import os; from pulse_native._live import LiveCapture\nos.setresuid(65534, 65534, 65534)\n"
        f"try: LiveCapture({pair.nic!r})\nexcept PermissionError as error: print(error.strerror)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert "capture on nic0" in done.stdout
    assert "CAP_NET_RAW" in done.stdout


def test_a_closed_capture_says_so(pair: Pair) -> None:
    capture = opened(pair)
    capture.close()
    with pytest.raises(ValueError, match="closed"):
        capture.read(1)


def test_a_packet_of_the_largest_size_is_taken(pair: Pair) -> None:
    capture = opened(pair)
    packet = plain(payload_bytes=9000 - 20 - 8 - len(transport(10, payload_bytes=0)))
    pair.send([packet])
    (batch,) = drain(capture)
    assert batch.wire_bytes.tolist() == [9014]
