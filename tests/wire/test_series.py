# SPDX-License-Identifier: Apache-2.0
"""Windows over a budget: sums stay exact, what is no series is refused, and frames say what was given up."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpu_app.meter.metering import tables_of
from dpu_app.wire import records
from dpu_app.wire.frame import Frame, NicIdentity, decode_frame, encode_frame
from dpu_app.wire.pieces import spread_pieces
from pulse_native import Interval, Meter, decode_series
from tests.wire.golden.make_frame_v1_series import GOLDEN_SERIES, PIECE_ROWS, golden_series_frame

WINDOW_NS = 8_000
FLOW_BYTES = 64
SLACK_BYTES = 1 << 16


def packets_of(rows: list[tuple[int, int, int]]) -> np.ndarray:
    packets = np.zeros(len(rows), records.PACKET)
    packets["src"][:, 10:12] = packets["dst"][:, 10:12] = 255
    packets["src"][:, 15], packets["dst"][:, 15] = 1, 2
    packets["family"], packets["opcode"] = 4, 0x07
    packets["ns"] = np.cumsum([gap for gap, _, _ in rows]) + 10**15
    packets["dest_qpn"] = [flow for _, flow, _ in rows]
    packets["payload_bytes"] = [size for _, _, size in rows]
    for flow in range(8):
        mine = packets["dest_qpn"] == flow
        packets["psn"][mine] = np.arange(mine.sum())
    return packets


rows_strategy = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(0, 7), st.sampled_from([0, 1, 700, 4096, 4096, 4096])),
    min_size=50,
    max_size=600,
)


def cut(meter: Meter, packets: np.ndarray) -> Interval:
    return meter.cut(int(packets["ns"][0]), int(packets["ns"][-1]) + 1)


@settings(max_examples=100)
@given(rows_strategy, st.sampled_from([64, 256, 1024]))
def test_over_any_budget_sums_are_exact_and_times_within_what_a_piece_says(
    rows: list[tuple[int, int, int]], budget: int
) -> None:
    packets = packets_of(rows)
    wide, tight = Meter(window_ns=WINDOW_NS), Meter(window_ns=WINDOW_NS, window_budget_bytes=budget)
    wide.update_records(packets)
    tight.update_records(packets)
    exact, kept = cut(wide, packets), cut(tight, packets)
    truth = decode_series(exact.series, WINDOW_NS)
    pieces = decode_series(kept.series, WINDOW_NS)
    assert (truth["windows"] == 1).all()
    assert kept.counters["windows_lost"] == 0
    assert len(kept.series) <= budget + (FLOW_BYTES + 16) * 8
    assert kept.counters["windows_averaged"] == pieces["windows"][pieces["windows"] > 1].sum()
    for piece in pieces:
        end = piece["start_ns"] + int(piece["windows"]) * WINDOW_NS
        inside = (
            (truth["flow"] == piece["flow"])
            & (truth["start_ns"] >= piece["start_ns"])
            & (truth["start_ns"] < end)
        )
        assert truth["bytes"][inside].sum() == piece["bytes"]
        assert truth["packets"][inside].sum() == piece["packets"]
    assert pieces["packets"].sum() == truth["packets"].sum()


@given(
    st.lists(
        st.tuples(st.integers(0, 2**40), st.integers(0, 2**31), st.integers(1, 500)), min_size=1, max_size=20
    )
)
def test_spreading_a_piece_keeps_its_sums(rows: list[tuple[int, int, int]]) -> None:
    pieces = np.zeros(len(rows), records.PIECE)
    for number, (size, packets, windows) in enumerate(rows):
        bounded = min(size, windows * (2**32 - 1))
        pieces[number] = (number * 10**9, bounded, 1, packets, windows, 0)
    spread = spread_pieces(pieces, 1_000)
    assert spread["bytes"].sum(dtype=np.uint64) == pieces["bytes"].sum()
    assert spread["packets"].sum(dtype=np.uint64) == pieces["packets"].sum(dtype=np.uint64)
    assert (np.diff(spread["start_ns"]) > 0).all()


@settings(max_examples=500)
@given(st.binary(max_size=200), st.integers(1, 2**40))
def test_bytes_that_are_no_series_are_refused_or_read(section: bytes, window_ns: int) -> None:
    with suppress(ValueError):
        rows = decode_series(section, window_ns, 1000)
        assert len(rows) <= 1000


def test_a_frame_tells_how_many_windows_are_averages() -> None:
    rng = np.random.default_rng(1)
    packets = packets_of(
        [(int(gap), int(flow), 4096) for gap, flow in rng.integers(1, 9_000, (5000, 2)) % [9000, 8]]
    )
    meter = Meter(window_ns=WINDOW_NS, window_budget_bytes=1024)
    meter.update_records(packets)
    interval = cut(meter, packets)
    frame = Frame(
        NicIdentity("m", "n"), "boot", 0, interval.begin_ns, interval.end_ns, tables_of(interval),
        losses={"windows_averaged": interval.counters["windows_averaged"]},
    )  # fmt: skip
    again = decode_frame(encode_frame(frame))
    assert again.losses["windows_averaged"] > 0
    assert again.tables.pieces()["windows"].max() > 1
    assert again.tables.windows()["bytes"].sum(dtype=np.uint64) == 5000 * 4096


def test_the_golden_frame_with_a_series_is_still_read() -> None:
    frame, expected = decode_frame(GOLDEN_SERIES.read_bytes()), golden_series_frame()
    assert frame == expected
    assert frame.tables.window_blob == expected.tables.window_blob
    assert frame.tables.pieces().tolist() == PIECE_ROWS
    inside = frame.tables.windows()
    assert inside["packets"][(inside["flow"] == 3)].tolist() == [2, 1, 1, *[97] * 10]
