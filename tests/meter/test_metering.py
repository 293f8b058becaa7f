# SPDX-License-Identifier: Apache-2.0
"""From a packet source to frames: where intervals begin and end, and what their frames tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpu_app.meter.metering import Metering, MeteringConfig, measure
from dpu_app.wire.frame import CaptureMode, Frame, NicIdentity, decode_frame, encode_frame
from pulse_native import CaptureReader, PacketBatch
from tests.native.captures import Packet, Roce, frame, pcap, reth

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
NIC = NicIdentity("node0", "rxe0", ("10.0.0.1",))
WRITE_ONLY = 0x0A


def batch(times: list[int], first_psn: int = 0) -> PacketBatch:
    """Control writes of 64 bytes at these times."""
    packets = []
    for psn, ns in enumerate(times, first_psn):
        data = frame(Roce(opcode=WRITE_ONLY, dest_qpn=7, psn=psn, extension=reth(64), payload=bytes(64)))
        packets.append(Packet(ns, data, len(data)))
    return CaptureReader().feed(pcap(packets))


class ListSource:
    """A source of ready batches that loses five packets before each."""

    mode = CaptureMode()

    def __init__(self, batches: list[PacketBatch]) -> None:
        self._batches = batches
        self._lost = 0

    def batches(self) -> Iterator[PacketBatch]:
        for each in self._batches:
            self._lost += 5
            yield each

    def losses(self) -> Mapping[str, int]:
        return {"ring": self._lost}


def frames_of(*batches: PacketBatch) -> list[Frame]:
    return [decode_frame(encode_frame(each)) for each in measure(ListSource(list(batches)), NIC, "boot")]


def test_intervals_are_aligned_and_silence_makes_no_frame() -> None:
    frames = frames_of(batch([START + 10, START + SECOND - 1, START + SECOND, START + 60 * SECOND + 3]))
    assert [each.begin_ns - START for each in frames] == [0, SECOND, 60 * SECOND]
    assert [each.end_ns - START for each in frames] == [SECOND, 2 * SECOND, 60 * SECOND + 4]
    assert [each.sequence for each in frames] == [0, 1, 2]
    assert [each.final for each in frames] == [False, False, True]
    assert [len(each.tables.controls) for each in frames] == [2, 1, 1]


def test_a_packet_that_comes_late_goes_into_the_interval_that_is_open() -> None:
    frames = frames_of(batch([START, START + SECOND + 5, START + SECOND - 5, START + SECOND + 6]))
    assert [len(each.tables.controls) for each in frames] == [1, 3]


def test_a_clock_that_is_set_back_begins_a_new_interval() -> None:
    frames = frames_of(batch([START + 100 * SECOND]), batch([START, START + 1], first_psn=1))
    assert [each.begin_ns - START for each in frames] == [100 * SECOND, 0]
    assert [each.losses.get("clock_set_back", 0) for each in frames] == [0, 1]


def test_a_clock_that_is_set_ahead_leaves_a_gap_between_two_frames() -> None:
    frames = frames_of(batch([START]), batch([START + 10**17, START + 10**17 + 1], first_psn=1))
    assert [each.begin_ns - START for each in frames] == [0, 10**17]
    assert [int(each.tables.flows["packets"].sum()) for each in frames] == [1, 2]


def test_losses_are_told_once_each() -> None:
    frames = frames_of(batch([START]), batch([START + SECOND]), batch([START + 2 * SECOND]))
    assert [each.losses for each in frames] == [{"capture_ring": 10}, {"capture_ring": 5}, {}]


def test_foreign_packets_are_counted_by_name() -> None:
    arp = Packet(START, bytes(12) + b"\x08\x06" + bytes(46), 60)
    (only,) = frames_of(CaptureReader().feed(pcap([arp])))
    assert only.packets == {"not_ip": 1}
    assert len(only.tables.flows) == 0


def test_a_source_without_packets_has_no_frame() -> None:
    assert frames_of(batch([])) == []


def test_time_without_packets_completes_an_interval() -> None:
    metering = Metering(NIC, "boot")
    assert list(metering.feed(batch([START]))) == []
    metering.note_clock_pair(START, START + 7)
    metering.note_counters({"port_rcv_errors": 3})
    assert list(metering.advance(START + SECOND - 1)) == []
    (first,) = metering.advance(START + SECOND)
    assert first.clock_pairs == ((START, START + 7),)
    assert first.counters == {"port_rcv_errors": 3}
    assert list(metering.advance(START + 5 * SECOND)) == []  # nothing happened
    (last,) = metering.finish()
    assert last.final
    assert last.sequence == 1
    assert last.counters == {}


@given(st.lists(st.integers(0, 5 * SECOND), min_size=1, max_size=30), st.sampled_from([SECOND, SECOND // 10]))
def test_no_packet_is_lost_or_counted_twice(offsets: list[int], interval_ns: int) -> None:
    times = sorted(START + offset for offset in offsets)
    source = ListSource([batch(times[:7]), batch(times[7:], first_psn=len(times[:7]))])
    frames = list(measure(source, NIC, "boot", config=MeteringConfig(interval_ns=interval_ns)))
    assert sorted(ns for each in frames for ns in each.tables.controls["ns"].tolist()) == times
    for each in frames:
        assert all(each.begin_ns <= ns < each.end_ns for ns in each.tables.controls["ns"].tolist())
    assert [each.sequence for each in frames] == list(range(len(frames)))


def test_an_interval_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="interval_ns"):
        MeteringConfig(interval_ns=999)
