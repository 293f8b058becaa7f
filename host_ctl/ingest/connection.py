# SPDX-License-Identifier: Apache-2.0
"""One connection of a DPU, from the greeting to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass

from dpu_app.wire.frame import SCHEMA
from dpu_app.wire.transport import (
    Ack,
    Decoder,
    FrameData,
    Hello,
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
from host_ctl.history.frames import FrameHistory, NewFrame
from host_ctl.ingest.admission import RejectedError, admit, key_of
from host_ctl.ingest.committer import Committer
from host_ctl.ingest.identity import IdentityError
from host_ctl.ingest.limits import IngestCounts, IngestLimits, NicState
from host_ctl.ingest.roster import Roster

_LOG = logging.getLogger(__name__)
_READ_BYTES = 256 << 10
_UNSENT_BYTES = 1 << 20  # answers that a peer does not read
_FAREWELL_S = 2.0
_FIRST_PINGS = 8
_FIRST_PING_S = 0.25
_LONGEST_PAUSE_S = 1.0


class EndedError(Exception):
    """The connection is over, for a reason that is told to the peer when there is one to tell."""

    def __init__(self, text: str, reason: RefuseReason | None = None) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Hub:
    """What all connections share."""

    limits: IngestLimits
    history: FrameHistory
    committer: Committer
    roster: Roster
    counts: IngestCounts


class Connection:
    """Speaks the protocol with one peer; `machine` is its certificate's, None without TLS: it is believed."""

    def __init__(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], machine: str | None, hub: Hub
    ) -> None:
        self._reader, self._writer = streams
        self._machine = machine
        self._hub = hub
        self._decoder = Decoder(hub.limits.frame_bytes)
        self._waited_s = 0.0
        self._pings = 0
        self._asked: dict[int, int] = {}
        self._last: dict[str, int] = {}
        self._nic: NicState | None = None
        self._end: EndedError | None = None
        self._reading: asyncio.Timeout | None = None

    @property
    def name(self) -> str:
        """Whose connection it is, as far as that is known."""
        return f"{self._nic.machine}/{self._nic.nic}" if self._nic else self._machine or "a peer"

    async def run(self) -> None:
        """Work until the connection ends. Raises EndedError, TransportError or OSError with the reason."""
        messages = self._messages()
        pinging: asyncio.Task[None] | None = None
        try:
            await self._greet(messages)
            pinging = asyncio.create_task(self._ping())
            async for message in messages:
                await self._take(message)
        except (EndedError, TransportError) as error:
            await self._farewell(error)
            raise
        finally:
            if pinging is not None:
                pinging.cancel()
            if self._nic is not None:
                self._hub.roster.leave(self._nic, self)
            await messages.aclose()

    def acknowledge(self, durable: Mapping[str, int]) -> None:
        """Tell the peer what is on disk."""
        assert self._nic is not None
        nic = self._nic.nic
        self._write(Ack(tuple(Position(nic, boot_id, sequence) for boot_id, sequence in durable.items())))

    def give_back(self, reason: str) -> None:
        """End the connection, whose frames are not kept."""
        self.end(EndedError(reason, RefuseReason.BUSY))

    def replace(self) -> None:
        """End the connection, since the NIC has another one."""
        self.end(EndedError("the NIC has connected anew", RefuseReason.OTHER))

    def end(self, error: EndedError) -> None:
        """End the connection soon, from outside."""
        if self._end is None:
            self._end = error
            if self._reading is not None and not self._reading.expired():
                self._reading.reschedule(0.0)

    async def _greet(self, messages: AsyncIterator[Message]) -> None:
        try:
            async with asyncio.timeout(self._hub.limits.handshake_s):
                hello = await anext(messages)
        except TimeoutError:
            raise EndedError("no greeting came in time", RefuseReason.PROTOCOL) from None
        if not isinstance(hello, Hello):
            raise EndedError(f"it begins with {type(hello).__name__}, not with Hello", RefuseReason.PROTOCOL)
        if self._machine is not None and hello.machine != self._machine:
            text = f"it calls itself {hello.machine[:80]}, its certificate says {self._machine}"
            raise EndedError(text, RefuseReason.IDENTITY)
        if SCHEMA not in hello.schemas:
            text = f"it has frames of schemas {list(hello.schemas)[:8]}, here schema {SCHEMA} is read"
            raise EndedError(text, RefuseReason.SCHEMA)
        if self._hub.committer.failure is not None:
            raise EndedError(self._hub.committer.failure, RefuseReason.BUSY)
        try:
            self._nic = self._hub.roster.join(hello, self)
        except IdentityError as error:
            raise EndedError(str(error), RefuseReason.IDENTITY) from error
        _LOG.info("%s connected, life %s, %s", self.name, hello.boot_id[:40], self._nic.software or "?")
        durable = tuple(filter(None, (self._durable(hello, kept) for kept in hello.kept)))
        self._write(Welcome(durable, time.time_ns(), self._hub.limits.told()))

    def _durable(self, hello: Hello, kept: Position) -> Position | None:
        """What of a life the peer may forget: up to the first hole, whose frame may still come."""
        known = self._hub.history.sequences(hello.machine, hello.nic, kept.boot_id)
        last = None if known is None else known.first_run_end
        return None if last is None or kept.nic != hello.nic else Position(kept.nic, kept.boot_id, last)

    async def _messages(self) -> AsyncGenerator[Message, None]:
        """Yield what the peer says until it closes; a peer that is silent or slow raises EndedError."""
        limits = self._hub.limits
        while True:
            if self._end is not None:
                raise self._end
            partial = self._decoder.buffered_bytes > 0
            rest_s = limits.message_s - self._waited_s if partial else limits.silence_s
            begin_s, reading = time.monotonic(), None
            try:
                async with asyncio.timeout(max(min(rest_s, limits.silence_s), 0.001)) as reading:
                    self._reading = reading
                    data = await self._reader.read(_READ_BYTES)
            except TimeoutError:
                if self._end is not None:
                    raise self._end from None
                if reading is None or not reading.expired():
                    raise  # the network's, not ours
                raise self._timed_out(partial=partial) from None
            finally:
                self._reading = None
            if not data:
                return
            # Only waiting for the peer counts against it, not what it waits for us.
            self._waited_s += time.monotonic() - begin_s if partial else 0.0
            for message in self._decoder.feed(data):
                self._waited_s = 0.0
                yield message
                if self._end is not None:
                    raise self._end
            if partial and self._waited_s >= limits.message_s:
                raise self._timed_out(partial=True)

    def _timed_out(self, *, partial: bool) -> EndedError:
        if partial:
            self._hub.counts.too_slow += 1
            return EndedError(
                f"a message took longer than {self._hub.limits.message_s:g} s", RefuseReason.OTHER
            )
        self._hub.counts.silent += 1
        return EndedError(f"nothing came for {self._hub.limits.silence_s:g} s", RefuseReason.OTHER)

    async def _take(self, message: Message) -> None:
        now_ns = time.time_ns()
        if isinstance(message, FrameData):
            await self._take_frame(message.data, now_ns)
        elif isinstance(message, Ping):
            self._write(Pong(message.number, message.sent_ns, now_ns, time.time_ns()))
        elif isinstance(message, Pong):
            # The time of asking is ours, whatever the answer says.
            if self._asked.pop(message.number, None) == message.ping_sent_ns and self._nic is not None:
                self._nic.clock.take(message, now_ns)
        else:
            raise EndedError(f"{type(message).__name__} is not for a DPU to send now", RefuseReason.PROTOCOL)

    async def _take_frame(self, data: bytes, now_ns: int) -> None:
        nic, hub = self._nic, self._hub
        assert nic is not None
        if hub.committer.failure is not None:
            raise EndedError(hub.committer.failure, RefuseReason.BUSY)
        pause_s = nic.allowance.pause_s(len(data), time.monotonic())
        try:
            frame = admit(data, nic.machine, nic.nic, hub.limits.table_bytes)
        except RejectedError as error:
            self._refuse(nic, error)
        else:
            key = key_of(frame, now_ns, nic.clock.estimate(now_ns))
            known = hub.history.sequences(nic.machine, nic.nic, frame.boot_id)
            if known is not None and frame.sequence < known.floor:
                position = Position(nic.nic, frame.boot_id, frame.sequence)
                text = "the frame is older than what is remembered of its life"
                self._refuse(nic, RejectedError(RefuseReason.FRAME, text, position))
            else:
                self._note(nic, frame.boot_id, frame.sequence, len(data), now_ns)
                nic.duplicates += not hub.committer.submit(NewFrame(key, data), self)
        await hub.committer.room()
        if pause_s > 0:
            await asyncio.sleep(min(pause_s, _LONGEST_PAUSE_S))

    def _note(self, nic: NicState, boot_id: str, sequence: int, size: int, now_ns: int) -> None:
        """Count a frame that came, by its place among the others of its life."""
        nic.frames += 1
        nic.bytes += size
        nic.last_received_ns = now_ns
        durable = self._hub.history.sequences(nic.machine, nic.nic, boot_id)
        before = self._last.get(boot_id, -1)
        highest = max(before, -1 if durable is None else durable.highest)
        known = self._hub.committer.is_known((nic.machine, nic.nic, boot_id, sequence))
        if boot_id in self._last and sequence <= before:
            nic.reordered += 1
        if sequence > highest:
            nic.missing += sequence - highest - 1
        elif not known:
            nic.late += 1
            nic.missing -= nic.missing > 0
        self._last[boot_id] = max(before, sequence)
        if len(self._last) > 64:
            del self._last[next(iter(self._last))]
        if boot_id == nic.boot_id:
            nic.last_sequence = max(nic.last_sequence, sequence)

    def _refuse(self, nic: NicState, error: RejectedError) -> None:
        nic.refused += 1
        counts = self._hub.counts
        if error.reason is RefuseReason.IDENTITY:
            counts.refused_identity += 1
        elif error.reason is RefuseReason.SCHEMA:
            counts.refused_schema += 1
        else:
            counts.refused_frame += 1
        if error.position is None:
            raise EndedError(str(error), error.reason)
        self._write(Refuse(error.reason, str(error), error.position))

    async def _ping(self) -> None:
        while True:
            self._pings += 1
            sent_ns = time.time_ns()
            self._asked[self._pings] = sent_ns
            if len(self._asked) > 64:
                del self._asked[next(iter(self._asked))]
            self._write(Ping(self._pings, sent_ns))
            few = self._pings < _FIRST_PINGS
            await asyncio.sleep(_FIRST_PING_S if few else self._hub.limits.silence_s / 3)

    def _write(self, message: Message) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.write(encode(message))
        if transport.get_write_buffer_size() > _UNSENT_BYTES:
            self._hub.counts.too_slow += 1
            self.end(EndedError("it does not read what it is answered"))
            transport.abort()

    async def _farewell(self, error: EndedError | TransportError) -> None:
        """Tell the peer why, if it listens."""
        reason = RefuseReason.PROTOCOL if isinstance(error, TransportError) else error.reason
        if reason is not None:
            self._write(Refuse(reason, str(error)))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._writer.drain()
                self._writer.close()
                await self._writer.wait_closed()
