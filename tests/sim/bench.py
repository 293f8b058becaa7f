# SPDX-License-Identifier: Apache-2.0
"""A small network by hand: NICs on one switch, messages and slots over it, and what every tap sees.

Plans are written as rows by field name, so that a test states only what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pulse_native import PacketBatch, _sim
from pulse_native._sim import ActionKind, CommandKind, Simulation, Tap, Verb

PS_PER_NS = 1_000
FRAMING_BYTES = 24  # FCS, preamble and gap: on the wire, in no capture
HEADER_BYTES = 42  # Ethernet, IPv4, UDP
BTH_AND_ICRC_BYTES = 16
RETH_BYTES = 16
ACK, CNP = 0x11, 0x81
NAK_SEQUENCE = 0x60
FOR_EVER_NS = 10**12

Packets = np.ndarray[Any, np.dtype[Any]]


def packet_bytes(payload: int, extension: int = 0) -> int:
    """What a packet takes of a link."""
    return HEADER_BYTES + BTH_AND_ICRC_BYTES + extension + -(-payload // 4) * 4 + FRAMING_BYTES


def message_bytes(payload: int, mtu: int = 4096) -> int:
    """What all packets of an RDMA WRITE take of a link."""
    return payload + -(-payload // mtu) * packet_bytes(0) + RETH_BYTES


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run: the engine, and per NIC the packets in the order of capture."""

    simulation: Simulation
    packets: list[Packets]

    def sent(self, nic: int) -> Packets:
        """Packets that a NIC has sent."""
        return self.packets[nic][self.packets[nic]["src"][:, 15] == nic]

    def received(self, nic: int, source: int | None = None) -> Packets:
        """Packets that a NIC has received, of one other NIC or of all."""
        chosen = self.packets[nic]["dst"][:, 15] == nic
        if source is not None:
            chosen &= self.packets[nic]["src"][:, 15] == source
        return self.packets[nic][chosen]

    def gbps(self, nic: int, source: int, begin_ns: int, end_ns: int, payload: bool = False) -> float:
        """Rate at which one NIC's data reach another: of the link, framing included, or of their payload."""
        data = data_of(self.received(nic, source))
        data = data[(data["ns"] >= begin_ns) & (data["ns"] < end_ns)]
        size = data["payload_bytes"] if payload else data["wire_bytes"] + FRAMING_BYTES
        return float(size.sum()) * 8 / (end_ns - begin_ns)


def data_of(packets: Packets) -> Packets:
    """Requests; neither acknowledgements nor notifications."""
    return packets[packets["opcode"] < ACK]


