# SPDX-License-Identifier: Apache-2.0
"""One connection to the controller, from the greeting to its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pulse_native
from dpu_app.service.spool import Spool
from dpu_app.tasks import until_first_ends
from dpu_app.wire.frame import SCHEMA, NicIdentity
from dpu_app.wire.transport import (
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

_LOG = logging.getLogger(__name__)
_READ_BYTES = 64 << 10
_GREETING_S = 10.0
_LEAST_SILENCE_NS = 1_000_000_000


class RefusedError(Exception):
    """The controller refused the connection."""

    def __init__(self, refusal: Refuse) -> None:
        super().__init__(f"the controller refuses ({refusal.reason.value}): {refusal.text}")
        self.reason: RefuseReason = refusal.reason


@dataclass(slots=True)
class SessionCounts:
    """What the connections of a process did, summed up; the last reading of the controller's clock."""

    sent: int = 0
    sent_bytes: int = 0
    acknowledged: int = 0
    controller_offset_ns: int | None = None
    round_trip_ns: int | None = None


@dataclass(frozen=True, slots=True)
class _InFlight:
    boot_id: str
    sequence: int
    size: int


class Session:
    """Speaks the protocol on an open connection until it ends; frames come from the spool."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        spool: Spool,
        nic: NicIdentity,
        boot_id: str,
        counts: SessionCounts,
        on_welcome: Callable[[], None],
    ) -> None:
        self._reader, self._writer = streams
        self._spool = spool
        self._nic = nic
        self._boot_id = boot_id
        self._counts = counts
        self._on_welcome = on_welcome
        self._decoder = Decoder(max_frame_bytes=0)  # frames go the other way only
        self._limits = Limits()
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_bytes = 0
        self._news = asyncio.Event()
        self._pings = 0
        self.welcomed = False

    def wake(self) -> None:
        """Tell that the spool has a new frame."""
        self._news.set()

    @property
    def idle(self) -> bool:
        """Whether everything that was there has been sent and acknowledged."""
        return self.welcomed and not self._in_flight and self._spool.next_after(0) is None

    async def run(self) -> None:
        """Work until the connection ends.

        Raises RefusedError, TransportError, or an OSError when the other side is silent or gone.
        """
        messages = self._messages()
        await asyncio.wait_for(self._greet(messages), _GREETING_S)
        self.welcomed = True
        self._on_welcome()
        await until_first_ends(self._receive(messages), self._send_frames(), self._send_pings())

    async def _greet(self, messages: AsyncIterator[Message]) -> None:
        kept = list(self._spool.kept().items())[-MAX_POSITIONS:]
        hello = Hello(
            machine=self._nic.machine,
            nic=self._nic.nic,
            boot_id=self._boot_id,
            kept=tuple(Position(self._nic.nic, boot_id, sequence) for boot_id, sequence in kept),
            clock_ns=time.time_ns(),
            schemas=(SCHEMA,),
            software=f"pulse-dpu {pulse_native.__version__}",
        )
        await self._write(encode(hello))
        async for message in messages:
            if isinstance(message, Refuse):
                raise RefusedError(message)
            if not isinstance(message, Welcome):
                raise TransportError(f"the controller begins with {type(message).__name__}, not with Welcome")
            self._limits = message.limits
            self._forget(message.durable)
            return

    async def _messages(self) -> AsyncIterator[Message]:
        """Yield what the controller says; a connection that ends or falls silent raises ConnectionError."""
        while True:
            silence_s = max(self._limits.silence_ns, _LEAST_SILENCE_NS) / 1e9
            try:
                data = await asyncio.wait_for(self._reader.read(_READ_BYTES), silence_s)
            except asyncio.TimeoutError:
                raise ConnectionError(f"the controller has been silent for {silence_s:.0f} s") from None
            if not data:
                raise ConnectionError("the controller closed the connection")
            for message in self._decoder.feed(data):
                yield message

    async def _receive(self, messages: AsyncIterator[Message]) -> None:
        async for message in messages:
            if isinstance(message, Ack):
                self._forget(message.durable)
            elif isinstance(message, Ping):
                received_ns = time.time_ns()
                pong = Pong(message.number, message.sent_ns, received_ns, time.time_ns())
                self._writer.write(encode(pong))
            elif isinstance(message, Pong):
                offset_ns, round_trip_ns = message.clock_offset(time.time_ns())
                self._counts.controller_offset_ns = offset_ns
                self._counts.round_trip_ns = round_trip_ns
            elif isinstance(message, Refuse):
                self._take_refusal(message)
            else:
                raise TransportError(f"the controller sends {type(message).__name__} after the greeting")

    async def _send_frames(self) -> None:
        number = 0
        while True:
            self._news.clear()
            entry = None if self._is_full() else self._spool.next_after(number)
            if entry is None:
                await self._news.wait()
                continue
            number = entry.number
            data = self._spool.load(entry)
            if data is None:
                continue
            if len(data) > self._limits.frame_bytes:
                _LOG.warning("frame %d is larger than the controller takes: dropped", entry.sequence)
                self._spool.refuse(entry.boot_id, entry.sequence)
                continue
            self._in_flight.append(_InFlight(entry.boot_id, entry.sequence, len(data)))
            self._in_flight_bytes += len(data)
            await self._write(encode(FrameData(data)))
            self._counts.sent += 1
            self._counts.sent_bytes += len(data)

    async def _send_pings(self) -> None:
        while True:
            self._pings += 1
            await self._write(encode(Ping(self._pings, time.time_ns())))
            await asyncio.sleep(max(self._limits.silence_ns, _LEAST_SILENCE_NS) / 3e9)

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def _is_full(self) -> bool:
        # One frame always goes, whatever its size.
        return bool(self._in_flight) and (
            len(self._in_flight) >= self._limits.unacknowledged_frames
            or self._in_flight_bytes >= self._limits.unacknowledged_bytes
        )

    def _forget(self, durable: tuple[Position, ...]) -> None:
        for position in durable:
            if position.nic == self._nic.nic:
                self._spool.acknowledge(position.boot_id, position.sequence)
                self._land(position, single=False)

    def _take_refusal(self, refusal: Refuse) -> None:
        if refusal.frame is None:
            raise RefusedError(refusal)
        _LOG.warning("the controller refuses frame %d: %s", refusal.frame.sequence, refusal.text)
        self._spool.refuse(refusal.frame.boot_id, refusal.frame.sequence)
        self._land(refusal.frame, single=True)

    def _land(self, position: Position, *, single: bool) -> None:
        """Take what is settled out of what is in flight."""
        stays: deque[_InFlight] = deque()
        for each in self._in_flight:
            earlier = each.sequence < position.sequence and not single
            if each.boot_id == position.boot_id and (earlier or each.sequence == position.sequence):
                self._in_flight_bytes -= each.size
                self._counts.acknowledged += not single
            else:
                stays.append(each)
        self._in_flight = stays
        self._news.set()
