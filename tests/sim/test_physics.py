# SPDX-License-Identifier: Apache-2.0
"""Links, fairness, pause frames, repeats and credits against closed formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pulse_native._sim import ActionKind
from tests.sim.bench import ACK, FRAMING_BYTES, RETH_BYTES, Bench, data_of, message_bytes, packet_bytes

MS = 1_000_000
PACKET_BYTES = packet_bytes(4096)


# ---- shares of a link


@pytest.mark.parametrize("rate_gbps", [1.0, 400.0])
def test_a_lone_message_takes_its_bytes_at_the_rate_of_the_link_and_the_way(rate_gbps: float) -> None:
    bench = Bench(rate_gbps=rate_gbps)
    bench.inject(bench.connect(1, 0), 1_000_000, begin_ns=5_000)
    last_ns = int(data_of(bench.run(20 * MS).received(0))["ns"][-1])
    # The switch takes the first packet whole before it sends it on, and then has all bytes to send; two links
    # of 1 us. Stamps are whole ns, and so are the starts of 250 packets at most one ps early.
    wire_ns = (packet_bytes(4_096, RETH_BYTES) + message_bytes(1_000_000)) * 8 / rate_gbps
    assert last_ns - 5_000 == pytest.approx(wire_ns + 2_000, abs=2)


@pytest.mark.parametrize("senders", [2, 3, 7])
def test_senders_into_one_port_get_equal_shares_that_fill_it(senders: int) -> None:
    bench = Bench(senders + 1).tune("network", pause_bytes=262_144, resume_bytes=196_608)
    for sender in range(1, senders + 1):
        bench.inject(bench.connect(sender, 0), 65_536, 1_000, depth=16)
    ran = bench.run(100 * MS)
    shares = [ran.gbps(0, sender, 20 * MS, 100 * MS) for sender in range(1, senders + 1)]
    # Windows of 80 ms cut off less than two packets of each sender: 2 x 33 us of 80 ms.
    assert shares == pytest.approx([1.0 / senders] * senders, rel=0.001 * senders)
    assert sum(shares) == pytest.approx(1.0, rel=0.001)


@pytest.mark.parametrize("where", [ActionKind.WIRE_RATE, ActionKind.ENGINE_RATE])
def test_what_a_limited_sender_leaves_is_shared_evenly_by_greedy_ones(where: ActionKind) -> None:
    bench = Bench(4).tune("network", pause_bytes=262_144, resume_bytes=196_608)
    for sender in (1, 2, 3):
        bench.inject(bench.connect(sender, 0), 65_536, 2_000, depth=16)
    bench.act(where, 1, 10.0)
    ran = bench.run(200 * MS)
    shares = [ran.gbps(0, sender, 40 * MS, 200 * MS) for sender in (1, 2, 3)]
    # Max-min: the limited one has all that it can send, and no greedy one gains by another's loss. As above,
    # at most two packets of each are cut off: 2 x 335 us of 160 ms for the slow one.
    assert shares == pytest.approx([0.1, 0.45, 0.45], rel=0.005)


def test_a_sender_with_many_connections_gets_no_more_of_a_port_than_one_with_one() -> None:
    bench = Bench(3).tune("network", pause_bytes=262_144, resume_bytes=196_608)
    for _ in range(4):
        bench.inject(bench.connect(1, 0), 65_536, 1_000, depth=4)
    bench.inject(bench.connect(2, 0), 65_536, 1_000, depth=16)
    ran = bench.run(100 * MS)
    # The switch serves its inputs in turn, and does not know connections. Tolerance as above.
    assert ran.gbps(0, 1, 20 * MS, 100 * MS) == pytest.approx(0.5, rel=0.002)
    assert ran.gbps(0, 2, 20 * MS, 100 * MS) == pytest.approx(0.5, rel=0.002)


def test_connections_of_one_nic_share_it_evenly() -> None:
    bench = Bench(4)
    for receiver in (1, 2, 3):
        bench.inject(bench.connect(0, receiver), 65_536, 1_000, depth=16)
    ran = bench.run(100 * MS)
    # In turn, eight packets at a time: at most one turn of 8 x 33 us of 80 ms is cut off.
    shares = [ran.gbps(receiver, 0, 20 * MS, 100 * MS) for receiver in (1, 2, 3)]
    assert shares == pytest.approx([1 / 3] * 3, rel=0.01)
    assert sum(shares) == pytest.approx(1.0, rel=0.002)


# ---- pause frames


def _incast_on_a_slow_receiver(factor: float = 10.0) -> Bench:
    bench = Bench(4).tune("network", pause_bytes=100_000, resume_bytes=75_000)
    for sender in (1, 2, 3):
        bench.inject(bench.connect(sender, 0), 65_536, 2_000, depth=16)
    bench.act(ActionKind.DRAIN_RATE, 0, factor)
    return bench


def test_a_slow_receiver_holds_its_senders_to_its_pace_without_loss() -> None:
    ran = _incast_on_a_slow_receiver().run(400 * MS)
    counters = ran.simulation.counters
    assert counters["pauses"] > 0
    assert counters["packets_lost"] == counters["retransmitted"] == 0
    shares = [ran.gbps(0, sender, 100 * MS, 400 * MS) for sender in (1, 2, 3)]
    # Packets come in bursts between pauses of 25 kB: 2 ms at a tenth of 1 Gbit/s, of 300 ms.
    assert sum(shares) == pytest.approx(0.1, rel=0.02)
    assert shares == pytest.approx([0.1 / 3] * 3, rel=0.03)


def test_what_waits_in_front_of_a_slow_receiver_is_bounded_by_the_pause_threshold() -> None:
    ran = _incast_on_a_slow_receiver().run(400 * MS)
    came = data_of(ran.received(0))
    waiting = np.cumsum(came["wire_bytes"] + FRAMING_BYTES) - (came["ns"] - came["ns"][0]) / 80
    # The NIC's buffer, and what is on the way until a pause takes hold: 1 us at 1 Gbit/s and a packet at
    # each end.
    assert waiting.max() < 100_000 + 125 + 3 * PACKET_BYTES
    assert waiting[-1000:].min() > 50_000  # and it is never empty


def _two_flows_over_one_uplink(slow: bool) -> Bench:
    """NIC 0 is slow, 1 is not; 2 sends to 0 and 3 to 1 over one uplink, 4 sends to 5 past it."""
    bench = Bench(6).tune("network", pause_bytes=100_000, resume_bytes=75_000)
    uplink = bench.port(2.0)
    for source, target, via in ((2, 0, (uplink,)), (3, 1, (uplink,)), (4, 5, ())):
        bench.inject(bench.connect(source, target, via=via), 65_536, 2_000, depth=16)
    if slow:
        bench.act(ActionKind.DRAIN_RATE, 0, 10.0)
    return bench


def test_back_pressure_spreads_to_a_flow_that_shares_only_the_uplink() -> None:
    free, held = (_two_flows_over_one_uplink(slow).run(400 * MS) for slow in (False, True))
    for ran in (free, held):
        assert ran.simulation.counters["packets_lost"] == 0
    # Alone with an uplink of twice the rate both have all of their links.
    assert free.gbps(1, 3, 100 * MS, 400 * MS) == pytest.approx(1.0, rel=0.002)
    # A paused uplink stands still for both, and it serves its inputs in turn: the victim gets what the slow
    # receiver takes, and no more than 25 kB for each pause beside it.
    assert held.gbps(0, 2, 100 * MS, 400 * MS) == pytest.approx(0.1, rel=0.03)
    assert held.gbps(1, 3, 100 * MS, 400 * MS) == pytest.approx(0.1, rel=0.05)


def test_back_pressure_leaves_a_flow_on_other_links_alone() -> None:
    held = _two_flows_over_one_uplink(slow=True).run(200 * MS)
    assert held.gbps(5, 4, 50 * MS, 200 * MS) == pytest.approx(1.0, rel=0.002)


def test_a_receiver_that_is_fast_again_takes_what_waits_in_order() -> None:
    bench = Bench(2).tune("network", pause_bytes=262_144, resume_bytes=196_608)
    bench.inject(bench.connect(1, 0), 65_536, 200, depth=16)
    bench.act(ActionKind.DRAIN_RATE, 0, 10.0)
    bench.act(ActionKind.DRAIN_RATE, 0, 0.0, at_ns=30 * MS)
    ran = bench.run(60 * MS)
    assert not (ran.received(1)["syndrome"] == 0x60).any()
    assert ran.simulation.counters["retransmitted"] == 0
    assert ran.gbps(0, 1, 40 * MS, 60 * MS) == pytest.approx(1.0, rel=0.004)


# ---- repeats


@pytest.mark.parametrize("limit", [0, 3, 7])
def test_a_dead_receiver_is_tried_as_often_as_allowed_and_no_more(limit: int) -> None:
    bench = Bench().tune("transport", timeout_ps=2 * MS * 1_000, retry_limit=limit)
    end = bench.connect(1, 0)
    bench.inject(end, 4_096)
    bench.act(ActionKind.NIC_DEAD, 0)
    ran = bench.run(100 * MS)
    assert len(ran.sent(1)) == 1 + limit
    assert ran.simulation.failed_ends.tolist() == [end]


def test_repeats_to_a_dead_receiver_come_one_timeout_after_the_other() -> None:
    bench = Bench().tune("transport", timeout_ps=2 * MS * 1_000, retry_limit=5)
    bench.inject(bench.connect(1, 0), 4_096)
    bench.act(ActionKind.LINK_DOWN, 0)
    gaps = np.diff(bench.run(100 * MS).sent(1)["ns"])
    # The timer runs from the time at which a packet is taken up, and stamps are whole ns.
    assert gaps == pytest.approx([2 * MS] * 5, abs=2)


def test_progress_gives_the_whole_number_of_retries_back() -> None:
    bench = Bench().tune("transport", timeout_ps=2 * MS * 1_000, retry_limit=2)
    bench.inject(bench.connect(1, 0), 4_096, messages=2, depth=1)
    for begin_ns in (0, 6 * MS):  # each time the link is away for two of three tries
        bench.act(ActionKind.LINK_DOWN, 0, at_ns=begin_ns)
        bench.act(ActionKind.LINK_UP, 0, at_ns=begin_ns + 3 * MS)
    bench.rows["injections"][0]["messages"] = 1
    bench.inject(0, 4_096, begin_ns=6 * MS + 1_000)
    ran = bench.run(100 * MS)
    assert ran.simulation.failed_ends.tolist() == []
    assert len(ran.sent(1)) == 6


@pytest.mark.parametrize("probability", [0.0003, 0.001, 0.003, 0.01])
def test_goodput_under_loss_follows_from_round_trip_and_timeout(probability: float) -> None:
    bench = Bench(latency_ns=50_000, seed=5)
    timeout_ns, depth, size = 4 * MS, 8, 65_536
    bench.tune("transport", timeout_ps=timeout_ns * 1_000, retry_limit=1_000)
    bench.inject(bench.connect(1, 0), size, 10**6, depth=depth)
    bench.act(ActionKind.PORT_LOSS, 0, probability)
    span_ns = 10_000 * MS
    ran = bench.run(span_ns)
    lost = ran.simulation.counters["packets_lost"]
    # A lost packet costs its own time, and all that follow until the NAK is back: the next packet that comes
    # shows the gap. So a loss costs: itself, the next packet, both ways with the packet's and the NAK's
    # passage through the switch, and the packet or two that the NIC's engine has already taken up.
    packet_ns = PACKET_BYTES * 8
    nak_ns = packet_bytes(0, 4) * 8
    round_trip_ns = 4 * 50_000 + packet_ns + 2 * nak_ns
    resend_ns = packet_ns + packet_ns + round_trip_ns + 1.5 * packet_ns
    # If its copy is lost too, the receiver asks no more: the rest of the window, then the timer.
    window_ns = depth * message_bytes(size) * 8
    again_ns = timeout_ns + window_ns
    per_packet_ns = packet_ns + probability * (resend_ns + probability * again_ns)
    expected = 4096 * 8 / per_packet_ns
    # Approximation: losses among packets that are thrown away anyway cost nothing, and a second loss in one
    # window hides in the first. Statistics of the number of losses n: 3 / sqrt(n) of their part of the time.
    share = 1 - packet_ns / per_packet_ns
    tolerance = 0.0005 + share * (3 / lost**0.5 + 0.05)
    psn = _unwrapped(data_of(ran.received(0))["psn"])
    goodput = int(np.maximum.accumulate(psn)[-1]) * 4096 * 8 / span_ns
    assert goodput == pytest.approx(expected, rel=tolerance)


def _unwrapped(psn: np.ndarray) -> np.ndarray:
    steps = (np.diff(psn.astype(np.int64)) + (1 << 23)) % (1 << 24) - (1 << 23)
    return np.concatenate([[int(psn[0])], int(psn[0]) + np.cumsum(steps)])


# ---- credits


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_goodput_is_slots_in_flight_by_round_trip_until_the_link_is_full(slots: int) -> None:
    host_ns, size = 300_000, 65_536
    bench = Bench().tune("library", depth=slots, host_ps=host_ns * 1_000)
    bench.stream(0, 1, [size] * 60)
    simulation = bench.start(tapped=False)
    simulation.advance(1_000 * MS)
    # Grant and its arrival, three reactions of hosts more, the slot, and both ways with one packet's passage
    # through the switch: credit posted, its use, slot posted, arrival told.
    credit_ns = 2 * packet_bytes(64, RETH_BYTES) * 8
    slot_ns = (message_bytes(size) + 4 + PACKET_BYTES) * 8
    round_trip_ns = 4 * host_ns + credit_ns + slot_ns + 4 * 1_000
    delivered = simulation.slots["delivered_ps"] / 1_000
    rounds_ns = np.diff(delivered[slots::slots])
    # Exact for one slot. Several come back in a bunch, in which one waits for the one before it at a host
    # that is busy for a part of its reaction time: less than half of a slot's time each.
    waits_ns = (slots - 1) * slot_ns / 2
    assert rounds_ns.min() >= round_trip_ns - 1
    assert rounds_ns.mean() <= round_trip_ns + 200 + waits_ns
    rate_gbps = slots * size * 8 / rounds_ns.mean()
    assert rate_gbps == pytest.approx(slots * size * 8 / round_trip_ns, rel=0.001 + waits_ns / round_trip_ns)


def test_with_slots_enough_the_link_is_full() -> None:
    bench = Bench().tune("library", depth=8, host_ps=20_000_000)
    bench.stream(0, 1, [65_536] * 60)
    ran = bench.run(1_000 * MS)
    delivered = ran.simulation.slots["delivered_ps"] / 1_000
    per_slot_ns = np.diff(delivered)[10:]
    # Beside the slots only acknowledgements of credits leave the sender: 86 bytes for each of 66 kB.
    slot_bytes = message_bytes(65_536) + 4 + packet_bytes(0, 4)
    assert per_slot_ns.mean() == pytest.approx(slot_bytes * 8, rel=0.001)


def test_a_slot_waits_for_its_credit_and_for_nothing_else() -> None:
    bench = Bench().tune("library", depth=1, host_ps=5_000_000)
    bench.stream(0, 1, [65_536] * 10)
    simulation = bench.start(tapped=False)
    simulation.advance(100 * MS)
    slots, grants = simulation.slots, simulation.credits
    # The sender's host takes up the credit and then the slot: twice 5 us.
    waits = (slots["posted_ps"] - grants["arrived_ps"]) / 1_000
    assert waits[1:] == pytest.approx([10_000] * 9, abs=1)


def test_acknowledgements_pass_data_that_waits() -> None:
    bench = Bench()
    bench.inject(bench.connect(0, 1), 4_096, 200, depth=64)
    bench.inject(bench.connect(1, 0), 4_096, 200, depth=64)
    sent = bench.run(20 * MS).sent(0)
    answers = sent[sent["opcode"] == ACK]
    came = [int(ns) for ns in np.diff(answers["ns"])]
    # 64 packets wait, 2.1 ms; an ACK leaves after the one that is on its way and two that are fetched.
    assert max(came[:100]) < 4 * PACKET_BYTES * 8
    assert all(b >= a for a, b in itertools.pairwise(answers["psn"].tolist()))
