# SPDX-License-Identifier: Apache-2.0
"""Frames of one NIC join to the same series in any order, with repeats, and however the time was cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpu_app.meter.metering import Metering, MeteringConfig
from dpu_app.wire.frame import CaptureMode, ClockInfo, Frame, NicIdentity, decode_frame, encode_frame
from host_ctl.ingest.capture_file import CaptureFile
from host_ctl.ingest.series import NicSeries, join_frames
from tests.native.captures import pcap

TABLES = ("flows", "messages", "controls", "markers", "events", "ack_histogram")
MODE = CaptureMode()


def measured(path: Path, interval_ns: int) -> list[Frame]:
    """A capture as frames of this interval, sent over the wire."""
    metering = Metering(
        NicIdentity("node0", "mlx5_0", ("10.0.0.1",)),
        "boot",
        MODE,
        ClockInfo("capture"),
        MeteringConfig(interval_ns=interval_ns),
    )
    frames = [f for batch in CaptureFile(path, MODE).batches() for f in metering.feed(batch)]
    return [decode_frame(encode_frame(f)) for f in [*frames, *metering.finish()]]


@pytest.fixture(scope="module")
def capture(recordings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One machine's capture of a small job."""
    path = tmp_path_factory.mktemp("series") / "node0.pcap"
    path.write_bytes(pcap(recordings["slow_nic"].packets["node0"]))
    return path


@pytest.fixture(scope="module")
def frames(capture: Path) -> list[Frame]:
    """The capture in many frames."""
    found = measured(capture, 10_000_000)
    assert len(found) > 10
    return found


def same(a: NicSeries, b: NicSeries, columns: Iterable[str] = TABLES) -> bool:
    """Whether two series hold equal tables and totals."""
    equal = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in columns)
    return equal and (a.packets, a.lost, a.first_ns, a.last_ns) == (b.packets, b.lost, b.first_ns, b.last_ns)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_order_and_repeats_of_frames_do_not_matter(data: st.DataObject, frames: list[Frame]) -> None:
    sent = data.draw(st.permutations(frames))
    again = data.draw(st.lists(st.sampled_from(frames), max_size=5))
    assert same(join_frames([*sent, *again]), join_frames(frames))


def test_short_intervals_sum_to_what_one_long_interval_holds(capture: Path, frames: list[Frame]) -> None:
    (whole,) = measured(capture, 3600 * 10**9)
    short, long = join_frames(frames), join_frames([whole])
    pairing = ("reverse_flow", "reverse_confidence")
    for name in (n for n in long.flows.dtype.names if n not in pairing):
        assert np.array_equal(short.flows[name], long.flows[name]), name
    for name in ("controls", "markers"):
        assert np.array_equal(np.sort(getattr(short, name)), np.sort(getattr(long, name))), name
    order = ("flow", "psn", "start_ns")
    assert np.array_equal(np.sort(short.messages, order=order), np.sort(long.messages, order=order))
    assert short.packets == long.packets


def test_a_missing_frame_is_missing_and_nothing_else(frames: list[Frame]) -> None:
    whole, part = join_frames(frames), join_frames([f for f in frames if f.sequence != 4])
    assert whole.packets - part.packets == int(frames[4].tables.flows["packets"].sum())
    assert len(whole.messages) - len(part.messages) == len(frames[4].tables.messages)


def test_losses_add_up_and_the_witness_is_never_before_the_last_packet(frames: list[Frame]) -> None:
    lossy = [replace(f, losses={"capture_interface": f.sequence}) for f in frames]
    joined = join_frames(lossy, witness_ns=1)
    assert joined.lost == sum(f.sequence for f in frames)
    assert joined.witness_ns == joined.last_ns
    assert join_frames(frames, witness_ns=joined.last_ns + 5).witness_ns == joined.last_ns + 5


def test_no_frame_and_frames_of_two_nics_are_refused(frames: list[Frame]) -> None:
    with pytest.raises(ValueError, match="without a single frame"):
        join_frames([])
    with pytest.raises(ValueError, match="different NICs"):
        join_frames([frames[0], replace(frames[1], nic=NicIdentity("node1", "mlx5_0"))])
