# SPDX-License-Identifier: Apache-2.0
"""DCQCN: what one flow does after notifications, and what several flows make of a shared port."""

from __future__ import annotations

import numpy as np
import pytest

from pulse_native._sim import ActionKind
from tests.sim.bench import CNP, FRAMING_BYTES, PS_PER_NS, Bench, Ran, data_of, packet_bytes
from tests.sim.naive_dcqcn import ReactionPoint

US = 1_000
MS = 1_000_000
RATE_GBPS = 40.0
# The paper's parameters for 40 Gbit/s.
ALPHA_TIMER_NS, INCREASE_TIMER_NS, CNP_INTERVAL_NS = 55 * US, 55 * US, 50 * US
ADDITIVE, HYPER = 0.001, 0.01
MARK_FROM_BYTES, MARK_ALL_BYTES, MARK_PROBABILITY = 5_000, 200_000, 0.01


def _bench(
    nics: int, increase_bytes: int = 0, cnp_interval_ns: int = CNP_INTERVAL_NS, seed: int = 1
) -> Bench:
    bench = Bench(nics, RATE_GBPS, seed=seed)
    bench.tune(
        "network", mark_from_bytes=MARK_FROM_BYTES, mark_all_bytes=MARK_ALL_BYTES,
        mark_probability=MARK_PROBABILITY, pause_bytes=1 << 20, resume_bytes=3 << 18,
    )  # fmt: skip
    return bench.tune(
        "transport", cnp_interval_ps=cnp_interval_ns * PS_PER_NS,
        alpha_timer_ps=ALPHA_TIMER_NS * PS_PER_NS, increase_timer_ps=INCREASE_TIMER_NS * PS_PER_NS,
        increase_bytes=increase_bytes, additive_share=ADDITIVE, hyper_share=HYPER,
    )  # fmt: skip


# ---- one flow


def _one_notified_flow(bench: Bench) -> int:
    """A flow from NIC 1 to 0 that a burst from NIC 2 disturbs once; its end."""
    end = bench.connect(1, 0)
    bench.inject(end, 65_536, 10**6, depth=16)
    bench.inject(bench.connect(2, 0), 400_000, begin_ns=100 * US)
    return end


def test_one_notification_halves_a_flow_that_comes_back_in_halves_of_the_rest() -> None:
    bench = _bench(3, cnp_interval_ns=10**10)
    end = _one_notified_flow(bench)
    simulation = bench.start()
    simulation.advance(2 * MS)
    notified_ns = int(_notifications(bench.packets(simulation)[1])[0])
    simulation = bench.start()
    shares = []
    for rounds in range(10):
        simulation.advance(notified_ns + rounds * INCREASE_TIMER_NS + 1 * US)
        shares.append(simulation.rate_share(end))
    # Alpha is 1 at first, so the cut is a half; a round of fast recovery goes half of the way back; from
    # 0.999 on the rate is whole.
    assert shares == pytest.approx([1 - 0.5 / 2**rounds for rounds in range(9)] + [1.0], abs=1e-9)


def _notifications(packets: np.ndarray) -> np.ndarray:
    return packets[(packets["opcode"] == CNP) & (packets["dst"][:, 15] == 1)]["ns"]


@pytest.mark.parametrize("increase_bytes", [0, 300_000])
def test_the_rate_follows_the_published_equations_notification_by_notification(increase_bytes: int) -> None:
    bench = _bench(3, increase_bytes)
    end = bench.connect(1, 0)
    bench.inject(end, 65_536, 10**6, depth=16)
    bench.inject(bench.connect(2, 0), 65_536, 10**6, depth=16)
    samples = np.arange(1, 1_000) * 131 * US + 7
    simulation = bench.start()
    shares = []
    for now_ns in samples.tolist():
        simulation.advance(now_ns)
        shares.append(simulation.rate_share(end))
    expected = _replayed(bench.packets(simulation)[1], samples.tolist(), increase_bytes)
    assert min(shares) < 0.4
    assert simulation.counters["notifications"] > 30
    if increase_bytes:
        # Bytes count when the engine takes a packet up, a few packets before the tap sees it: a round may
        # fall on the other side of a sample or of a notification. It is rare, and heals with the next cuts.
        assert np.median(np.abs(np.array(shares) / expected - 1)) < 0.02
    else:
        # Stamps are whole ns, so that a timer may seem to have run out 1 ns early; no sample is that close.
        assert shares == pytest.approx(expected, rel=1e-6)


def _replayed(packets: np.ndarray, samples: list[int], increase_bytes: int) -> list[float]:
    """What the naive reaction point makes of the same notifications and bytes."""
    point = ReactionPoint(ALPHA_TIMER_NS, INCREASE_TIMER_NS, increase_bytes, ADDITIVE, HYPER)
    happened = [(int(ns), "notify", 0) for ns in _notifications(packets)]
    mine = data_of(packets[packets["src"][:, 15] == 1])
    happened += [(int(p["ns"]), "send", int(p["wire_bytes"]) + FRAMING_BYTES) for p in mine]
    happened += [(ns, "sample", 0) for ns in samples]
    shares = []
    for now_ns, what, size in sorted(happened):
        point.wait_until(now_ns)
        if what == "notify":
            point.notify(now_ns)
        elif what == "send":
            point.send(size)
        else:
            shares.append(point.current)
    return shares


