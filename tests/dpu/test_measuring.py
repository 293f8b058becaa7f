# SPDX-License-Identifier: Apache-2.0
"""From packets on a veth pair to frames in the spool, with a ring that is far too small."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from dpu_app.capture.afpacket import AfPacketSource, CaptureConfig
from dpu_app.capture.clocks import StampClock
from dpu_app.meter.metering import Metering, MeteringConfig
from dpu_app.service import measuring as measuring_module
from dpu_app.service.measuring import Measuring
from dpu_app.service.spool import Spool, SpoolConfig
from dpu_app.wire.errors import FrameFormatError
from dpu_app.wire.frame import Frame, NicIdentity, decode_frame, encode_frame
from tests.dpu.devices import Pair, in_namespace, made_pair, needs_root
from tests.dpu.packets import plain

pytestmark = needs_root


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A veth pair of its own for each test."""
    with made_pair() as made:
        yield made


def measured(pair: Pair, capture: CaptureConfig, bursts: list[int]) -> tuple[list[Frame], int, Measuring]:
    """Frames of what was sent in bursts, how many packets were sent, and the measurement that is over."""
    spool = Spool(SpoolConfig())

    def begin() -> Measuring:
        source = AfPacketSource(capture)
        nic = NicIdentity("node1", "mlx5_0")
        metering = Metering(nic, "life", source.mode, config=MeteringConfig(interval_ns=50_000_000))
        clock = StampClock(capture.interface, hardware_stamps=source.hardware_stamps)
        measuring = Measuring(source, metering, clock, spool, capture.interface, None, lambda: None)
        measuring.start()
        return measuring

    measuring = in_namespace(pair.namespace, begin)
    contents = itertools.cycle([plain(psn=number) for number in range(1000)])
    sent = sum(pair.send(itertools.islice(contents, burst)) for burst in bursts)
    measuring.stop()
    assert measuring.failure is None
    frames, number = [], 0
    while (entry := spool.next_after(number)) is not None:
        number = entry.number
        data = spool.load(entry)
        assert data is not None
        frames.append(decode_frame(data))
    return frames, sent, measuring


def test_packets_in_frames_and_losses_in_frames_add_up_to_what_was_sent(pair: Pair) -> None:
    tiny = CaptureConfig(pair.nic, ring_bytes=8192, block_bytes=4096)
    frames, sent, measuring = measured(pair, tiny, [3000] * 4)
    captured = sum(frame.packets.get("roce", 0) for frame in frames)
    lost = sum(frame.losses.get("capture_ring", 0) for frame in frames)
    assert lost > 0
    assert captured + lost == sent
    assert measuring.status().capture["packets"] == captured
    assert measuring.status().capture["dropped"] == lost
    assert frames[-1].final
    assert frames[-1].counters["capture_freezes"] > 0


def test_with_room_enough_nothing_is_lost(pair: Pair) -> None:
    frames, sent, measuring = measured(pair, CaptureConfig(pair.nic), [2000] * 3)
    assert sum(frame.packets.get("roce", 0) for frame in frames) == sent
    assert all("capture_ring" not in frame.losses for frame in frames)
    assert measuring.status().interface_losses == 0


def test_an_interface_without_traffic_makes_no_frame(pair: Pair) -> None:
    frames, sent, _ = measured(pair, CaptureConfig(pair.nic), [])
    assert (frames, sent) == ([], 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_bytes": 5000}, "power of two"),
        ({"ring_bytes": 4096}, "must hold two blocks"),
        ({"rings": 0}, "must be 1 to 64"),
    ],
)
def test_impossible_rings_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CaptureConfig("p0", **changes)  # type: ignore[arg-type]


def test_a_frame_that_no_reader_would_take_is_counted_and_the_measurement_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(frame: Frame) -> bytes:
        if frame.sequence == 1:
            raise FrameFormatError("a section is too large")
        return encode_frame(frame)

    monkeypatch.setattr(measuring_module, "encode_frame", encode)
    frames, _, _ = measured(pair, CaptureConfig(pair.nic), [50] * 200)
    assert 1 not in [frame.sequence for frame in frames]
    assert sum(frame.losses.get("frames_dropped", 0) for frame in frames) == 1
