# SPDX-License-Identifier: Apache-2.0
"""Reliable connections: messages cut into packets, acknowledgements, go-back-N and rate reaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from sim import packets as op
from sim.events import Action, EventLoop
from sim.network import Nic
from sim.packets import Packet
from sim.spec import TransportSpec


class Verb(StrEnum):
    """What a message asks of the receiver."""

    WRITE = "write"
    WRITE_IMM = "write_imm"
    SEND = "send"
    FETCH_ADD = "fetch_add"


_OPCODES = {  # verb -> (first, middle, last, only)
    Verb.WRITE: (op.WRITE_FIRST, op.WRITE_MIDDLE, op.WRITE_LAST, op.WRITE_ONLY),
    Verb.WRITE_IMM: (op.WRITE_FIRST, op.WRITE_MIDDLE, op.WRITE_LAST_IMM, op.WRITE_ONLY_IMM),
    Verb.SEND: (op.SEND_FIRST, op.SEND_MIDDLE, op.SEND_LAST, op.SEND_ONLY),
    Verb.FETCH_ADD: (op.FETCH_ADD, op.FETCH_ADD, op.FETCH_ADD, op.FETCH_ADD),
}


@dataclass(slots=True, eq=False)
class Message:
    """One work request: its size, what happens at the receiver, what happens when acknowledged."""

    verb: Verb
    size: int
    delivered: Action
    acknowledged: Action
    address: int = 0
    remote_key: int = 0
    immediate: int = 0
    first_index: int = field(default=0, init=False)
    packets: int = field(default=1, init=False)


def ignore() -> None:
    """The callback of a message whose fate nobody waits for."""


class QueuePair:
    """One end of a reliable connection, requester and responder in one.

    Sequence numbers are kept unwrapped inside; headers show ``(start_psn + index) mod 2**24``.
    """

    def __init__(
        self,
        loop: EventLoop,
        nic: Nic,
        qpn: int,
        sport: int,
        start_psn: int,
        spec: TransportSpec,
        rng: np.random.Generator,
    ) -> None:
        self._loop = loop
        self._spec = spec
        self._rng = rng
        self.nic = nic
        self.qpn = qpn
        self.sport = sport
        self.start_psn = start_psn
        self.peer: QueuePair = self
        self.scheduled = False
        self.failed = False
        self.on_error: Callable[[QueuePair], None] | None = None
        # requester
        self._queue: deque[Message] = deque()
        self._cursor = 0
        self._next = 0
        self._tail = 0
        self._acked = 0
        self._highest_sent = 0
        self._deadline_ns = 0
        self._timer_armed = False
        self._retries = 0
        self._rate = 1.0
        self._rate_set_ns = 0
        self._eligible_ns = 0
        self._wake_pending = False
        # responder
        self._expected = 0
        self._msn = 0
        self._nak_sent = False
        self._ack_pending = False
        self._last_cnp_ns = -(1 << 62)
        nic.queue_pairs[qpn] = self

    def connect(self, peer: QueuePair) -> None:
        """Join two ends into one connection."""
        self.peer, peer.peer = peer, self

    def destroy(self) -> None:
        """The process is gone: forget everything; packets that still come are ignored."""
        self.failed = True
        self._queue.clear()
        self.nic.queue_pairs.pop(self.qpn, None)

    # ---- requester

    def post(self, message: Message) -> None:
        """Queue ``message`` for sending."""
        if self.failed:
            return
        mtu = self._spec.mtu
        message.packets = max(1, -(-message.size // mtu)) if message.verb is not Verb.FETCH_ADD else 1
        message.first_index = self._tail
        self._tail += message.packets
        self._queue.append(message)
        self.nic.wake(self)

    def has_packet(self) -> bool:
        """Whether a packet may go out now; arms a wake-up when only the rate limit forbids it."""
        if self._next >= self._tail or self.failed:
            return False
        if self._eligible_ns > self._loop.now:
            if not self._wake_pending:
                self._wake_pending = True
                self._loop.at(self._eligible_ns, self._rate_wake)
            return False
        return True

    def _rate_wake(self) -> None:
        self._wake_pending = False
        self.nic.wake(self)

    def take_packet(self) -> Packet:
        """The next packet in sequence order; call only after ``has_packet``."""
        message = self._queue[self._cursor]
        offset = self._next - message.first_index
        last = offset == message.packets - 1
        first_code, middle_code, last_code, only_code = _OPCODES[message.verb]
        if message.packets == 1:
            opcode = only_code
        else:
            opcode = first_code if offset == 0 else last_code if last else middle_code
        mtu = self._spec.mtu
        payload = message.size - offset * mtu if last else mtu
        if message.verb is Verb.FETCH_ADD:
            payload = 0
        every = self._spec.ack_every
        packet = Packet(
            self.nic,
            self.peer.nic,
            self.peer.qpn,
            self.sport,
            opcode,
            (self.start_psn + self._next) & op.PSN_MASK,
            self._next,
            self.nic.packet_size(opcode, payload),
            payload,
            self.nic.take_ip_id(),
            ack_request=last or (every > 0 and (offset + 1) % every == 0),
            message=message,
            last=last,
            repeat=self._next < self._highest_sent,
        )
        self._next += 1
        self._highest_sent = max(self._highest_sent, self._next)
        if last:
            self._cursor += 1
        self._pace(packet.size)
        self._deadline_ns = self._loop.now + self._spec.timeout_ns
        self._arm_timer()
        return packet

    def _pace(self, size: int) -> None:
        if self._rate >= 1.0:
            return
        now = self._loop.now
        elapsed = now - self._rate_set_ns
        rate = self._rate + elapsed / self._spec.rate_recovery_ns
        if rate >= 1.0:
            self._rate = 1.0
            return
        self._eligible_ns = now + int(size * self.nic.ns_per_byte / rate)

    def on_cnp(self) -> None:
        """Cut the rate; it grows back linearly."""
        now = self._loop.now
        current = min(1.0, self._rate + (now - self._rate_set_ns) / self._spec.rate_recovery_ns)
        self._rate = max(0.05, current * self._spec.rate_cut)
        self._rate_set_ns = now

    def on_response(self, packet: Packet) -> None:
        """An ACK, NAK or atomic response: everything up to its PSN has arrived."""
        nak = packet.opcode == op.ACK and packet.aeth >> 24 == op.SYNDROME_NAK_SEQUENCE
        upto = packet.index if nak else packet.index + 1
        if upto > self._acked:
            self._acked = upto
            self._retries = 0
            self._deadline_ns = self._loop.now + self._spec.timeout_ns
            self._release()
        if nak:
            self._go_back()

    def _release(self) -> None:
        queue = self._queue
        while queue and queue[0].first_index + queue[0].packets <= self._acked:
            message = queue.popleft()
            if self._cursor:
                self._cursor -= 1
            message.acknowledged()
        if self._next < self._acked:  # an old copy was acknowledged while we were repeating
            self._next = self._acked
            self._cursor = 0

    def _go_back(self) -> None:
        if self._next > self._acked:
            self._next = self._acked
            self._cursor = 0
            self.nic.wake(self)

    def _arm_timer(self) -> None:
        if not self._timer_armed:
            self._timer_armed = True
            self._loop.at(self._deadline_ns, self._timer)

    def _timer(self) -> None:
        self._timer_armed = False
        if self.failed or self._acked >= self._highest_sent:
            return
        if self._loop.now < self._deadline_ns or self._next < self._highest_sent:
            self._deadline_ns = max(self._deadline_ns, self._loop.now + self._spec.timeout_ns // 8)
            self._arm_timer()
            return
        self._retries += 1
        if self._retries > self._spec.retry_limit:
            self.failed = True
            if self.on_error is not None:
                self.on_error(self)
            return
        self._deadline_ns = self._loop.now + self._spec.timeout_ns
        self._arm_timer()
        self._go_back()

    # ---- responder

    def on_request(self, packet: Packet, atomic: bool) -> None:
        """A data, credit or atomic packet arrives."""
        if self.failed:
            return
        if packet.ce:
            self._notify_congestion()
        if packet.index > self._expected:
            if not self._nak_sent:
                self._nak_sent = True
                self._respond(op.ACK, self._expected, op.SYNDROME_NAK_SEQUENCE)
            return
        if packet.index < self._expected:
            self._acknowledge()
            return
        self._expected += 1
        self._nak_sent = False
        if packet.last:
            self._msn += 1
            assert packet.message is not None
            packet.message.delivered()
        if atomic:
            self._respond(op.ATOMIC_ACK, packet.index, op.SYNDROME_ACK)
        elif packet.ack_request:
            self._acknowledge()

    def _notify_congestion(self) -> None:
        now = self._loop.now
        if now - self._last_cnp_ns >= self._spec.cnp_interval_ns:
            self._last_cnp_ns = now
            self._emit(op.CNP, 0, 0, 0)

    def _acknowledge(self) -> None:
        if self._ack_pending:
            return
        self._ack_pending = True
        delay = self._spec.ack_latency_ns + int(self._rng.exponential(self._spec.ack_jitter_ns or 1))
        self._loop.after(delay, self._send_ack)

    def _send_ack(self) -> None:
        self._ack_pending = False
        if not self.failed:
            self._respond(op.ACK, self._expected - 1, op.SYNDROME_ACK)

    def _respond(self, opcode: int, index: int, syndrome: int) -> None:
        psn = (self.peer.start_psn + index) & op.PSN_MASK
        self._emit(opcode, psn, index, syndrome << 24 | self._msn & op.PSN_MASK)

    def _emit(self, opcode: int, psn: int, index: int, aeth: int) -> None:
        nic = self.nic
        nic.send_control(
            Packet(
                nic,
                self.peer.nic,
                self.peer.qpn,
                self.sport,
                opcode,
                psn,
                index,
                nic.packet_size(opcode, 0),
                0,
                nic.take_ip_id(),
                aeth=aeth,
            )
        )
