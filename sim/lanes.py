# SPDX-License-Identifier: Apache-2.0
"""Lanes: one directed connection of a channel, with the slots and credits of a collective library.

The receiver grants slots, the sender fills granted slots, a slot is free again when the receiver's
GPU has consumed it. Everything that one rank ever waits for from another goes through here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np

from sim.events import Action, EventLoop
from sim.spec import CreditPolicy, CreditStyle, DataStyle, StackSpec
from sim.transport import Message, QueuePair, Verb, ignore

_CREDIT_VERBS = {
    CreditStyle.WRITE: (Verb.WRITE, None),
    CreditStyle.SEND: (Verb.SEND, None),
    CreditStyle.ATOMIC: (Verb.FETCH_ADD, 8),
}


class HostThread:
    """The proxy thread of one rank: does things in order, each a little later, never once stopped."""

    def __init__(self, loop: EventLoop, spec: StackSpec, rng: np.random.Generator) -> None:
        self._loop = loop
        self._spec = spec
        self._rng = rng
        self._free_ns = 0
        self.stopped = False
        self.hold_ns: Callable[[], int] | None = None

    def run(self, action: Action) -> None:
        """Do ``action`` after the thread's reaction time and after everything asked for before."""
        delay = self._spec.proxy_ns + int(self._rng.exponential(self._spec.proxy_jitter_ns or 1))
        if self.hold_ns is not None:
            delay += self.hold_ns()
        # Half of the reaction time is latency; only the other half keeps the thread busy.
        self._free_ns = max(self._loop.now + delay, self._free_ns + delay // 2)
        self._loop.at(self._free_ns, partial(self._do, action))

    def _do(self, action: Action) -> None:
        if not self.stopped:
            action()


@dataclass(slots=True)
class Slot:
    """One slot's content: its size and which collective it belongs to."""

    size: int
    tag: Hashable


@dataclass(slots=True)
class SlotRecord:
    """When one slot passed which station, in true time; -1 = never."""

    size: int
    staged_ns: int
    posted_ns: int = -1
    delivered_ns: int = -1
    consumed_ns: int = -1
    acknowledged_ns: int = -1


class Lane:
    """A directed edge between two ranks on one channel; slots go one way, credits the other."""

    def __init__(
        self,
        loop: EventLoop,
        spec: StackSpec,
        sender: int,
        receiver: int,
        hosts: tuple[HostThread, HostThread],
        pairs: list[tuple[QueuePair, QueuePair]],
        kind: str,
        channel: int,
        rng: np.random.Generator,
    ) -> None:
        self.sender, self.receiver = sender, receiver
        self.kind, self.channel = kind, channel
        self.pairs = pairs
        self.records: list[SlotRecord] = []
        self.credit_times_ns: list[int] = []
        self.wake_sender: Action = ignore
        self.wake_receiver: Action = ignore
        self._loop = loop
        self._spec = spec
        self._send_host, self._receive_host = hosts
        self._granting = (
            spec.credit_policy is not CreditPolicy.NONE and spec.credit_style is not CreditStyle.NONE
        )
        self._address = int(rng.integers(0x7F00_0000, 0x7FFF_0000)) << 16
        self._key = int(rng.integers(1, 1 << 16)) << 8 | int(rng.integers(0, 256))
        # sender
        self._staged: deque[tuple[Slot, SlotRecord]] = deque()
        self.unacknowledged = 0
        self._credits = 0
        self._posted = 0
        # receiver
        self._expected = 0
        self._granted = 0
        self._consumed = 0
        self._arrived: dict[int, Slot] = {}

    # ---- sender

    @property
    def has_room(self) -> bool:
        """Whether the sender's buffer takes one more slot."""
        return self.unacknowledged < self._spec.depth

    def stage(self, slot: Slot) -> None:
        """The GPU has filled a slot; it goes out once the receiver has granted one."""
        self.unacknowledged += 1
        record = SlotRecord(slot.size, self._loop.now)
        self.records.append(record)
        self._staged.append((slot, record))
        self._push()

    def _push(self) -> None:
        while self._staged and (self._credits > 0 or not self._granting):
            self._credits -= 1
            slot, record = self._staged.popleft()
            number = self._posted
            self._posted += 1
            self._send_host.run(partial(self._post, number, slot, record))

    def _post(self, number: int, slot: Slot, record: SlotRecord) -> None:
        record.posted_ns = self._loop.now
        queue_pair = self.pairs[number % len(self.pairs)][0]
        delivered = partial(self._deliver, number, slot, record)
        acknowledged = partial(self._acknowledge, record)
        address = self._address + (number % self._spec.depth) * self._spec.slot_bytes
        if self._spec.data_style is DataStyle.WRITE_IMM:
            queue_pair.post(
                Message(Verb.WRITE_IMM, slot.size, delivered, acknowledged, address, self._key, slot.size)
            )
        else:
            queue_pair.post(Message(Verb.WRITE, slot.size, ignore, ignore, address, self._key))
            queue_pair.post(Message(Verb.WRITE_IMM, 0, delivered, acknowledged, 0, 0, slot.size))

    def _acknowledge(self, record: SlotRecord) -> None:
        record.acknowledged_ns = self._loop.now
        self._send_host.run(self._free_buffer)

    def _free_buffer(self) -> None:
        self.unacknowledged -= 1
        self.wake_sender()

    def _receive_credit(self) -> None:
        self.credit_times_ns.append(self._loop.now)
        self._send_host.run(self._use_credit)

    def _use_credit(self) -> None:
        self._credits += 1
        self._push()

    # ---- receiver

    def expect(self, slots: int) -> None:
        """The receiver will take ``slots`` more; grants as many as fit into the window."""
        self._expected += slots
        self._grant()

    def _grant(self) -> None:
        while self._granting and self._granted < min(self._expected, self._consumed + self._spec.depth):
            number = self._granted
            self._granted += 1
            self._receive_host.run(partial(self._post_credit, number))

    def _post_credit(self, number: int) -> None:
        verb, fixed = _CREDIT_VERBS[self._spec.credit_style]
        queue_pair = self.pairs[number % len(self.pairs)][1]
        size = self._spec.credit_bytes if fixed is None else fixed
        address = self._address + (1 << 30) + (number % self._spec.depth) * 64
        queue_pair.post(Message(verb, size, self._receive_credit, ignore, address, self._key ^ 0x100))

    def _deliver(self, number: int, slot: Slot, record: SlotRecord) -> None:
        record.delivered_ns = self._loop.now
        self._receive_host.run(partial(self._arrive, number, slot))

    def _arrive(self, number: int, slot: Slot) -> None:
        self._arrived[number] = slot
        self.wake_receiver()

    def next_arrived(self) -> Slot | None:
        """The slot that is next in order, if it is here."""
        return self._arrived.get(self._consumed)

    def consume(self) -> None:
        """The GPU has read the next slot; it is free for another grant."""
        del self._arrived[self._consumed]
        self.records[self._consumed].consumed_ns = self._loop.now
        self._consumed += 1
        self._grant()
