# SPDX-License-Identifier: Apache-2.0
"""The event stream: what it tells, how readers come back, and what becomes of slow ones."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from host_ctl.api.errors import ApiError
from host_ctl.api.events import Broadcaster
from tests.api.running import Served
from tests.controller.running import wait_for
from tests.incidents.made import job, verdict

SLOW = job(verdict())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The API over a desk."""
    with Served(tmp_path) as running:
        yield running


def test_looks_and_changes_are_told_as_they_come(served: Served) -> None:
    with served.stream() as events:
        served.see(SLOW, SLOW, SLOW)
        served.running.desk.acknowledge(1, "ann", "mine").result()
        told = list(islice(events, 5))
    assert [kind for _, kind, _ in told] == ["look", "look", "look", "incident", "incident"]
    opened, acknowledged = (data for _, kind, data in told if kind == "incident")
    assert (opened["kind"], opened["incident"]["id"]) == ("opened", "i1")
    assert (acknowledged["kind"], acknowledged["text"]) == ("acknowledged", "ann: mine")
    assert acknowledged["incident"]["acknowledged"]


def test_a_reader_that_comes_back_gets_what_it_missed(served: Served) -> None:
    with served.stream() as events:
        served.see(SLOW, SLOW)
        (first, _, _), (second, _, _) = islice(events, 2)
    served.see(SLOW)
    with served.stream(first) as events:
        again = list(islice(events, 3))
    assert again[0][0] == second
    assert {kind for _, kind, _ in again} == {"look", "incident"}


@pytest.mark.parametrize("last_id", ["77-1", "nonsense", "", "{epoch}-999999"])
def test_a_reader_of_another_life_is_told_of_a_gap_and_gets_what_there_is(
    served: Served, last_id: str
) -> None:
    served.see(SLOW)
    with served.stream() as events:
        served.see(SLOW)
        own = next(events)[0]
    with served.stream(last_id.format(epoch=own.partition("-")[0])) as events:
        assert [kind for _, kind, _ in islice(events, 3)] == ["gap", "look", "look"]


def test_too_many_readers_are_refused(served: Served) -> None:
    connections = [served.connection() for _ in range(4)]
    for connection in connections:
        connection.request("GET", "/api/v1/events")
        assert connection.getresponse().readline().startswith(b":")
    assert served.ask("/api/v1/events")[0] == 503
    assert served.ask("/api/v1/status")[0] == 200
    for connection in connections:
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
    served.see(SLOW)
    wait_for(lambda: "pulse_api_streams 0.0" in served.ask("/metrics")[1], "the streams ended")


def test_streams_end_when_the_service_does(tmp_path: Path) -> None:
    with Served(tmp_path) as running, running.stream() as events:
        running.see(SLOW)
        next(events)
        running.api.stop()
        assert list(events) == []


def test_a_slow_reader_is_dropped_and_others_are_not() -> None:
    async def work() -> tuple[list[bytes], list[bytes]]:
        events = Broadcaster(2, most_events=10)
        events.attach(asyncio.get_running_loop())
        slow, quick = events.read(None), events.read(None)
        await anext(slow)
        read = [await anext(quick)]
        for number in range(25):
            events.publish("look", str(number))
            read.append(await anext(quick))
        late = [chunk async for chunk in slow]
        assert events.dropped == 1
        others = [events.read(None)]
        await anext(others[0])
        with pytest.raises(ApiError, match="2 streams are read already"):
            events.read(None)
        return late, read

    late, read = asyncio.run(work())
    assert late == [b"event: dropped\ndata: {}\n\n"]
    assert len(read) == 26
    assert read[-1].endswith(b"data: 24\n\n")


def test_the_buffer_is_bounded_in_bytes_too() -> None:
    async def work() -> int:
        events = Broadcaster(1)
        events.attach(asyncio.get_running_loop())
        for _ in range(50):
            events.publish("look", "x" * (1 << 20))
        await asyncio.sleep(0)
        return sum(len(each.data) for each in events._events)

    assert asyncio.run(work()) <= 8 << 20


def test_a_reader_that_reads_nothing_holds_up_nobody(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.api.port)) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with served.stream() as events:
            for _ in range(10):
                served.see(*[job(verdict(), key="k" * 100_000)] * 8)
            looks = (data for _, kind, data in events if kind == "look")
            assert len(list(islice(looks, 80))) == 80
        assert served.ask("/healthz")[0] == 200
