# SPDX-License-Identifier: Apache-2.0
"""Reliable connections over a lossy or slow fabric."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import packets as op
from sim.events import EventLoop
from sim.network import Address, Fabric, Nic
from sim.spec import NetworkSpec, TransportSpec
from sim.transport import Message, QueuePair, Verb, ignore


class Bench:
    """Some NICs on one switch, connected to the first."""

    def __init__(
        self, count: int = 2, start_psn: int = 0, network: NetworkSpec | None = None, **transport
    ) -> None:
        self.loop = EventLoop()
        spec = network or NetworkSpec(rate_gbps=1.0)
        self.spec = TransportSpec(**{"timeout_ns": 2_000_000, **transport})
        self.fabric = Fabric(self.loop, spec, np.random.default_rng(0))
        self.nics = []
        for number in range(count):
            address = Address(number, 0, bytes(5) + bytes([number]), 10 << 24 | number, bytes(16))
            nic = Nic(self.loop, address, spec, 4, [0])
            self.fabric.attach(nic, 0)
            self.nics.append(nic)
        self.senders = []
        for number in range(1, count):
            rng = np.random.default_rng(number)
            mine = QueuePair(self.loop, self.nics[number], 100, 50_000, start_psn, self.spec, rng)
            theirs = QueuePair(self.loop, self.nics[0], 200 + number, 50_000, 0, self.spec, rng)
            mine.connect(theirs)
            self.senders.append(mine)

    def send(self, sizes: list[int], sender: int = 0) -> tuple[list[int], list[int]]:
        """Post messages; the lists fill with delivered and acknowledged message numbers."""
        delivered: list[int] = []
        acknowledged: list[int] = []
        for number, size in enumerate(sizes):
            done = partial(acknowledged.append, number)
            self.senders[sender].post(Message(Verb.WRITE_IMM, size, partial(delivered.append, number), done))
        return delivered, acknowledged


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=25),
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    where=st.sampled_from(["before_tap", "wire", "ingress", "acks"]),
    start_psn=st.sampled_from([0, 1, (1 << 24) - 3]),
    seed=st.integers(0, 1000),
)
def test_every_message_is_delivered_once_and_in_order_whatever_is_lost(
    sizes, loss, where, start_psn, seed
) -> None:
    bench = Bench(start_psn=start_psn, retry_limit=10**6)
    rng = np.random.default_rng(seed)

    def lost() -> bool:
        return bool(rng.random() < loss)

    if where == "before_tap":
        bench.nics[1].loss_before_tap = lost
    elif where == "wire":
        bench.nics[1].loss_on_wire = lost
    elif where == "acks":
        bench.nics[0].loss_on_wire = lost
    else:
        bench.fabric.access_port(bench.nics[0]).loss = lost
    delivered, acknowledged = bench.send(sizes)
    bench.loop.run(20_000_000_000)
    assert delivered == list(range(len(sizes)))
    assert acknowledged == list(range(len(sizes)))


def test_sequence_numbers_wrap_at_24_bits_without_a_repeat() -> None:
    bench = Bench(start_psn=(1 << 24) - 2)
    bench.send([20_000])
    bench.loop.run(10_000_000)
    psns = [p.psn for p in bench.nics[1].tap.packets if p.opcode != op.ACK]
    assert psns == [(1 << 24) - 2, (1 << 24) - 1, 0, 1, 2]
    assert not any(p.repeat for p in bench.nics[1].tap.packets)


def test_acknowledgements_carry_the_senders_number_and_the_last_psn() -> None:
    bench = Bench(start_psn=1000)
    bench.send([10_000, 0])
    bench.loop.run(10_000_000)
    acks = [p for p in bench.nics[1].tap.packets if p.opcode == op.ACK]
    assert acks[-1].psn == 1003
    assert acks[-1].aeth & 0xFFFFFF == 2
    assert {p.dest_qpn for p in acks} == {100}


def test_a_gap_makes_one_negative_acknowledgement_and_a_repeat_from_there() -> None:
    bench = Bench()
    count = iter(range(10**6))
    bench.nics[1].loss_on_wire = lambda: next(count) == 3
    bench.send([60_000])
    bench.loop.run(50_000_000)
    sent = [p for p in bench.nics[1].tap.packets if p.opcode != op.ACK]
    naks = [p for p in bench.nics[1].tap.packets if p.opcode == op.ACK and p.aeth >> 24 == 0x60]
    assert [nak.psn for nak in naks] == [3]
    assert min(p.psn for p in sent if p.repeat) == 3


def test_a_dead_receiver_is_tried_as_often_as_allowed_and_no_more() -> None:
    bench = Bench(retry_limit=3)
    bench.nics[0].dead = True
    failed: list[QueuePair] = []
    bench.senders[0].on_error = failed.append
    bench.send([4096])
    bench.loop.run(1_000_000_000)
    assert len(bench.nics[1].tap.packets) == 4
    assert failed == [bench.senders[0]]


def test_incast_shares_the_receivers_link_fairly() -> None:
    bench = Bench(count=5)
    ends: dict[int, int] = {}
    for sender in range(4):
        done = partial(lambda number: ends.update({number: bench.loop.now}), sender)
        bench.senders[sender].post(Message(Verb.WRITE_IMM, 400_000, done, ignore))
    bench.loop.run(100_000_000)
    alone_ns = 400_000 * 8
    assert min(ends.values()) > 3.8 * alone_ns
    assert max(ends.values()) < 4.3 * alone_ns


def test_the_slower_of_two_links_sets_the_pace() -> None:
    bench = Bench()
    bench.nics[1].wire_ns_per_byte = 5 * bench.nics[1].ns_per_byte
    bench.nics[1].shaper_buffer_ns = 100_000
    delivered, _ = bench.send([500_000])
    bench.loop.run(19_000_000)
    assert not delivered
    bench.loop.run(25_000_000)
    assert delivered == [0]


def test_marked_packets_bring_notifications_and_a_lower_rate() -> None:
    bench = Bench(count=4, network=NetworkSpec(rate_gbps=1.0, ecn_threshold_bytes=30_000))
    for sender in range(3):
        bench.send([600_000], sender)
    bench.loop.run(200_000_000)
    notified = [p for nic in bench.nics[1:] for p in nic.tap.packets if p.opcode == op.CNP]
    assert notified
    assert {p.dest_qpn for p in notified} == {100}
    assert any(p.ce for p in bench.nics[0].tap.packets)


@pytest.mark.parametrize("every", [0, 4])
def test_acknowledgements_are_as_dense_as_asked(every: int) -> None:
    bench = Bench(ack_every=every, ack_latency_ns=100, ack_jitter_ns=1)
    bench.send([4096 * 16])
    bench.loop.run(10_000_000)
    acks = sum(p.opcode == op.ACK for p in bench.nics[1].tap.packets)
    assert acks == (4 if every else 1)
