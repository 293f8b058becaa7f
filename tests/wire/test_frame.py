# SPDX-License-Identifier: Apache-2.0
"""Frames survive the way to bytes and back; what is no frame is refused in one known way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dpu_app.wire import tables as wire_tables
from dpu_app.wire.columns import pack_columns, unpack_columns
from dpu_app.wire.errors import FrameFormatError, FrameSchemaError, PulseWireError
from dpu_app.wire.frame import (
    SCHEMA,
    CaptureKind,
    CaptureMode,
    ClockInfo,
    Frame,
    NicIdentity,
    decode_frame,
    encode_frame,
)
from dpu_app.wire.tables import MAX_SECTION_BYTES, TABLE_DTYPES, WINDOWS, Section, Tables, WindowBlob
from tests.wire.golden.make_frame_v1 import GOLDEN, WINDOW_ROWS, golden_frame

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=20).filter(lambda text: text.isprintable())
MODES = st.sampled_from(
    [CaptureMode(), CaptureMode(CaptureKind.STEERED), CaptureMode(CaptureKind.SAMPLED, 6)]
)


@st.composite
def random_tables(draw: st.DrawFn) -> Tables:
    arrays = {}
    for name in draw(st.sets(st.sampled_from(sorted(TABLE_DTYPES)))):
        dtype = TABLE_DTYPES[name]
        rows = draw(st.integers(0, 20))
        content = draw(st.binary(min_size=rows * dtype.itemsize, max_size=rows * dtype.itemsize))
        arrays[name] = np.frombuffer(content, dtype)
    content = st.binary(min_size=1, max_size=50)
    windows = st.builds(WindowBlob, I64, U64, st.binary(max_size=50))
    series = st.builds(WindowBlob, I64, U64, series=content)
    return Tables.of(arrays, draw(st.none() | windows | series))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    begin_ns, end_ns = sorted((draw(I64), draw(I64)))
    return Frame(
        nic=NicIdentity(draw(TEXT), draw(TEXT), tuple(draw(st.lists(TEXT, max_size=3)))),
        boot_id=draw(TEXT),
        sequence=draw(U64),
        begin_ns=begin_ns,
        end_ns=end_ns,
        clock=ClockInfo(draw(TEXT), draw(st.none() | U64)),
        clock_pairs=tuple(draw(st.lists(st.tuples(I64, I64), max_size=3))),
        mode=draw(MODES),
        losses=draw(st.dictionaries(TEXT, U64, max_size=3)),
        packets=draw(st.dictionaries(TEXT, U64, max_size=3)),
        counters=draw(st.dictionaries(TEXT, U64, max_size=3)),
        final=draw(st.booleans()),
        tables=draw(random_tables()),
    )


@given(frames())
def test_a_frame_survives_encoding_with_every_table(frame: Frame) -> None:
    again = decode_frame(encode_frame(frame))
    assert again == frame
    for name in TABLE_DTYPES:
        assert getattr(again.tables, name).tobytes() == getattr(frame.tables, name).tobytes()
    assert again.tables.window_blob == frame.tables.window_blob


@given(st.sampled_from(sorted(TABLE_DTYPES)), st.data())
def test_columns_are_restored_from_any_bytes(name: str, data: st.DataObject) -> None:
    dtype = TABLE_DTYPES[name]
    rows = data.draw(st.integers(0, 30))
    table = np.frombuffer(
        data.draw(st.binary(min_size=rows * dtype.itemsize, max_size=rows * dtype.itemsize)), dtype
    )
    assert unpack_columns(pack_columns(table), dtype, rows).tobytes() == table.tobytes()


def test_reading_one_table_decompresses_no_other() -> None:
    frame = decode_frame(encode_frame(golden_frame()))
    assert len(frame.tables.messages) == 5
    decoded = [name for name in (*TABLE_DTYPES, WINDOWS) if frame.tables.is_decoded(name)]
    assert decoded == ["messages"]


def test_the_golden_frame_of_schema_1_is_still_read() -> None:
    frame, expected = decode_frame(GOLDEN.read_bytes()), golden_frame()
    assert frame == expected
    for name in TABLE_DTYPES:
        assert getattr(frame.tables, name).tobytes() == getattr(expected.tables, name).tobytes()
    assert frame.tables.windows().tolist() == WINDOW_ROWS


def accept_or_refuse(data: bytes) -> None:
    """Decode all of it; PulseWireError is the only error allowed."""
    with suppress(PulseWireError):
        decode_frame(data).tables.decode_all()


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_change_of_golden_bytes_decodes_or_is_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOLDEN.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    accept_or_refuse(bytes(data))


def test_every_single_byte_change_of_the_golden_frame_decodes_or_is_refused() -> None:
    golden = GOLDEN.read_bytes()
    for place in range(len(golden)):
        for flip in (0x01, 0x80, 0xFF):
            accept_or_refuse(golden[:place] + bytes([golden[place] ^ flip]) + golden[place + 1 :])


def test_a_cut_off_frame_is_refused() -> None:
    golden = GOLDEN.read_bytes()
    for size in range(len(golden)):
        with pytest.raises(PulseWireError):
            decode_frame(golden[:size])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PulseWireError):
        decode_frame(data)


def changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    fields = msgpack.unpackb(GOLDEN.read_bytes())
    change(fields)
    packed: bytes = msgpack.packb(fields)
    return packed


def test_another_schema_is_named_as_such() -> None:
    with pytest.raises(FrameSchemaError, match=f"schema {SCHEMA + 1}"):
        decode_frame(changed(lambda fields: fields.update(schema=SCHEMA + 1)))


def test_sections_and_fields_of_later_versions_are_kept_or_passed_over() -> None:
    def add(fields: dict[str, Any]) -> None:
        fields["sections"]["novel"] = [7, 3, b"abc"]
        fields["novel"] = {"a": 1}

    frame = decode_frame(changed(add))
    assert frame.tables.sections()["novel"] == Section(7, 3, b"abc")
    assert decode_frame(encode_frame(frame)).tables.sections()["novel"] == Section(7, 3, b"abc")


def test_a_section_that_claims_too_much_is_refused_before_memory_is_taken() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    itemsize = TABLE_DTYPES["events"].itemsize
    for rows, raw_bytes, data in [
        (MAX_SECTION_BYTES, MAX_SECTION_BYTES * itemsize, bomb),
        (1, itemsize, bomb),
        (2**64 - 1, 0, bomb),
        ((1 << 20) // itemsize, 1 << 20, bomb + b"x"),
    ]:
        frame = decode_frame(
            changed(lambda fields, s=[rows, raw_bytes, data]: fields["sections"].update(events=s))  # type: ignore[misc]
        )
        with pytest.raises(FrameFormatError, match="events"):
            _ = frame.tables.events


def test_windows_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_tables, "MAX_WINDOWS", 3)
    with pytest.raises(FrameFormatError, match="more than the 3 windows"):
        golden_frame().tables.windows()


@pytest.mark.parametrize("name", sorted(msgpack.unpackb(GOLDEN.read_bytes())) if GOLDEN.exists() else [])
def test_every_field_is_required_and_checked(name: str) -> None:
    with pytest.raises(FrameFormatError, match=name):
        decode_frame(changed(lambda fields: fields.pop(name)))
    wrong_values: list[object] = [None, -1.5, b"x", [[]], {1: 2} if name == "boot_id" else "\0" * 1000]
    for wrong in wrong_values:
        with pytest.raises(PulseWireError):
            decode_frame(changed(lambda fields, wrong=wrong: fields.update({name: wrong})))  # type: ignore[misc]
