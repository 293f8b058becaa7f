# SPDX-License-Identifier: Apache-2.0
"""The kernel's filter, run by the kernel on packets of every shape, beside the parser."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pulse_native
from pulse_native._live import filter_program
from tests.dpu.packets import MIDDLES, WRITE_MIDDLE, carriers, frame, others, plain

_SO_ATTACH_FILTER = 26
_CARRIERS = carriers()
_FOUND_AT_THE_PORT = {
    "roce", "bad_bth", "unknown_opcode", "bad_udp_length",
    "bad_ip_header", "ip_fragment", "truncated_headers",
}  # fmt: skip


@contextmanager
def kernel_filter(*, steered: bool) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets of which the second receives what the filter takes, cut as it says; needs no privilege."""
    program = filter_program(steered=steered)
    memory = ctypes.create_string_buffer(program, len(program))
    source, sink = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with source, sink:
        sink.setsockopt(
            socket.SOL_SOCKET,
            _SO_ATTACH_FILTER,
            struct.pack("@HP", len(program) // 8, ctypes.addressof(memory)),
        )
        sink.setblocking(False)
        yield source, sink


def taken(pair: tuple[socket.socket, socket.socket], packet: bytes) -> bytes | None:
    """What the filter leaves of a packet."""
    source, sink = pair
    source.send(packet)
    try:
        return sink.recv(1 << 16)
    except BlockingIOError:
        return None


def parsed(packet: bytes) -> tuple[str, int]:
    """What the parser says of a packet: outcome and opcode."""
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 16, 1)
    reader = pulse_native.CaptureReader()
    records = reader.feed(head + struct.pack("<IIII", 1, 0, len(packet), len(packet)) + packet).parse()
    return pulse_native.OUTCOME_NAMES[records["outcome"][0]], int(records["opcode"][0])


@pytest.mark.parametrize("steered", [False, True], ids=["all", "steered"])
@pytest.mark.parametrize("name", _CARRIERS)
def test_roce_is_taken_with_just_its_headers_however_it_is_carried(name: str, *, steered: bool) -> None:
    packet = frame(_CARRIERS[name], payload_bytes=1024)
    assert parsed(packet) == ("roce", 10)
    with kernel_filter(steered=steered) as pair:
        left = taken(pair, packet)
    assert left is not None
    assert packet.startswith(left)
    assert len(left) == len(packet) - 1024 - 4


@pytest.mark.parametrize("name", _CARRIERS)
def test_steered_leaves_out_the_middle_of_messages_however_they_are_carried(name: str) -> None:
    with kernel_filter(steered=True) as pair:
        assert taken(pair, frame(_CARRIERS[name], WRITE_MIDDLE)) is None
    with kernel_filter(steered=False) as pair:
        assert taken(pair, frame(_CARRIERS[name], WRITE_MIDDLE)) is not None


@pytest.mark.parametrize("name", others())
def test_what_is_no_roce_is_not_taken(name: str) -> None:
    packet = others()[name]
    assert parsed(packet)[0] != "roce"
    with kernel_filter(steered=False) as pair:
        assert taken(pair, packet) is None


def test_of_all_opcodes_steered_leaves_out_the_middles() -> None:
    with kernel_filter(steered=True) as pair:
        left_out = [opcode for opcode in range(256) if taken(pair, plain(opcode)) is None]
    assert left_out == sorted(MIDDLES)


@settings(max_examples=400)
@given(
    st.sampled_from(sorted(_CARRIERS)),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=4),
    st.one_of(st.none(), st.integers(0, 140)),
)
def test_whatever_the_bytes_no_roce_is_missed_and_nothing_else_is_taken(
    name: str, changes: list[tuple[int, int]], cut: int | None
) -> None:
    packet = bytearray(frame(_CARRIERS[name]))
    for at, value in changes:
        packet[min(at, len(packet) - 1)] = value
    content = bytes(packet)[:cut] or b"\0"
    outcome, opcode = parsed(content)
    with kernel_filter(steered=False) as everything, kernel_filter(steered=True) as steered:
        left, left_steered = taken(everything, content), taken(steered, content)
    if outcome == "roce":
        assert left is not None
        assert parsed(left)[0] in ("roce", "bad_udp_length")
        assert (left_steered is None) == (opcode in MIDDLES)
    elif left is not None:
        assert outcome in _FOUND_AT_THE_PORT
