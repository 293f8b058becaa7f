# SPDX-License-Identifier: Apache-2.0
"""A second, naive meter: sets and dictionaries, no bounds, no speed. The C++ meter must agree with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dpu_app.wire.records import CONTROL_MAX_BYTES, MarkerKind, MessageFlag

REQUESTS = {
    **dict.fromkeys((0x00, 0x06), "first"),
    **dict.fromkeys((0x01, 0x07), "middle"),
    **dict.fromkeys((0x02, 0x03, 0x08, 0x09, 0x16), "last"),
    **dict.fromkeys((0x04, 0x05, 0x0A, 0x0B, 0x17), "only"),
}
RESPONSES = {0x0D: "first", 0x0E: "middle", 0x0F: "last", 0x10: "only"}
WITH_IMMEDIATE = {0x03, 0x05, 0x09, 0x0B}
WITH_LENGTH = {0x06, 0x0A, 0x0B}
READ, ACK, ATOMIC_ACK, ATOMICS, CNP = 0x0C, 0x11, 0x12, (0x13, 0x14), 0x81
WRAP = 1 << 24
REPAIR_NS = 10_000_000_000


def mix(x: int) -> int:
    """The finaliser of splitmix64, as docs/wire-format.md states it."""
    mask = 2**64 - 1
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31


def distance(a: int, b: int) -> int:
    return (a - b + WRAP // 2) % WRAP - WRAP // 2


@dataclass(eq=False)
class Message:
    first: int
    last: int
    opcode: int
    start_ns: int
    last_ns: int
    has_start: bool
    has_end: bool = False
    open: bool = True
    packets: int = 0
    payload: int = 0
    length: int | None = None
    immediate: int | None = None
    repeated: bool = False
    longest_gap: int = 0
    life: int = 0

    def record(self, flow: int) -> tuple[Any, ...]:
        flags = (
            (0 if self.has_start else MessageFlag.NO_START)
            | (0 if self.has_end else MessageFlag.NO_END)
            | (MessageFlag.REPEATED if self.repeated else 0)
            | (0 if self.length is None else MessageFlag.LENGTH_KNOWN)
            | (0 if self.immediate is None else MessageFlag.IMMEDIATE)
        )
        size = self.payload if self.length is None else self.length
        return (self.start_ns, self.last_ns, size, flow, self.first % WRAP, self.packets, self.immediate or 0,
                self.opcode, int(flags), self.life % 65536, self.longest_gap)  # fmt: skip


@dataclass
class PsnSpace:
    """One PSN space: what was seen, and which messages have not been recorded yet."""

    seen: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    first: int = 0
    next: int | None = None
    read_jump: tuple[int, int] = (-1, -1)
    unfinished: list[Message] = field(default_factory=list)

    def sight(self, psn: int, *, starts: bool, jump_ok: bool, idle_ns: int) -> tuple[str, int]:
        if self.next is None:
            self.first = psn + WRAP
            self.next = self.first + 1
            self.seen.add(self.first)
            return "next", self.first
        step = distance(psn, self.next % WRAP)
        position = self.next + step
        at_start = psn in (self.first % WRAP, 0)
        far = abs(step) > 65536 and idle_ns > 1_000_000_000
        back_to_start = at_start and (step < -4096 or (step < 0 and idle_ns > 60_000_000_000))
        if starts and (step < -(1 << 20) or back_to_start or far):
            self.seen, self.missing, self.next, self.read_jump = set(), set(), None, (-1, -1)
            return "restart", self.sight(psn, starts=True, jump_ok=True, idle_ns=0)[1]
        if step < 0:
            if position < self.first and self.first - position <= 4096:
                self.missing |= set(range(position, self.first))
                self.first = position
            if position in self.missing:
                self.missing.discard(position)
                self.seen.add(position)
                return "late", position
            return "repeat", position
        kind = "next"
        if (
            step > 0
            and not jump_ok
            and not (self.read_jump[0] == self.next and position <= self.read_jump[1])
        ):
            self.missing |= set(range(self.next, position))
            kind = "ahead"
        self.next = position + 1
        self.seen.add(position)
        return kind, position

    def settled(self, message: Message) -> bool:
        low = message.first - (0 if message.has_start else 1)
        high = message.last + (0 if message.has_end else 1)
        return not self.missing & set(range(low, high + 1))


def touch(message: Message, packet: dict[str, int], position: int, place: str, sight: str) -> None:
    message.longest_gap = min(max(message.longest_gap, packet["ns"] - message.last_ns), 2**32 - 1)
    message.last_ns = max(message.last_ns, packet["ns"])
    message.packets += 1
    if sight == "repeat":
        message.repeated = True
        return
    message.payload += packet["payload_bytes"]
    message.first, message.last = min(message.first, position), max(message.last, position)
    if place in ("last", "only") and position == message.last:
        message.has_end = True
    if packet["opcode"] in WITH_IMMEDIATE:
        message.immediate = packet["immediate"]


def start(message: Message, packet: dict[str, int]) -> None:
    message.has_start, message.opcode = True, packet["opcode"]
    if packet["opcode"] in WITH_LENGTH:
        message.length = packet["dma_bytes"]


def begin(packet: dict[str, int], position: int, place: str, sight: str, life: int) -> Message:
    message = Message(position, position, packet["opcode"], packet["ns"], packet["ns"], False, life=life)
    if place in ("first", "only"):
        start(message, packet)
    touch(message, packet, position, place, sight)
    return message


@dataclass
class Flow:
    number: int
    counts: Counter[str] = field(default_factory=Counter)
    windows: Counter[int] = field(default_factory=Counter)
    window_packets: Counter[int] = field(default_factory=Counter)
    data_ns: list[int] = field(default_factory=list)
    last_ns: int | None = None
    requests: PsnSpace = field(default_factory=PsnSpace)
    responses: PsnSpace = field(default_factory=PsnSpace)
    acked: int | None = None
    last_nak: int | None = None
    lives: int = 0


class ReferenceMeter:
    """Takes packets as dictionaries of PACKET fields (RC only, in order of time)."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self.flows: dict[tuple[bytes, bytes, int], Flow] = {}
        self.messages: list[tuple[Any, ...]] = []
        self.controls: list[tuple[Any, ...]] = []
        self.markers: list[tuple[Any, ...]] = []

    def take(self, packet: dict[str, Any]) -> None:
        key = (packet["src"], packet["dst"], packet["dest_qpn"])
        flow = self.flows.setdefault(key, Flow(len(self.flows)))
        opcode, counts = packet["opcode"], flow.counts
        idle = 0 if flow.last_ns is None else packet["ns"] - flow.last_ns
        flow.last_ns = packet["ns"]
        counts["packets"] += 1
        counts["wire_bytes"] += packet["wire_bytes"]
        counts["ecn_ce"] += packet["ecn"] == 3
        if opcode in REQUESTS or opcode == READ or opcode in ATOMICS:
            self.request(flow, packet, idle)
        elif opcode in RESPONSES:
            self.response(flow, packet, idle)
        elif opcode == ACK:
            self.acknowledge(flow, packet)
        elif opcode == ATOMIC_ACK:
            self.advance_ack(flow, packet["psn"])
        elif opcode == CNP:
            counts["cnp"] += 1

    def data(self, flow: Flow, packet: dict[str, Any]) -> None:
        flow.counts["data_packets"] += 1
        flow.counts["data_bytes"] += packet["payload_bytes"]
        flow.windows[packet["ns"] // self.window_ns] += packet["payload_bytes"]
        flow.window_packets[packet["ns"] // self.window_ns] += 1
        flow.data_ns.append(packet["ns"])

    def sighted(self, flow: Flow, packet: dict[str, Any], sight: str, space: PsnSpace, before: int) -> None:
        counts = flow.counts
        if sight == "ahead":
            counts["gap_psns"] += len(space.missing) - before
        elif sight == "late":
            counts["late_packets"] += 1
        elif sight == "repeat":
            counts["repeat_packets"] += 1
            counts["repeat_bytes"] += packet["payload_bytes"]

    def request(self, flow: Flow, packet: dict[str, Any], idle: int) -> None:
        opcode, space = packet["opcode"], flow.requests
        place = REQUESTS.get(opcode, "only")
        before = len(space.missing)
        sight, position = space.sight(
            packet["psn"], starts=place in ("first", "only"), jump_ok=False, idle_ns=idle
        )
        self.data(flow, packet)
        if sight == "restart":
            self.give_up(flow, space)
            flow.lives += 1
        self.sighted(flow, packet, sight, space, before)
        if opcode == READ:
            flow.counts["read_requests"] += 1
            if sight != "repeat":
                reach = max(1, -(-packet["dma_bytes"] // 256))
                space.read_jump = (position + 1, position + reach)
        elif sight != "repeat":
            self.mark_request(flow, packet, place)
        if opcode in REQUESTS:
            self.message(flow, space, packet, position, place, sight)
        elif sight in ("next", "ahead"):
            self.interrupt(flow, space, sight)
        if opcode in ATOMICS and sight != "repeat":
            atomic = Message(position, position, opcode, packet["ns"], packet["ns"], True, True)
            atomic.life = flow.lives
            self.control(flow, atomic)

    def response(self, flow: Flow, packet: dict[str, Any], idle: int) -> None:
        space, place = flow.responses, RESPONSES[packet["opcode"]]
        starts, before = place in ("first", "only"), len(space.missing)
        sight, position = space.sight(packet["psn"], starts=starts, jump_ok=starts, idle_ns=idle)
        self.data(flow, packet)
        if sight == "restart":
            self.give_up(flow, space)
        self.sighted(flow, packet, sight, space, before)
        self.message(flow, space, packet, position, place, sight)
        if place != "middle":
            self.advance_ack(flow, packet["psn"])

    def acknowledge(self, flow: Flow, packet: dict[str, Any]) -> None:
        syndrome, psn, counts = packet["syndrome"], packet["psn"], flow.counts
        marked = mix(packet["msn"] << 24 | psn) % 8 == 0
        if syndrome < 0x20:
            counts["acks"] += 1
            if not self.advance_ack(flow, psn):
                counts["duplicate_acks"] += 1
            elif marked:
                self.mark(flow, packet, MarkerKind.ACK, packet["msn"])
            return
        counts["rnr" if syndrome < 0x40 else "nak_sequence" if syndrome == 0x60 else "nak_other"] += 1
        if syndrome > 0x63:
            return  # reserved: counted, not believed
        if flow.acked is not None:
            self.advance_ack(flow, (psn - 1) % WRAP)
        if flow.last_nak != psn and marked:
            self.mark(flow, packet, MarkerKind.NAK, packet["msn"])
        flow.last_nak = psn

    def advance_ack(self, flow: Flow, psn: int) -> bool:
        if flow.acked is not None and -4096 <= distance(psn, flow.acked) <= 0:
            return False
        flow.acked = psn
        return True

    def mark_request(self, flow: Flow, packet: dict[str, Any], place: str) -> None:
        if place == "first":
            self.mark(flow, packet, MarkerKind.FIRST)
        elif place == "only":
            small = packet["payload_bytes"] <= CONTROL_MAX_BYTES
            self.mark(flow, packet, MarkerKind.CONTROL if small else MarkerKind.ONLY)
        elif mix(packet["dest_qpn"] << 24 | packet["psn"]) % 64 == 0:
            self.mark(flow, packet, MarkerKind.DATA)

    def mark(self, flow: Flow, packet: dict[str, Any], kind: MarkerKind, msn: int = 0) -> None:
        self.markers.append((packet["ns"], flow.number, packet["psn"], msn, int(kind), 0, flow.lives % 65536))

    def message(
        self, flow: Flow, space: PsnSpace, packet: dict[str, Any], position: int, place: str, sight: str
    ) -> None:
        if place != "middle" or sight != "next":
            too_old = packet["ns"] - REPAIR_NS
            for old in [m for m in space.unfinished if not m.open and m.last_ns < too_old]:
                self.record(flow, space, old)
        holding = [m for m in space.unfinished if m.first <= position <= m.last]
        if sight == "repeat":
            if holding:
                touch(holding[0], packet, position, place, sight)
            return
        if sight == "late":
            self.late(flow, space, packet, position, place, holding)
            return
        if place in ("first", "only"):
            self.interrupt(flow, space, sight)
        growing = [m for m in space.unfinished if m.open]
        if growing:
            touch(growing[0], packet, position, place, sight)
        else:
            growing = [begin(packet, position, place, sight, flow.lives)]
            space.unfinished.append(growing[0])
        if growing[0].has_end:
            growing[0].open = False
            if space.settled(growing[0]):
                self.record(flow, space, growing[0])
            else:
                self.bound(flow, space, growing[0])

    def late(
        self,
        flow: Flow,
        space: PsnSpace,
        packet: dict[str, Any],
        position: int,
        place: str,
        holding: list[Message],
    ) -> None:
        if place == "only":
            self.record(flow, space, begin(packet, position, place, "late", flow.lives))
            return
        below = [m for m in space.unfinished if m.last < position and not m.has_end]
        above = [m for m in space.unfinished if m.first > position and not m.has_start]
        owners = list(holding)
        if place != "first" and below:
            owners.append(max(below, key=lambda m: m.last))
        if place != "last" and above:
            owners.append(min(above, key=lambda m: m.first))
        if owners:
            if place == "first" and not owners[0].has_start:
                start(owners[0], packet)
            touch(owners[0], packet, position, place, "late")
        else:
            fresh = begin(packet, position, place, "late", flow.lives)
            fresh.open = False
            space.unfinished.append(fresh)
            self.bound(flow, space, fresh)
        for message in [m for m in space.unfinished if not m.open and space.settled(m)]:
            self.record(flow, space, message)

    def interrupt(self, flow: Flow, space: PsnSpace, sight: str) -> None:
        for message in [m for m in space.unfinished if m.open]:
            message.open = False
            if sight != "ahead":
                self.record(flow, space, message)
            else:
                self.bound(flow, space, message)

    def bound(self, flow: Flow, space: PsnSpace, newest: Message) -> None:
        """At most four messages wait; the one that has waited longest is recorded as it is."""
        space.unfinished.remove(newest)
        waiting = [m for m in space.unfinished if not m.open]
        if len(waiting) == 4:
            self.record(flow, space, waiting[0])
        space.unfinished.append(newest)

    def record(self, flow: Flow, space: PsnSpace, message: Message) -> None:
        if message in space.unfinished:
            space.unfinished.remove(message)
        if REQUESTS.get(message.opcode) == "only" and message.payload <= CONTROL_MAX_BYTES:
            self.control(flow, message)
            return
        flow.counts["messages"] += message.has_end
        self.messages.append(message.record(flow.number))

    def control(self, flow: Flow, message: Message) -> None:
        flow.counts["controls"] += 1
        record = message.record(flow.number)
        flags = record[8]
        self.controls.append((message.start_ns, flow.number, record[4], message.payload, record[6],
                              message.opcode, flags, record[9], 0))  # fmt: skip

    def give_up(self, flow: Flow, space: PsnSpace) -> None:
        for message in sorted(space.unfinished, key=lambda m: m.open):
            self.record(flow, space, message)

    def finish(self) -> None:
        for flow in self.flows.values():
            self.give_up(flow, flow.requests)
            self.give_up(flow, flow.responses)