class Bench:
    """NICs 0 .. ``nics`` - 1 on one switch; keyword arguments of ``tune`` replace fields of the plan."""

    def __init__(self, nics: int = 2, rate_gbps: float = 1.0, latency_ns: int = 1_000, seed: int = 1) -> None:
        self.rate_gbps = rate_gbps
        self.latency_ps = latency_ns * PS_PER_NS
        self.seed = seed
        self.nics = nics
        self.style: dict[str, Any] = {}  # of all frames, as a tap takes it
        self.rows: dict[str, list[Any]] = {name: [] for name in _sim.plan_dtypes()}
        for number in range(nics):
            self._add("nics", ps_per_byte=8_000 / rate_gbps, latency_ps=self.latency_ps, access_port=number)
            ipv6 = [0xFD, *[0] * 14, number]
            self._add("addresses", mac=[2, 0, 0, 0, 0, number], ipv6=ipv6, ipv4=10 << 24 | number)
            self.port(rate_gbps)
        self._add("network", header_bytes=HEADER_BYTES, quantum_packets=8, train_packets=1)
        self._add(
            "transport", mtu=4096, timeout_ps=10**12, retry_limit=7, alpha_timer_ps=10**9,
            increase_timer_ps=10**9, alpha_gain=1 / 256, fast_recovery_rounds=5,
            additive_share=0.001, hyper_share=0.01, lowest_share=0.001,
        )  # fmt: skip
        self._add("library", depth=8, credit_verb=_sim.CreditVerb.WRITE, credit_bytes=64)

    def _add(self, table: str, **row: Any) -> int:
        self.rows[table].append(row)
        return len(self.rows[table]) - 1

    def tune(self, table: str, **fields: Any) -> Bench:
        """Replace fields of ``network``, ``transport`` or ``library``."""
        self.rows[table][0] |= fields
        return self

    # ---- the network

    def port(self, rate_gbps: float) -> int:
        """One more switch port."""
        return self._add("ports", ps_per_byte=8_000 / rate_gbps, latency_ps=self.latency_ps)

    def connect(self, a: int, b: int, start_psn: int = 0, via: tuple[int, ...] = ()) -> int:
        """A connection; its end at ``a`` is what is given back, that at ``b`` the next number."""
        first = len(self.rows["ends"])
        for near, far, psn, other in ((a, b, start_psn, 0), (b, a, 0, start_psn)):
            end = len(self.rows["ends"])
            self._add(
                "ends", nic=near, peer_nic=far, dest_qpn=100 + (end ^ 1), start_psn=psn, peer_start_psn=other
            )
            hops = [*via, far] if near == a else [far]
            self._add("paths", ports=hops + [0] * (4 - len(hops)), hops=len(hops))
        return first

    # ---- what happens in it

    def inject(
        self, end: int, size: int, messages: int = 1, depth: int | None = None, begin_ns: int = 1_000,
        verb: Verb = Verb.WRITE,
    ) -> None:  # fmt: skip
        """Messages of ``size`` bytes, ``depth`` of them unacknowledged at any time (all when not given)."""
        self._add(
            "injections", end=end, verb=verb, bytes=size, messages=messages, depth=depth or messages,
            begin_ps=begin_ns * PS_PER_NS,
        )  # fmt: skip

    def act(self, kind: ActionKind, subject: int, value: float = 0.0, extra: int = 0, at_ns: int = 0) -> None:
        """Something breaks, or recovers."""
        if not self.rows["triggers"]:
            self.clock_rank = self.rank(0, [(CommandKind.BEGIN_STEP, 0), (CommandKind.END_STEP, 0)])
        action = self._add("actions", kind=kind, subject=subject, value=value, extra=extra)
        self._add(
            "triggers", rank=self.clock_rank, operation=-1, delay_ps=at_ns * PS_PER_NS,
            first_action=action, actions=1,
        )  # fmt: skip

    def rank(self, nic: int, commands: list[tuple[CommandKind, int]]) -> int:
        """A process with its program."""
        first = len(self.rows["commands"])
        for kind, value in commands:
            self._add("commands", kind=kind, value=value)
        fields = {"nic": nic, "first_command": first, "commands": len(commands)}
        if "meeting" in (_sim.plan_dtypes()["ranks"].names or ()):
            fields["meeting"] = _sim.NOBODY
        return self._add("ranks", **fields)

    def stream(self, a: int, b: int, sizes: list[int], start_psn: int = 0, **lane_fields: int) -> None:
        """Two ranks, one of which hands slots of these sizes to the other under credits."""
        connection = self.connect(a, b, start_psn) // 2
        ranks = len(self.rows["ranks"])
        lane = self._add(
            "lanes", sender=ranks, receiver=ranks + 1, first_connection=connection, connections=1,
            slot_bytes=max(sizes), **lane_fields,
        )  # fmt: skip
        for nic, sends in ((a, 1), (b, 0)):
            first = len(self.rows["steps"])
            for size in sizes:
                place = len(self.rows["step_lanes"])
                self.rows["step_lanes"].append(lane)
                self._add("steps", first_receive=place, receives=1 - sends, sends=sends, bytes=size)
            thread = self._add("threads", first_step=first, steps=len(sizes))
            form = self._add("templates", first_thread=thread, threads=1)
            operation = self._add("operations", form=form)
            self.rank(nic, [(CommandKind.START, operation), (CommandKind.WAIT, 0)])

    # ---- running it

    def tables(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """The plan as the engine takes it; fields that no row names are 0."""
        made = {}
        for name, dtype in _sim.plan_dtypes().items():
            table = np.zeros(len(self.rows[name]), dtype)
            for number, row in enumerate(self.rows[name]):
                if dtype.names is None:
                    table[number] = row
                else:
                    for field, value in row.items():
                        table[field][number] = value
            made[name] = table
        return made

    def start(self, tapped: bool = True) -> Simulation:
        """The simulation, not yet run."""
        return Simulation(
            self.tables(), seed=self.seed, limit_ns=FOR_EVER_NS, tail_ns=FOR_EVER_NS, tapped=tapped
        )

    def run(self, until_ns: int) -> Ran:
        """Run to ``until_ns`` with a tap on every NIC."""
        simulation = self.start()
        simulation.advance(until_ns)
        return Ran(simulation, self.packets(simulation))

    def packets(self, simulation: Simulation) -> list[Packets]:
        """What every tap has seen, with perfect clocks that show the simulation's own time."""
        taken = self.captured(simulation)
        return [np.concatenate([batch.parse() for batch in batches]) for batches in taken]

    def captured(self, simulation: Simulation, snap_bytes: int = 128) -> list[list[PacketBatch]]:
        """The same as batches, with what is kept of each frame."""
        sightings, tables = simulation.take_sightings(), self.tables()
        config = {"clock": [(0, 0), (FOR_EVER_NS, FOR_EVER_NS)], "snap_bytes": snap_bytes}
        style = {"mtu": self.rows["transport"][0]["mtu"], **self.style}
        taps = [Tap(nic, tables, config, style) for nic in range(self.nics)]
        return [[tap.expand(sightings), tap.finish()] for tap in taps]
