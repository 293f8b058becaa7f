# SPDX-License-Identifier: Apache-2.0
"""The connection to the controller, over real sockets and real TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dpu_app.service.publisher import (
    ControllerConfig,
    Publisher,
    check_plaintext,
    describe,
    split_address,
    tls_context,
)
from dpu_app.service.spool import Spool, SpoolConfig
from dpu_app.wire.frame import Frame, NicIdentity, encode_frame
from dpu_app.wire.tables import Tables
from dpu_app.wire.transport import DEFAULT_PORT, FrameData, Limits, Position, RefuseReason
from tests.dpu.certificates import Authority
from tests.dpu.controller import Controller

NIC = NicIdentity("node1", "mlx5_0")


def encoded(sequence: int, boot_id: str = "life", counters: int = 0) -> bytes:
    """A frame without tables."""
    some = {f"counter{number}": number for number in range(counters)}
    frame = Frame(NIC, boot_id, sequence, sequence * 100, sequence * 100 + 100, Tables({}), counters=some)
    return encode_frame(frame)


class Sender:
    """A publisher that runs in a loop and thread of its own."""

    def __init__(self, config: ControllerConfig, spool: Spool, boot_id: str = "life") -> None:
        self.spool = spool
        self.loop = asyncio.new_event_loop()
        self.publisher = Publisher(replace(config, backoff_s=0.02, max_backoff_s=0.1), spool, NIC, boot_id)
        self._boot_id = boot_id
        self._thread = threading.Thread(target=self._work)
        self._task: asyncio.Task[None] | None = None
        self._thread.start()

    def put(self, *sequences: int, counters: int = 0) -> None:
        """Hand frames over as the measurement does."""
        for sequence in sequences:
            self.spool.put(self._boot_id, sequence, encoded(sequence, self._boot_id, counters))
        self.loop.call_soon_threadsafe(self.publisher.wake)

    def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self.loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._task = self.loop.create_task(self.publisher.run())
        try:
            self.loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


@contextmanager
def sending(config: ControllerConfig, spool: Spool | None = None, boot_id: str = "life") -> Iterator[Sender]:
    """A sender for the time of a block."""
    sender = Sender(config, spool or Spool(SpoolConfig()), boot_id)
    try:
        yield sender
    finally:
        sender.stop()


def plain(controller: Controller) -> ControllerConfig:
    """The way to a controller without TLS."""
    return ControllerConfig(f"127.0.0.1:{controller.port}", plaintext=True)


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A controller without TLS."""
    with Controller() as made:
        yield made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA."""
    return Authority(tmp_path)


def secured(controller: Controller, authority: Authority, **changes: object) -> ControllerConfig:
    """The way to a controller with TLS, with a certificate of the authority."""
    own = authority.issue("dpu", machine="node1")
    config = ControllerConfig(
        f"127.0.0.1:{controller.port}",
        server_name="head.example",
        ca_file=authority.file,
        cert_file=own.certificate,
        key_file=own.key,
    )
    return replace(config, **changes)  # type: ignore[arg-type]


def test_frames_arrive_in_order_and_are_forgotten_when_acknowledged(controller: Controller) -> None:
    with sending(plain(controller)) as sender:
        sender.put(0, 1, 2)
        controller.wait(lambda: len(controller.frames) == 3)
        sender.put(3, 4)
        controller.wait(lambda: sender.publisher.idle and len(controller.frames) == 5)
    assert controller.keys == [("life", sequence) for sequence in range(5)]
    assert sender.spool.counts().frames == 0
    assert sender.publisher.counts.acknowledged == 5
    (hello,) = controller.hellos
    assert (hello.machine, hello.nic, hello.boot_id, hello.schemas) == ("node1", "mlx5_0", "life", (1,))


def test_clock_readings_are_answered_and_the_controllers_clock_is_estimated(controller: Controller) -> None:
    with sending(plain(controller)) as sender:
        controller.wait(lambda: bool(controller.pongs) and sender.publisher.counts.round_trip_ns is not None)
    pong, received_ns = controller.pongs[0]
    offset_ns, round_trip_ns = pong.clock_offset(received_ns)
    assert pong.number == 7
    # Both sides have one clock here.
    assert abs(offset_ns) <= round_trip_ns / 2 + 1
    counts = sender.publisher.counts
    assert counts.controller_offset_ns is not None
    assert counts.round_trip_ns is not None
    assert abs(counts.controller_offset_ns) <= counts.round_trip_ns / 2 + 1


def test_what_was_not_acknowledged_is_sent_again_after_a_lost_connection(controller: Controller) -> None:
    controller.behaviour.acknowledges = False
    with sending(plain(controller)) as sender:
        sender.put(0, 1, 2)
        controller.wait(lambda: len(controller.frames) == 3)
        assert sender.spool.counts().frames == 3
        controller.behaviour.acknowledges = True
        controller.disconnect()
        controller.wait(lambda: sender.publisher.idle)
    assert controller.keys == [("life", n) for n in (0, 1, 2, 0, 1, 2)]
    assert sender.spool.counts().frames == 0


def test_what_the_controller_already_has_is_not_sent_again(controller: Controller) -> None:
    spool = Spool(SpoolConfig())
    for sequence in range(5):
        spool.put("before", sequence, encoded(sequence, "before"))
    controller._durable[("mlx5_0", "before")] = 2
    with sending(plain(controller), spool) as sender:
        sender.put(0)
        controller.wait(lambda: sender.publisher.idle and len(controller.frames) >= 3)
    assert controller.keys == [("before", 3), ("before", 4), ("life", 0)]
    assert controller.hellos[0].kept[0] == Position("mlx5_0", "before", 4)


def test_frames_wait_while_there_is_no_controller() -> None:
    with Controller() as controller:
        config = plain(controller)
    spool = Spool(SpoolConfig())
    with sending(config, spool) as sender:
        sender.put(0, 1)
        controller.wait(lambda: sender.publisher.status.failures > 2)
        assert spool.counts().frames == 2
        assert "refused" in (sender.publisher.status.error or "").lower()


def test_a_controller_that_stops_reading_is_left_and_gets_everything_later(controller: Controller) -> None:
    controller.behaviour.limits = Limits(silence_ns=1_000_000_000)
    with sending(plain(controller)) as sender:
        sender.put(0)
        controller.wait(lambda: sender.publisher.idle)
        controller.behaviour.reads = False
        sender.put(*range(1, 60), counters=3000)
        controller.wait(lambda: "silent" in (sender.publisher.status.error or ""))
        controller.behaviour.reads = True
        controller.disconnect()
        controller.wait(lambda: sender.publisher.idle and ("life", 59) in controller.keys)
    firsts = list(dict.fromkeys(controller.keys))
    assert firsts == [("life", sequence) for sequence in range(60)]
    assert sender.spool.counts().dropped == 0


def test_no_more_is_sent_than_the_controller_lets_wait(controller: Controller) -> None:
    controller.behaviour.limits = Limits(unacknowledged_frames=3)
    controller.behaviour.acknowledges = False
    with sending(plain(controller)) as sender:
        sender.put(*range(10))
        controller.wait(lambda: len(controller.frames) == 3)
        time.sleep(0.2)
        assert len(controller.frames) == 3


def test_one_frame_is_always_let_through(controller: Controller) -> None:
    controller.behaviour.limits = Limits(unacknowledged_bytes=1)
    with sending(plain(controller)) as sender:
        sender.put(*range(4))
        controller.wait(lambda: sender.publisher.idle)
    assert len(controller.frames) == 4


def test_a_refused_frame_is_never_sent_again_and_the_others_are(controller: Controller) -> None:
    controller.behaviour.refuses_frame = lambda frame: frame.sequence == 1
    with sending(plain(controller)) as sender:
        sender.put(0, 1, 2)
        controller.wait(lambda: sender.publisher.idle and len(controller.frames) == 2)
    assert controller.keys == [("life", 0), ("life", 2)]
    assert sender.spool.counts().refused == 1
    assert sender.publisher.status.connections == 1


def test_a_frame_larger_than_the_controller_takes_is_counted_and_the_rest_goes_on(
    controller: Controller,
) -> None:
    controller.behaviour.limits = Limits(frame_bytes=2000)
    with sending(plain(controller)) as sender:
        sender.put(0, counters=3000)
        sender.put(1)
        controller.wait(lambda: sender.publisher.idle)
    assert controller.keys == [("life", 1)]
    assert sender.spool.counts().refused == 1


def test_a_controller_that_refuses_is_asked_again_and_says_why(controller: Controller) -> None:
    controller.behaviour.refuses = RefuseReason.IDENTITY
    with sending(plain(controller)) as sender:
        sender.put(0)
        controller.wait(lambda: len(controller.hellos) >= 2)
        error = sender.publisher.status.error or ""
        assert "refuses (identity): not today" in error
        controller.behaviour.refuses = None
        controller.wait(lambda: sender.publisher.idle)
    assert controller.keys == [("life", 0)]


def test_a_controller_that_sends_what_only_a_dpu_sends_is_left(controller: Controller) -> None:
    controller.behaviour.extra = FrameData(bytes(1000))
    with sending(plain(controller)) as sender:
        controller.wait(lambda: "kind 3" in (sender.publisher.status.error or ""))


def test_tls_shows_the_own_certificate_and_checks_the_other(authority: Authority) -> None:
    server = authority.issue("head", hosts=("head.example",))
    with Controller(authority.server_context(server)) as controller:
        with sending(secured(controller, authority)) as sender:
            sender.put(0)
            controller.wait(lambda: sender.publisher.idle)
        assert controller.keys == [("life", 0)]
        assert controller.peers[0]["subjectAltName"] == (("URI", "urn:pulse:machine:node1"),)


@pytest.mark.parametrize(
    ("days", "hosts", "reason"),
    [
        (-1, ("head.example",), "certificate has expired"),
        (1, ("other.example",), "Hostname mismatch"),
    ],
    ids=["expired", "wrong name"],
)
def test_a_controller_with_a_wrong_certificate_gets_nothing(
    authority: Authority, days: int, hosts: tuple[str, ...], reason: str
) -> None:
    server = authority.issue("head", hosts=hosts, days=days)
    with Controller(authority.server_context(server)) as controller:
        with sending(secured(controller, authority)) as sender:
            sender.put(0)
            controller.wait(lambda: reason in (sender.publisher.status.error or ""))
            assert "certificate is not accepted" in (sender.publisher.status.error or "")
        assert controller.hellos == []


def test_a_controller_of_another_authority_gets_nothing(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    server = other.issue("head", hosts=("head.example",))
    with Controller(other.server_context(server)) as controller:
        with sending(secured(controller, authority)) as sender:
            sender.put(0)
            controller.wait(lambda: "not accepted" in (sender.publisher.status.error or ""))
        assert controller.hellos == []


def test_an_expired_certificate_of_ones_own_is_told(authority: Authority) -> None:
    server = authority.issue("head", hosts=("head.example",))
    expired = authority.issue("old", machine="node1", days=-1)
    with Controller(authority.server_context(server)) as controller:
        config = secured(controller, authority, cert_file=expired.certificate, key_file=expired.key)
        with sending(config) as sender:
            controller.wait(lambda: "EXPIRED" in (sender.publisher.status.error or ""))
        assert controller.hellos == []


def test_something_that_is_no_controller_is_recognised(authority: Authority) -> None:
    server = authority.issue("head", hosts=("head.example",))
    with Controller(authority.server_context(server, alpn="http/1.1")) as controller:
        with sending(secured(controller, authority)) as sender:
            controller.wait(lambda: bool(sender.publisher.status.error))
            error = sender.publisher.status.error or ""
        assert "pulse/1" in error or "ALPN" in error.upper() or "PROTOCOL" in error
        assert controller.hellos == []


def test_older_tls_is_not_spoken(authority: Authority) -> None:
    server = authority.issue("head", hosts=("head.example",))
    context = authority.server_context(server)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Controller(context) as controller:
        with sending(secured(controller, authority)) as sender:
            controller.wait(lambda: "TLS" in (sender.publisher.status.error or ""))
        assert controller.hellos == []


def test_renewed_settings_make_a_new_connection_at_once(authority: Authority) -> None:
    server = authority.issue("head", hosts=("head.example",))
    with (
        Controller(authority.server_context(server)) as first,
        Controller(authority.server_context(server)) as second,
        sending(secured(first, authority)) as sender,
    ):
        sender.put(0)
        first.wait(lambda: sender.publisher.idle)
        moved = secured(second, authority)
        sender.loop.call_soon_threadsafe(sender.publisher.reconfigure, moved)
        second.wait(lambda: bool(second.hellos))
        sender.put(1)
        second.wait(lambda: ("life", 1) in second.keys)
        assert first.keys == [("life", 0)]
        assert second.keys == [("life", 1)]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("head", ("head", DEFAULT_PORT)),
        ("head:99", ("head", 99)),
        ("[fd00::1]", ("fd00::1", DEFAULT_PORT)),
        ("[fd00::1]:99", ("fd00::1", 99)),
        ("fd00::1", ("fd00::1", DEFAULT_PORT)),
    ],
)
def test_addresses_are_understood(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["", ":99", "head:x", "head:0", "head:70000", "[fd00::1]:x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_plain_text_stays_on_this_machine(host: str) -> None:
    check_plaintext(ControllerConfig(host, plaintext=True))


@pytest.mark.parametrize("host", ["10.0.0.1", "head", "[fd00::1]", "localhost.example"])
def test_plain_text_to_a_network_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(ValueError, match="would cross the network"):
        check_plaintext(ControllerConfig(host, plaintext=True))
    check_plaintext(ControllerConfig(host, plaintext=True, plaintext_to_network=True))


def test_a_missing_file_is_named(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"nowhere.pem cannot be used as CA"):
        tls_context(ControllerConfig("head", ca_file=tmp_path / "nowhere.pem"))
    missing = ControllerConfig("head", ca_file=authority.file, cert_file=tmp_path / "none.pem")
    with pytest.raises(OSError, match=r"none.pem and None cannot be used"):
        tls_context(missing)


def test_failures_have_words() -> None:
    assert describe(asyncio.TimeoutError()) == "no answer in time"
    assert describe(ConnectionResetError()) == "ConnectionResetError"
