# SPDX-License-Identifier: Apache-2.0
"""What the server does with peers that keep to the protocol, and with those that do not."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator

import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dpu_app.wire.tables import MAX_SECTION_BYTES
from dpu_app.wire.transport import Ack, FrameData, Hello, Ping, Pong, Position, Refuse, RefuseReason, encode
from tests.controller.running import Peer, Pki, Service, made_frame, wait_for

NIC = "mlx5_0"


def frame(sequence: int, boot_id: str = "life", *, machine: str = "node1", nic: str = NIC) -> FrameData:
    """A frame to be sent."""
    return FrameData(made_frame(machine, nic, boot_id, sequence))


def changed(sequence: int, **fields: object) -> FrameData:
    """A frame with other fields than an honest one has."""
    content = msgpack.unpackb(frame(sequence).data)
    return FrameData(msgpack.packb(content | fields))


def until_acknowledged(peer: Peer, sequence: int) -> None:
    """Wait for the acknowledgement of a frame."""
    while not any(position.sequence >= sequence for position in peer.receive(Ack).durable):
        pass


@pytest.fixture
def peer(service: Service, pki: Pki) -> Iterator[Peer]:
    """A connection that has been welcomed."""
    with Peer(service.port, pki.client("node1")) as made:
        made.greet("node1")
        yield made


def test_what_is_on_disk_is_told_up_to_the_first_hole(service: Service, pki: Pki, peer: Peer) -> None:
    peer.send(frame(0), frame(1), frame(3))
    until_acknowledged(peer, 3)
    kept = (Position(NIC, "life", 9), Position(NIC, "unknown", 4), Position("other", "life", 4))
    with Peer(service.port, pki.client("node1")) as again:
        assert again.greet("node1", kept=kept).durable == (Position(NIC, "life", 1),)


def test_repeated_late_and_missing_frames_are_counted_and_kept_once(service: Service, peer: Peer) -> None:
    for sequence in (0, 1, 1, 5, 3, 5):
        peer.send(frame(sequence))
    peer.send(frame(6))
    until_acknowledged(peer, 6)
    wait_for(lambda: service.metric("pulse_nic_frames_total") == 7, "frames counted")
    assert service.metric("pulse_nic_duplicates_total") == 2
    assert service.metric("pulse_nic_late_total") == 1
    assert service.metric("pulse_nic_missing_frames") == 2
    assert service.metric("pulse_nic_reordered_total") == 3
    assert [stored.key.sequence for stored in service.stored()] == [0, 1, 3, 5, 6]


def test_clocks_are_read_over_the_connection(service: Service, peer: Peer) -> None:
    ahead_ns = 5_000_000_000
    for _ in range(3):
        ping = peer.receive(Ping)
        received_ns = time.time_ns() + ahead_ns
        peer.send(Pong(ping.number, ping.sent_ns, received_ns, time.time_ns() + ahead_ns))
    wait_for(lambda: service.metric("pulse_nic_clock_offset_seconds") != 0, "an estimate")
    offset_s, uncertainty_s = (
        service.metric(f"pulse_nic_clock_{what}_seconds") for what in ("offset", "uncertainty")
    )
    assert uncertainty_s > 0
    assert abs(offset_s - 5) <= uncertainty_s
    peer.send(frame(0))
    until_acknowledged(peer, 0)
    (stored,) = service.stored()
    assert abs(stored.key.clock_offset_ns - ahead_ns) <= stored.key.clock_uncertainty_ns
    # The frame's times are brought to the controller's clock.
    assert stored.key.begin_ns == 1_700_000_000_000_000_000 - stored.key.clock_offset_ns


def test_a_ping_is_answered(peer: Peer) -> None:
    peer.send(Ping(77, 123))
    pong = peer.receive(Pong)
    assert (pong.number, pong.ping_sent_ns) == (77, 123)
    assert pong.received_ns <= pong.sent_ns


@pytest.mark.parametrize(("machine", "nic"), [("node2", NIC), ("node1", "mlx5_9")], ids=["machine", "nic"])
def test_a_frame_of_another_machine_or_nic_is_refused_and_the_rest_goes_on(
    service: Service, peer: Peer, machine: str, nic: str
) -> None:
    peer.send(frame(0, machine=machine, nic=nic))
    refusal = peer.receive(Refuse)
    assert (refusal.reason, refusal.frame) == (RefuseReason.IDENTITY, Position(NIC, "life", 0))
    peer.send(frame(1))
    until_acknowledged(peer, 1)
    wait_for(lambda: service.metric("pulse_ingest_refused_identity_total") == 1, "the refusal counted")
    assert [(stored.key.machine, stored.key.sequence) for stored in service.stored()] == [("node1", 1)]


def test_a_greeting_in_the_name_of_another_machine_is_refused(service: Service, pki: Pki) -> None:
    with Peer(service.port, pki.client("node1")) as liar:
        liar.send(Hello("node2", NIC, "life", (), 0, (1,)))
        refusal = liar.receive(Refuse)
        assert refusal.reason is RefuseReason.IDENTITY
        assert "its certificate says node1" in refusal.text
        assert liar.is_closed()


def test_names_that_could_leave_a_folder_are_refused(service: Service, pki: Pki) -> None:
    with Peer(service.port, pki.client("node1")) as climber:
        climber.send(Hello("node1", "../../etc/x", "life", (), 0, (1,)))
        assert climber.receive(Refuse).reason is RefuseReason.IDENTITY


def test_frames_of_a_later_schema_are_refused_in_the_greeting_or_one_by_one(
    service: Service, pki: Pki
) -> None:
    with Peer(service.port, pki.client("node1")) as later:
        later.send(Hello("node1", NIC, "life", (), 0, (2, 3)))
        assert later.receive(Refuse).reason is RefuseReason.SCHEMA
        assert later.is_closed()
    with Peer(service.port, pki.client("node1")) as mixed:
        mixed.greet("node1")
        mixed.send(changed(4, schema=2))
        refusal = mixed.receive(Refuse)
        assert (refusal.reason, refusal.frame) == (RefuseReason.SCHEMA, Position(NIC, "life", 4))
        mixed.send(frame(5))
        until_acknowledged(mixed, 5)


def bombs() -> dict[str, dict[str, list[object]]]:
    """Sections that claim, or hide, far more than they hold."""
    zeros = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(60 << 20))
    return {
        "too much at once": {f"s{n}": [0, 60 << 20, zeros] for n in range(5)},
        "too much claimed": {"flows": [1, 1 << 40, zeros]},
        "less claimed than inside": {"flows": [1, 176, zeros]},
        "no zstd": {"flows": [1, 176, b"garbage"]},
    }


@pytest.mark.parametrize("name", bombs())
def test_a_decompression_bomb_is_refused_unopened(service: Service, peer: Peer, name: str) -> None:
    peer.send(changed(0, sections=bombs()[name]))
    refusal = peer.receive(Refuse)
    assert (refusal.reason, refusal.frame) == (RefuseReason.FRAME, Position(NIC, "life", 0))
    peer.send(frame(1))
    until_acknowledged(peer, 1)
    assert [stored.key.sequence for stored in service.stored()] == [1]


def test_a_section_larger_than_the_schema_allows_is_refused_too(peer: Peer) -> None:
    claimed = MAX_SECTION_BYTES + 1
    header = zstandard.ZstdCompressor(write_content_size=True).compressobj(size=claimed)
    content = header.compress(bytes(1 << 20)) + header.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    peer.send(changed(0, sections={"flows": [1, claimed, content]}))
    assert peer.receive(Refuse).reason is RefuseReason.FRAME


def test_damaged_frames_that_say_whose_they_are_are_refused_one_by_one(service: Service, peer: Peer) -> None:
    peer.send(changed(0, end_ns=0), changed(1, mode=["some", 0]), frame(2))
    refused = [peer.receive(Refuse) for _ in range(2)]
    assert {(each.reason, each.frame) for each in refused} == {
        (RefuseReason.FRAME, Position(NIC, "life", 0)), (RefuseReason.FRAME, Position(NIC, "life", 1))
    }  # fmt: skip
    wait_for(lambda: len(service.stored()) == 1, "the good frame kept")


@pytest.mark.parametrize(
    "junk",
    [
        secrets.token_bytes(5000),
        (1 << 31).to_bytes(4, "little") + b"\x03" + bytes(100),
        (17 << 20).to_bytes(4, "little") + b"\x03" + bytes(100),
        bytes(5),
        b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n",
    ],
    ids=["random", "2 GiB", "more than the limit", "empty", "http"],
)
def test_bytes_that_are_no_message_end_the_connection_and_nothing_else(
    service: Service, pki: Pki, peer: Peer, junk: bytes
) -> None:
    with Peer(service.port, pki.client("node7")) as vandal:
        vandal.greet("node7")
        vandal.send(junk)
        assert vandal.is_closed()
    peer.send(frame(0))
    until_acknowledged(peer, 0)


def test_a_frame_that_is_cut_off_is_not_kept(service: Service, pki: Pki) -> None:
    with Peer(service.port, pki.client("node1")) as cut:
        cut.greet("node1")
        cut.send(frame(0))
        until_acknowledged(cut, 0)
        whole = frame(1).data
        cut.send(len(whole).to_bytes(4, "little") + b"\x03" + whole[:-10])
    wait_for(lambda: service.metric("pulse_nic_connected") == 0, "the connection ended")
    assert [stored.key.sequence for stored in service.stored()] == [0]


def test_a_peer_that_sends_byte_by_byte_is_dropped_while_others_go_on(
    service: Service, pki: Pki, peer: Peer
) -> None:
    with Peer(service.port, pki.client("node7")) as slow:
        slow.greet("node7")
        slow.send((1000).to_bytes(4, "little") + b"\x03")
        dropped = threading.Event()

        def dribble() -> None:
            try:
                while True:
                    slow.send(b"\0")
                    time.sleep(0.1)
            except OSError:
                dropped.set()

        thread = threading.Thread(target=dribble)
        thread.start()
        sequence = 0
        while not dropped.is_set() and sequence < 10_000:
            peer.send(frame(sequence))
            until_acknowledged(peer, sequence)
            sequence += 1
        thread.join()
    assert dropped.is_set()
    assert sequence > 1
    wait_for(lambda: service.metric("pulse_ingest_too_slow_total") == 1, "the slow peer counted")


def test_a_peer_that_says_nothing_is_dropped(service: Service, pki: Pki) -> None:
    with Peer(service.port, pki.client("node1")) as silent:
        assert silent.is_closed()  # no greeting
    with Peer(service.port, pki.client("node1")) as silent:
        silent.greet("node1")
        assert silent.is_closed()
    wait_for(lambda: service.metric("pulse_ingest_silent_total") == 1, "silence counted")


def test_a_peer_that_reads_no_answers_is_dropped(service: Service, pki: Pki) -> None:
    questions = b"".join(encode(Ping(number, 0)) for number in range(1000))
    with Peer(service.port, pki.client("node7")) as deaf:
        deaf.greet("node7")
        # Nothing is wrong with what it asks, so only its not reading can end this.
        with contextlib.suppress(OSError):
            for _ in range(10_000):
                deaf.send(questions)
    wait_for(lambda: service.metric("pulse_ingest_too_slow_total") == 1, "the deaf peer counted")


def test_a_frame_before_the_greeting_or_a_second_greeting_ends_the_connection(
    service: Service, pki: Pki
) -> None:
    with Peer(service.port, pki.client("node1")) as early:
        early.send(frame(0))
        assert early.receive(Refuse).reason is RefuseReason.PROTOCOL
    with Peer(service.port, pki.client("node1")) as twice:
        twice.greet("node1")
        twice.send(Hello("node1", NIC, "life", (), 0, (1,)))
        assert twice.receive(Refuse).reason is RefuseReason.PROTOCOL
    assert service.stored() == []


def test_a_nic_that_connects_anew_takes_the_place_of_its_old_connection(
    service: Service, pki: Pki, peer: Peer
) -> None:
    with Peer(service.port, pki.client("node1")) as newer:
        newer.greet("node1")
        assert peer.is_closed()
        newer.send(frame(0))
        until_acknowledged(newer, 0)
    wait_for(lambda: service.metric("pulse_ingest_replaced_total") == 1, "the change counted")


def test_what_came_before_sigterm_is_durable_and_peers_are_told(service: Service, peer: Peer) -> None:
    peer.send(*[frame(sequence) for sequence in range(20)])
    until_acknowledged(peer, 0)
    assert service.terminate() == 0
    assert peer.receive(Refuse).reason is RefuseReason.STOPPING
    assert {stored.key.sequence for stored in service.stored()} == set(range(20))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A controller without TLS."""
    with Service(tmp_path_factory.mktemp("plain"), None, limits__frames_per_s=10_000.0) as running:
        yield running


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 12), max_size=15), min_size=1, max_size=4),
    st.integers(0, 2),
)
def test_any_order_and_any_repeats_over_any_connections_give_the_same_frames(
    plain: Service, connections: list[list[int]], extra: int
) -> None:
    boot_id = secrets.token_hex(8)
    for sequences in connections:
        with Peer(plain.port) as peer:
            peer.greet("node1", boot_id=boot_id)
            peer.send(*[frame(sequence, boot_id) for sequence in sequences])
            # A frame with a sequence above all others: its acknowledgement ends the connection's.
            last = 100 + extra
            peer.send(frame(last, boot_id))
            until_acknowledged(peer, last)
    stored = [each for each in plain.stored() if each.key.boot_id == boot_id]
    expected = {sequence for sequences in connections for sequence in sequences} | {100 + extra}
    assert sorted(each.key.sequence for each in stored) == sorted(expected)
    assert all(each.data == frame(each.key.sequence, boot_id).data for each in stored)
