# SPDX-License-Identifier: Apache-2.0
"""Messages between DPU and controller: what is encoded is decoded, and nothing else is believed."""

from __future__ import annotations

import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpu_app.wire.frame import MAX_FRAME_BYTES
from dpu_app.wire.transport import (
    HEAD_BYTES,
    MAX_CONTROL_BYTES,
    MAX_POSITIONS,
    Ack,
    Decoder,
    FrameData,
    Hello,
    Limits,
    Message,
    Ping,
    Pong,
    Position,
    Refuse,
    RefuseReason,
    TransportError,
    Welcome,
    encode,
)

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=40)
POSITIONS = st.lists(st.builds(Position, TEXT, TEXT, U64), max_size=5).map(tuple)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, TEXT, TEXT, TEXT, POSITIONS, I64, st.lists(U64, max_size=4).map(tuple), TEXT),
    st.builds(Welcome, POSITIONS, I64, st.builds(Limits, U64, U64, U64, U64)),
    st.builds(FrameData, st.binary(min_size=1, max_size=600)),
    st.builds(Ack, POSITIONS),
    st.builds(Refuse, st.sampled_from(RefuseReason), TEXT, st.none() | st.builds(Position, TEXT, TEXT, U64)),
    st.builds(Ping, U64, I64),
    st.builds(Pong, U64, I64, I64, I64),
)


def control(kind: int, fields: object) -> bytes:
    """A message made without the product's own encoder."""
    body = msgpack.packb(fields)
    return struct.pack("<IB", len(body), kind) + body


@given(st.lists(MESSAGES, max_size=6), st.data())
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(
    messages: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(encode(message) for message in messages)
    decoder = Decoder()
    seen: list[Message] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += decoder.feed(stream[:size])
        stream = stream[size:]
    assert seen == messages
    assert decoder.buffered_bytes == 0


@given(st.binary(max_size=400), st.integers(1, 7))
def test_whatever_arrives_is_a_message_or_a_transport_error(body: bytes, kind: int) -> None:
    decoder = Decoder()
    try:
        messages = list(decoder.feed(struct.pack("<IB", len(body), kind) + body))
    except TransportError:
        return
    assert len(messages) == 1


@given(st.binary(max_size=3000))
def test_a_stream_of_noise_never_holds_more_than_was_fed(noise: bytes) -> None:
    decoder = Decoder(max_frame_bytes=1000)
    try:
        list(decoder.feed(noise))
    except TransportError:
        return
    assert decoder.buffered_bytes <= HEAD_BYTES + MAX_CONTROL_BYTES


@pytest.mark.parametrize(
    ("kind", "most"), [(3, MAX_FRAME_BYTES), (1, MAX_CONTROL_BYTES), (99, MAX_CONTROL_BYTES)]
)
def test_a_length_beyond_the_limit_is_refused_before_its_bytes_arrive(kind: int, most: int) -> None:
    assert list(Decoder().feed(struct.pack("<IB", most, kind))) == []
    with pytest.raises(TransportError, match="allowed"):
        list(Decoder().feed(struct.pack("<IB", most + 1, kind)))


def test_a_receiver_may_set_a_lower_limit_for_frames() -> None:
    assert list(Decoder(max_frame_bytes=10).feed(encode(FrameData(bytes(10))))) == [FrameData(bytes(10))]
    with pytest.raises(TransportError, match="allowed"):
        list(Decoder(max_frame_bytes=10).feed(encode(FrameData(bytes(11)))))


def test_messages_before_the_wrong_one_are_still_given() -> None:
    given = Decoder().feed(encode(Ping(1, 2)) + control(4, {"durable": 7}))
    assert next(given) == Ping(1, 2)
    with pytest.raises(TransportError, match="ack message: field durable"):
        next(given)


def test_kinds_and_fields_of_later_versions_are_passed_over() -> None:
    ping = control(6, {"number": 1, "sent_ns": 2, "new": [1, 2]})
    assert list(Decoder().feed(control(200, {"x": 1}) + ping)) == [Ping(1, 2)]


def test_a_reason_of_a_later_version_is_read_as_other() -> None:
    (message,) = Decoder().feed(control(5, {"reason": "weather", "text": "rain", "frame": None}))
    assert message == Refuse(RefuseReason.OTHER, "rain")


@pytest.mark.parametrize("message", [Ack((Position("a", "b", 1),) * (MAX_POSITIONS + 1)), FrameData(b"")])
def test_what_no_reader_would_take_cannot_be_sent(message: Message) -> None:
    with pytest.raises(TransportError, match="cannot be sent"):
        encode(message)


def test_a_refusal_may_be_told_at_any_length() -> None:
    (message,) = Decoder().feed(encode(Refuse(RefuseReason.BUSY, "x" * 9999)))
    assert message == Refuse(RefuseReason.BUSY, "x" * 256)


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_clock_offset_is_within_half_the_round_trip(
    offset_ns: int, there_ns: int, thinking_ns: int, back_ns: int
) -> None:
    asked_ns = 1_000_000
    received_ns = asked_ns + there_ns + offset_ns
    pong = Pong(1, asked_ns, received_ns, received_ns + thinking_ns)
    estimate_ns, round_trip_ns = pong.clock_offset(asked_ns + there_ns + thinking_ns + back_ns)
    assert round_trip_ns == there_ns + back_ns
    assert abs(estimate_ns - offset_ns) <= round_trip_ns / 2 + 1
