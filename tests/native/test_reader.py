# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from pulse_native import CaptureReader, CaptureStats, PacketBatch
from tests.native.captures import Packet, Roce, frame, pcap, pcapng, reth

VARIANTS: dict[str, Callable[[list[Packet]], bytes]] = {
    "pcap, little endian": partial(pcap, order="<"),
    "pcap, big endian": partial(pcap, order=">"),
    "pcapng, little endian": partial(pcapng, order="<"),
    "pcapng, big endian": partial(pcapng, order=">"),
}

packets_strategy = st.lists(
    st.builds(
        lambda ns, data, more: Packet(ns, data, len(data) + more),
        st.integers(0, 2**32 * 10**9 - 1),
        st.binary(min_size=1, max_size=80),
        st.integers(0, 9000),
    ),
    max_size=8,
)


def read(file: bytes, cuts: list[int] | None = None) -> tuple[list[Packet], CaptureStats]:
    """Read a file cut at the given places."""
    reader = CaptureReader()
    edges = [0, *sorted(cuts or []), len(file)]
    batches = [reader.feed(file[start:end]) for start, end in pairwise(edges)]
    reader.finish()
    return [packet for batch in batches for packet in packets_of(batch)], reader.stats


def packets_of(batch: PacketBatch) -> list[Packet]:
    return [
        Packet(int(ns), batch.data(index), int(wire_bytes))
        for index, (ns, wire_bytes) in enumerate(zip(batch.ns, batch.wire_bytes, strict=True))
    ]


def sample() -> list[Packet]:
    return [
        Packet(index * 1000, frame(Roce(0x06, reth(8192), b"x" * 60, psn=index)), 4178) for index in range(4)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@given(packets=packets_strategy)
def test_every_format_gives_the_packets_that_were_written(variant: str, packets: list[Packet]) -> None:
    found, stats = read(VARIANTS[variant](packets))
    assert found == packets
    assert stats["packets"] == len(packets)
    assert stats["corrupt"] is None
    assert stats["first_ns"] == min((packet.ns for packet in packets), default=None)
    assert stats["last_ns"] == max((packet.ns for packet in packets), default=None)


@pytest.mark.parametrize("variant", VARIANTS)
@given(packets=packets_strategy, data=st.data())
def test_any_chunking_gives_the_same_packets(
    variant: str, packets: list[Packet], data: st.DataObject
) -> None:
    file = VARIANTS[variant](packets)
    cuts = data.draw(st.lists(st.integers(0, len(file)), max_size=12))
    found, stats = read(file, cuts)
    assert found == packets
    assert stats["bytes"] == len(file)
    assert stats["truncated_bytes"] == 0


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_a_cut_file_keeps_every_complete_packet(variant: str, data: st.DataObject) -> None:
    packets = sample()
    file = VARIANTS[variant](packets)
    length = data.draw(st.integers(4, len(file)))
    found, stats = read(file[:length])
    assert stats["corrupt"] is None
    assert found == packets[: len(found)]
    consumed = VARIANTS[variant](packets[: len(found)])
    if length >= len(consumed):
        assert stats["truncated_bytes"] == length - len(consumed)


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_corrupt_bytes_never_crash_the_reader_or_the_parser(variant: str, data: st.DataObject) -> None:
    file = bytearray(VARIANTS[variant](sample()))
    damage = st.lists(st.tuples(st.integers(0, len(file) - 1), st.integers(0, 255)), min_size=1, max_size=6)
    for place, value in data.draw(damage):
        file[place] = value
    reader = CaptureReader()
    batch = reader.feed(file)
    reader.finish()
    assert len(batch) == reader.stats["packets"] == len(batch.parse())
    assert int(batch.captured_bytes.sum()) < len(file)
    assert all(packet.data in file for packet in packets_of(batch))


@given(file=st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_capture_are_named_in_the_message(file: bytes) -> None:
    found, stats = read(file)
    if stats["corrupt"] is not None and "not a capture" in stats["corrupt"]:
        assert file[:4].hex(" ") in stats["corrupt"]
        assert found == []


def test_an_empty_file_is_told_apart_from_a_file_without_packets() -> None:
    assert read(b"")[1]["corrupt"] == "the file is empty"
    assert read(pcap([]))[1]["corrupt"] is None


def test_columns_are_read_only_views_that_keep_the_batch_alive() -> None:
    packets = sample()
    ns = CaptureReader().feed(pcap(packets)).ns
    gc.collect()
    assert_array_equal(ns, [packet.ns for packet in packets])
    assert ns.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        ns[0] = 1


def test_a_packet_outside_the_batch_is_an_index_error() -> None:
    batch = CaptureReader().feed(pcap(sample()))
    for index in (-1, len(batch)):
        with pytest.raises(IndexError, match="of a batch of 4"):
            batch.data(index)


def test_keep_bytes_bounds_what_is_held_but_not_what_is_counted() -> None:
    batch = CaptureReader(keep_bytes=64).feed(pcap(sample()))
    assert batch.captured_bytes.tolist() == [64] * 4
    assert batch.wire_bytes.tolist() == [4178] * 4


def test_a_buffer_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        CaptureReader().feed(np.zeros(100, np.uint8)[::2])


@pytest.mark.parametrize("threads", [1, 4, 7])
def test_threads_that_share_a_reader_lose_no_byte(threads: int) -> None:
    reader = CaptureReader()
    header = pcap([])
    reader.feed(header)
    record = pcap([Packet(1, b"x" * 50, 50)])[len(header) :]
    counts: list[int] = []

    def work() -> None:
        counts.append(sum(len(reader.feed(record * 10)) for _ in range(200)))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(counts) == reader.stats["packets"] == threads * 2000