def test_packets_leave_at_the_pace_of_the_present_rate() -> None:
    bench = _bench(3, cnp_interval_ns=10**10)
    bench.tune("transport", increase_timer_ps=20 * MS * PS_PER_NS)  # so that the rate stays at a half
    _one_notified_flow(bench)
    ran = bench.run(4 * MS)
    sent = data_of(ran.sent(1))
    paced = sent[sent["ns"] > 2 * MS]
    gaps = np.diff(paced["ns"])
    # Each packet waits for twice its own time on the link; stamps are whole ns, headers differ by 16 bytes.
    assert gaps == pytest.approx(
        (paced["wire_bytes"][:-1] + FRAMING_BYTES) * 8 / RATE_GBPS / 0.5, abs=2 + 2 * 16 * 8 / RATE_GBPS
    )


def test_notifications_of_one_flow_are_at_least_their_interval_apart() -> None:
    gaps = np.diff(_notifications(_flows(8, apart_ns=0).packets[1]))
    assert len(gaps) > 10
    # Each leaves as soon as it may, or a packet of other answers later.
    assert gaps.min() >= CNP_INTERVAL_NS - packet_bytes(0) * 8


# ---- several flows


def _flows(count: int, apart_ns: int, seed: int = 1) -> Ran:
    bench = _bench(count + 1, seed=seed)
    for sender in range(1, count + 1):
        begin_ns = 1 * US + (sender - 1) * apart_ns
        bench.inject(bench.connect(sender, 0), 65_536, 10**6, depth=32, begin_ns=begin_ns)
    return bench.run(100 * MS)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_flows_that_begin_at_different_times_come_to_equal_shares_of_a_marked_port(count: int) -> None:
    ran = _flows(count, apart_ns=500 * US)
    shares = np.array([ran.gbps(0, sender, 50 * MS, 100 * MS) for sender in range(1, count + 1)])
    # Jain's index over 50 ms, of which 0.5 % is left to saw teeth: marks are drawn.
    assert shares.sum() ** 2 / (count * (shares**2).sum()) > 0.99
    assert ran.simulation.counters["notifications"] > 100


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_marked_port_stays_busy_and_its_queue_short(count: int) -> None:
    ran = _flows(count, apart_ns=500 * US)
    used = sum(ran.gbps(0, sender, 50 * MS, 100 * MS) for sender in range(1, count + 1))
    assert used > 0.95 * RATE_GBPS
    assert ran.simulation.counters["pauses"] == 0
    assert ran.simulation.counters["packets_lost"] == 0
    waiting = np.concatenate([_waiting_bytes(ran, sender) for sender in range(1, count + 1)])
    # Above the second threshold every packet is marked, but the mark itself waits in the queue, 40 us, and
    # then for the flow's next notification, 50 us: meanwhile all flows bring a surplus of up to their rate.
    assert np.quantile(waiting, 0.99) < MARK_ALL_BYTES + 0.9 * (40 + 50) * US * RATE_GBPS / 8
    assert np.median(waiting) < MARK_ALL_BYTES / 10


def _waiting_bytes(ran: Ran, sender: int) -> np.ndarray:
    """What the port had before each packet of a sender's second half, from how long it was on its way."""
    sent, came = data_of(ran.sent(sender)), data_of(ran.received(0, sender))
    delay_ns = came["ns"] - sent["ns"][: len(came)]
    way_ns = 2_000 + packet_bytes(4_096) * 8 / RATE_GBPS
    return np.maximum(delay_ns - way_ns, 0)[len(came) // 2 :] * RATE_GBPS / 8


def test_without_marks_the_same_flows_fill_the_queue_up_to_pauses() -> None:
    bench = _bench(5).tune("network", mark_from_bytes=0)
    for sender in range(1, 5):
        bench.inject(bench.connect(sender, 0), 65_536, 10**6, depth=32)
    ran = bench.run(20 * MS)
    assert ran.simulation.counters["notifications"] == 0
    assert ran.simulation.counters["pauses"] > 0


def test_marks_show_at_the_receiver_only_and_never_on_answers() -> None:
    ran = _flows(2, apart_ns=0)
    assert (data_of(ran.received(0))["ecn"] == 3).any()
    assert not (ran.sent(1)["ecn"] == 3).any()
    answers = ran.received(1)
    assert not (answers["ecn"] == 3).any()


def test_a_flow_alone_again_takes_the_whole_port() -> None:
    bench = _bench(3)
    bench.inject(bench.connect(1, 0), 65_536, 10**6, depth=16)
    bench.inject(bench.connect(2, 0), 65_536, 10**6, depth=16)
    bench.act(ActionKind.NIC_DEAD, 2, at_ns=10 * MS)
    ran = bench.run(100 * MS)
    # From nothing, additive: 1 / 0.001 = 1000 rounds of 55 us, 55 ms; then nothing holds it back.
    assert ran.gbps(0, 1, 65 * MS, 100 * MS) == pytest.approx(RATE_GBPS, rel=0.002)
