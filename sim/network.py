# SPDX-License-Identifier: Apache-2.0
"""NICs, switch ports and the paths between them.

A port is a FIFO at a fixed rate: a packet leaves when everything before it has left. Incast,
slow links and shared uplinks are nothing but that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from sim.events import EventLoop
from sim.packets import CNP, FETCH_ADD, RESPONSES, Packet, transport_header_bytes
from sim.spec import NetworkSpec

if TYPE_CHECKING:
    from sim.transport import QueuePair

FRAMING_BYTES = 24  # FCS, preamble and inter-frame gap: on the wire, in no capture


@dataclass(frozen=True, slots=True)
class Address:
    """Where a NIC lives: machine and rail numbers, MAC, IPv4 (int) and IPv6 (16 bytes)."""

    machine: int
    rail: int
    mac: bytes
    ipv4: int
    ipv6: bytes
    external: bool = False


@dataclass(slots=True)
class TapLog:
    """What the tap of one NIC saw: parallel lists of true time, packet and direction (sent)."""

    times_ns: list[int]
    packets: list[Packet]
    sent: list[bool]

    def add(self, time_ns: int, packet: Packet, sent: bool) -> None:
        """Append one sighting."""
        self.times_ns.append(time_ns)
        self.packets.append(packet)
        self.sent.append(sent)


class Port:
    """One output queue of a switch with the link behind it."""

    __slots__ = (
        "_deliver",
        "_latency_ns",
        "_loop",
        "ecn_threshold_ns",
        "free_ns",
        "loss",
        "ns_per_byte",
        "off",
        "paused_until",
    )

    def __init__(
        self,
        loop: EventLoop,
        rate_gbps: float,
        latency_ns: int,
        deliver: Callable[[Packet], None],
        ecn_bytes: int,
    ) -> None:
        self._loop = loop
        self._latency_ns = latency_ns
        self._deliver = deliver
        self.ns_per_byte = 8.0 / rate_gbps
        self.ecn_threshold_ns = int(ecn_bytes * self.ns_per_byte) if ecn_bytes else 0
        self.free_ns = 0
        self.off = False
        self.loss: Callable[[], bool] | None = None
        self.paused_until: Callable[[], int] | None = None

    def arrive(self, packet: Packet) -> None:
        """Queue ``packet``; it is delivered after its turn, its serialisation and the link's latency."""
        if self.off or (self.loss is not None and self.loss()):
            return
        now = self._loop.now
        start = max(now, self.free_ns)
        if self.paused_until is not None:
            start = max(start, self.paused_until())
        if self.ecn_threshold_ns and start - now > self.ecn_threshold_ns and packet.opcode not in RESPONSES:
            packet.ce = True
        self.free_ns = start + int((packet.size + FRAMING_BYTES) * self.ns_per_byte)
        self._loop.at(self.free_ns + self._latency_ns, partial(self._deliver, packet))

    def occupy(self, size: int) -> None:
        """Take the time of ``size`` foreign bytes that no tap sees."""
        self.free_ns = max(self._loop.now, self.free_ns) + int(size * self.ns_per_byte)


