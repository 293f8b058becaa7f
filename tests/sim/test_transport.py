# SPDX-License-Identifier: Apache-2.0
"""Reliable connections over a lossy or slow fabric."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_native._sim import ActionKind, CreditVerb, Simulation, Verb
from tests.sim.bench import ACK, CNP, NAK_SEQUENCE, PS_PER_NS, Bench, data_of
from tests.sim.watching import unwrapped

MS = 1_000_000
_PLACES = {
    "before_tap": (ActionKind.LOSS_BEFORE_TAP, 1),
    "wire": (ActionKind.LOSS_ON_WIRE, 1),
    "ingress": (ActionKind.PORT_LOSS, 0),
    "acks": (ActionKind.LOSS_ON_WIRE, 0),
}


def _bench(count: int = 2, timeout_ns: int = 2 * MS, **transport: int) -> Bench:
    return Bench(count).tune("transport", timeout_ps=timeout_ns * PS_PER_NS, **transport)


def _slots_of(sizes: list[int], start_psn: int, where: str, loss: float, seed: int, train: int) -> Simulation:
    """Slots without credits from NIC 1 to 0, up to 64 in flight, while packets get lost somewhere."""
    bench = _bench(retry_limit=10**6).tune("library", credit_verb=CreditVerb.NONE, depth=64)
    bench.tune("network", train_packets=train, quantum_packets=max(8, train))
    bench.seed = seed
    kind, subject = _PLACES[where]
    bench.act(kind, subject, loss)
    bench.stream(1, 0, sizes, start_psn)
    simulation = bench.start(tapped=False)
    simulation.advance(20_000 * MS)
    return simulation


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=25),
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    where=st.sampled_from(sorted(_PLACES)),
    start_psn=st.sampled_from([0, 1, (1 << 24) - 3]),
    seed=st.integers(0, 1000),
    train=st.sampled_from([1, 1, 4, 32]),
)
def test_every_message_is_delivered_once_and_in_order_whatever_is_lost(
    sizes, loss, where, start_psn, seed, train
) -> None:
    simulation = _slots_of(sizes, start_psn, where, loss, seed, train)
    slots = simulation.slots
    assert simulation.finished
    assert slots["bytes"].tolist() == sizes
    assert (slots["delivered_ps"] > slots["posted_ps"]).all()
    assert (np.diff(slots["delivered_ps"]) > 0).all()
    # They count down to 0 at each delivery and acknowledgement of a part, and a second one would go below.
    assert slots["parts_missing"].tolist() == slots["parts_unacknowledged"].tolist() == [0] * len(sizes)


def test_messages_are_acknowledged_in_order_after_they_came() -> None:
    slots = _slots_of([30_000, 0, 5, 4_096, 9_000], 7, "acks", 0.3, 3, 1).slots
    assert (slots["acknowledged_ps"] > slots["delivered_ps"]).all()
    assert (np.diff(slots["acknowledged_ps"]) >= 0).all()


def test_sequence_numbers_wrap_at_24_bits_without_a_repeat() -> None:
    bench = _bench()
    bench.inject(bench.connect(1, 0, start_psn=(1 << 24) - 2), 20_000)
    data = data_of(bench.run(10 * MS).sent(1))
    assert data["psn"].tolist() == [(1 << 24) - 2, (1 << 24) - 1, 0, 1, 2]


def test_acknowledgements_carry_the_senders_number_and_the_last_psn() -> None:
    bench = _bench()
    end = bench.connect(1, 0, start_psn=1000)
    for size in (10_000, 0):
        bench.inject(end, size, verb=Verb.WRITE_IMM)
    received = bench.run(10 * MS).received(1)
    acks = received[received["opcode"] == ACK]
    assert acks["psn"][-1] == 1003
    assert acks["msn"][-1] == 2
    assert set(acks["dest_qpn"].tolist()) == {100 + end}


def test_a_gap_makes_one_negative_acknowledgement_and_a_repeat_from_there() -> None:
    bench = _bench()
    bench.inject(bench.connect(1, 0), 60_000)
    # The port loses what comes from 100 to 120 us on: a packet each 33 us, so the one that comes then.
    bench.act(ActionKind.PORT_LOSS, 0, 1.0, at_ns=120_000)
    bench.act(ActionKind.PORT_LOSS, 0, 0.0, at_ns=140_000)
    ran = bench.run(50 * MS)
    assert ran.simulation.counters["packets_lost"] == 1
    received = ran.received(1)
    naks = received[(received["opcode"] == ACK) & (received["syndrome"] == NAK_SEQUENCE)]
    psn = unwrapped(data_of(ran.sent(1))["psn"])
    repeated = psn[1:][psn[1:] <= np.maximum.accumulate(psn)[:-1]]
    assert naks["psn"].tolist() == [3]
    assert repeated.min() == 3


@pytest.mark.parametrize("train", [1, 32])
def test_incast_shares_the_receivers_link_fairly(train: int) -> None:
    bench = _bench(5, timeout_ns=100 * MS).tune("network", train_packets=train, quantum_packets=max(8, train))
    for sender in range(1, 5):
        bench.inject(bench.connect(sender, 0), 400_000)
    ran = bench.run(100 * MS)
    ends = [int(data_of(ran.received(0, sender))["ns"].max()) for sender in range(1, 5)]
    alone_ns = 400_000 * 8
    assert min(ends) > 3.8 * alone_ns
    assert max(ends) < 4.3 * alone_ns


def test_the_slower_of_two_links_sets_the_pace() -> None:
    bench = _bench(timeout_ns=100 * MS)
    bench.inject(bench.connect(1, 0), 500_000)
    bench.act(ActionKind.WIRE_RATE, 1, 5.0)
    received = data_of(bench.run(50 * MS).received(0))
    assert len(received) == 123
    assert 19 * MS < received["ns"].max() < 25 * MS


def test_marked_packets_bring_notifications_and_a_lower_rate() -> None:
    bench = _bench(4, cnp_interval_ps=50_000 * PS_PER_NS)
    bench.tune("network", mark_from_bytes=30_000, mark_all_bytes=30_001, mark_probability=1.0)
    ends = [bench.connect(sender, 0) for sender in (1, 2, 3)]
    for end in ends:
        bench.inject(end, 600_000)
    simulation = bench.start()
    simulation.advance(2 * MS)
    assert min(simulation.rate_share(end) for end in ends) < 0.9
    simulation.advance(200 * MS)
    packets = bench.packets(simulation)
    notified = np.concatenate([p[p["opcode"] == CNP] for p in packets[1:]])
    assert len(notified)
    assert {int(qpn) for qpn in notified["dest_qpn"]} <= {100 + end for end in ends}
    assert (packets[0]["ecn"] == 3).any()


@pytest.mark.parametrize("every", [0, 4])
def test_acknowledgements_are_as_dense_as_asked(every: int) -> None:
    bench = _bench(ack_every=every, ack_latency_ps=100 * PS_PER_NS)
    bench.inject(bench.connect(1, 0), 4096 * 16)
    received = bench.run(10 * MS).received(1)
    assert (received["opcode"] == ACK).sum() == (4 if every else 1)


def test_one_acknowledgement_answers_all_that_came_while_it_was_on_its_way() -> None:
    bench = _bench(ack_latency_ps=200_000 * PS_PER_NS, coalesce_acks=True)
    bench.inject(bench.connect(1, 0), 4096, 6)
    received = bench.run(10 * MS).received(1)
    # Six messages in 200 us: one ACK 200 us after the first, and none for those before it.
    acks = received[received["opcode"] == ACK]["psn"].tolist()
    assert acks == [5]


def test_without_coalescing_each_request_is_answered_by_itself_in_order() -> None:
    bench = _bench(ack_latency_ps=200_000 * PS_PER_NS, ack_jitter_ps=100_000 * PS_PER_NS)
    bench.inject(bench.connect(1, 0), 4096, 6)
    received = bench.run(10 * MS).received(1)
    acks = received[received["opcode"] == ACK]
    assert acks["psn"].tolist() == [0, 1, 2, 3, 4, 5]
    assert acks["msn"].tolist() == [1, 2, 3, 4, 5, 6]


def test_an_atomic_is_answered_with_its_old_value_and_counts_as_a_message() -> None:
    bench = _bench()
    bench.inject(bench.connect(1, 0), 8, 3, verb=Verb.FETCH_ADD)
    ran = bench.run(10 * MS)
    assert (ran.sent(1)["opcode"] == 0x14).sum() == 3
    answers = ran.received(1)[ran.received(1)["opcode"] == 0x12]
    assert answers["psn"].tolist() == [0, 1, 2]
    assert answers["msn"].tolist() == [1, 2, 3]


def test_an_atomic_whose_answer_is_lost_is_answered_again_as_an_atomic() -> None:
    bench = _bench(retry_limit=7)
    bench.inject(bench.connect(1, 0), 8, verb=Verb.FETCH_ADD)
    bench.act(ActionKind.LOSS_ON_WIRE, 0, 1.0)
    bench.act(ActionKind.LOSS_ON_WIRE, 0, 0.0, at_ns=1 * MS)
    sent = bench.run(10 * MS).sent(0)
    assert sent["opcode"].tolist() == [0x12, 0x12]