class Nic:
    """A network card: fair egress scheduler, tap, ingress, and the queue pairs that live on it."""

    def __init__(
        self, loop: EventLoop, address: Address, spec: NetworkSpec, quantum: int, fetch_ns: list[int]
    ) -> None:
        self.loop = loop
        self.address = address
        self.tap = TapLog([], [], [])
        self.queue_pairs: dict[int, QueuePair] = {}
        self.ns_per_byte = 8.0 / spec.rate_gbps
        self.wire_ns_per_byte = 0.0  # > 0: a slower shaper behind the tap
        self.shaper_buffer_ns = 0
        self.drain_ns_per_byte = 0.0  # > 0: received packets leave the NIC's buffer slowly
        self.drain_buffer_ns = 0
        self.dead = False
        self.port_off = False
        self.loss_before_tap: Callable[[], bool] | None = None
        self.loss_on_wire: Callable[[], bool] | None = None
        self.next_ip_id = 0
        self.link_header_bytes = 14 + (4 if spec.vlan is not None else 0) + (40 if spec.ipv6 else 20) + 8
        self.forward: Callable[[Packet], None] = _unplugged
        # Fetching a packet from memory takes a little longer now and then; drawn once, used in turns.
        self._fetch_ns = cycle(fetch_ns)
        self._quantum = quantum
        self._left = quantum
        self._busy = False
        self._ready: deque[QueuePair] = deque()
        self._control: deque[Packet] = deque()
        self._wire_free_ns = 0
        self._drain_free_ns = 0

    def packet_size(self, opcode: int, payload: int) -> int:
        """Frame bytes without FCS of a packet with ``payload`` bytes (padding and ICRC included)."""
        return self.link_header_bytes + transport_header_bytes(opcode) + payload + (-payload % 4) + 4

    def take_ip_id(self) -> int:
        """The next value of the IPv4 identification counter."""
        self.next_ip_id = (self.next_ip_id + 1) & 0xFFFF
        return self.next_ip_id

    def send_control(self, packet: Packet) -> None:
        """Queue an ACK, NAK or CNP ahead of data."""
        self._control.append(packet)
        self._serve()

    def wake(self, queue_pair: QueuePair) -> None:
        """Tell the scheduler that ``queue_pair`` may have something to send."""
        if not queue_pair.scheduled and queue_pair.has_packet():
            queue_pair.scheduled = True
            self._ready.append(queue_pair)
            self._serve()

    def _next_packet(self) -> Packet | None:
        if self._control:
            return self._control.popleft()
        while self._ready:
            queue_pair = self._ready[0]
            if not queue_pair.has_packet():
                self._ready.popleft()
                queue_pair.scheduled = False
                self._left = self._quantum
                continue
            packet = queue_pair.take_packet()
            self._left -= 1
            if self._left <= 0:
                self._ready.rotate(-1)
                self._left = self._quantum
            return packet
        return None

    def _serve(self) -> None:
        if self._busy or self.dead:
            return
        start = self.loop.now
        if self.wire_ns_per_byte:
            start = max(start, self._wire_free_ns - self.shaper_buffer_ns)
            if start > self.loop.now:  # the shaper's buffer is full: the engine waits for room
                self._busy = True
                self.loop.at(start, self._resume)
                return
        packet = self._next_packet()
        if packet is None:
            return
        self._busy = True
        done = start + int((packet.size + FRAMING_BYTES) * self.ns_per_byte) + next(self._fetch_ns)
        self.loop.at(done, partial(self._sent, packet))

    def _resume(self) -> None:
        self._busy = False
        self._serve()

    def _sent(self, packet: Packet) -> None:
        self._busy = False
        if self.dead:
            return
        if self.loss_before_tap is None or not self.loss_before_tap():
            now = self.loop.now
            self.tap.add(now, packet, True)
            leaves = now
            if self.wire_ns_per_byte:
                leaves = max(now, self._wire_free_ns) + int(
                    (packet.size + FRAMING_BYTES) * self.wire_ns_per_byte
                )
                self._wire_free_ns = leaves
            if not self.port_off and (self.loss_on_wire is None or not self.loss_on_wire()):
                self._leave(leaves, packet)
        self._serve()

    def _leave(self, time_ns: int, packet: Packet) -> None:
        if time_ns <= self.loop.now:
            self.forward(packet)
        else:
            self.loop.at(time_ns, partial(self.forward, packet))

    def drain_pause_until(self) -> int:
        """Until when link-level flow control holds the switch because the receive buffer is full."""
        return self._drain_free_ns - self.drain_buffer_ns

    def receive(self, packet: Packet) -> None:
        """A packet arrives from the link: it passes the tap, then the receive buffer."""
        if self.dead:
            return
        now = self.loop.now
        self.tap.add(now, packet, False)
        if self.drain_ns_per_byte:
            self._drain_free_ns = max(now, self._drain_free_ns) + int(packet.size * self.drain_ns_per_byte)
            self.loop.at(self._drain_free_ns, partial(self._process, packet))
        else:
            self._process(packet)

    def _process(self, packet: Packet) -> None:
        queue_pair = self.queue_pairs.get(packet.dest_qpn)
        if queue_pair is None or self.dead:
            return
        if packet.opcode == CNP:
            queue_pair.on_cnp()
        elif packet.opcode in RESPONSES:
            queue_pair.on_response(packet)
        else:
            queue_pair.on_request(packet, packet.opcode == FETCH_ADD)


def _unplugged(packet: Packet) -> None:
    raise RuntimeError(f"NIC {packet.source.address} is not attached to a fabric")


class Fabric:
    """One rail: leaves with an output port per NIC, joined by uplinks when there are several leaves."""

    def __init__(self, loop: EventLoop, spec: NetworkSpec, rng: np.random.Generator) -> None:
        self._loop = loop
        self._spec = spec
        self._leaf_of: dict[int, int] = {}
        self._flow_uplink: dict[tuple[int, int, int], int] = {}
        self._uplink_choice = cycle(rng.permutation(spec.uplinks).tolist())
        self._latency_ns = spec.propagation_ns + spec.switch_ns
        self.access: dict[int, Port] = {}
        self.uplinks: dict[tuple[int, int], Port] = {}
        if spec.leaves > 1:
            for leaf in range(spec.leaves):
                for uplink in range(spec.uplinks):
                    self.uplinks[leaf, uplink] = Port(
                        loop,
                        spec.uplink_rate_gbps,
                        2 * self._latency_ns,
                        self._to_access,
                        spec.ecn_threshold_bytes,
                    )

    def attach(self, nic: Nic, leaf: int) -> None:
        """Plug ``nic`` into ``leaf``."""
        spec = self._spec
        self._leaf_of[id(nic)] = leaf
        self.access[id(nic)] = Port(
            loop=self._loop,
            rate_gbps=spec.rate_gbps,
            latency_ns=spec.propagation_ns,
            deliver=nic.receive,
            ecn_bytes=spec.ecn_threshold_bytes,
        )
        nic.forward = self._from_nic

    def access_port(self, nic: Nic) -> Port:
        """The switch port in front of ``nic``."""
        return self.access[id(nic)]

    def leaf(self, nic: Nic) -> int:
        """The leaf that ``nic`` is plugged into; -1 = into none of this rail."""
        return self._leaf_of.get(id(nic), -1)

    def uplink_of(self, source: Nic, target: Nic, dest_qpn: int) -> int:
        """The uplink that a flow hashes to; chosen once per flow."""
        key = (id(source), id(target), dest_qpn)
        if key not in self._flow_uplink:
            self._flow_uplink[key] = next(self._uplink_choice)
        return self._flow_uplink[key]

    def pin_uplink(self, source: Nic, target: Nic, dest_qpn: int, uplink: int) -> None:
        """Fix the uplink of one flow, as an unlucky hash would."""
        self._flow_uplink[id(source), id(target), dest_qpn] = uplink

    def _from_nic(self, packet: Packet) -> None:
        leaf = self._leaf_of[id(packet.source)]
        if leaf == self._leaf_of[id(packet.target)]:
            self._loop.after(self._latency_ns, partial(self._to_access, packet))
        else:
            port = self.uplinks[leaf, self.uplink_of(packet.source, packet.target, packet.dest_qpn)]
            self._loop.after(self._latency_ns, partial(port.arrive, packet))

    def _to_access(self, packet: Packet) -> None:
        self.access[id(packet.target)].arrive(packet)
