# SPDX-License-Identifier: Apache-2.0
"""A simulated scenario with all that happened in it, and what every tap saw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pulse_native import PacketBatch
from sim.output.records import Records, StepTimes, iteration_times_ms, records_of
from sim.planning.plan import Table
from sim.planning.world import LaneInfo, World
from sim.simulate import Outcome, simulate
from sim.spec import Scenario

_PSN_SPAN = 1 << 24

Packets = np.ndarray[Any, np.dtype[Any]]


class Kept:
    """A sink that keeps all batches, by NIC."""

    def __init__(self) -> None:
        self.batches: dict[int, list[PacketBatch]] = {}
        self.closed = False

    def take(self, nic: int, batch: PacketBatch) -> None:
        self.batches.setdefault(nic, []).append(batch)

    def close(self, end_ns: int) -> None:
        self.closed = True


@dataclass
class Watched:
    """``packets`` holds one table per NIC, stamped in true ns since the simulation began."""

    outcome: Outcome
    batches: dict[int, list[PacketBatch]]

    @property
    def world(self) -> World:
        return self.outcome.world

    @property
    def finished(self) -> bool:
        return self.outcome.simulation.finished

    @property
    def onset_ns(self) -> int:
        onset = self.outcome.simulation.onset_ns
        assert onset is not None
        return onset

    @cached_property
    def records(self) -> Records:
        return records_of(self.outcome)

    @cached_property
    def packets(self) -> dict[int, Packets]:
        found = {}
        for nic, batches in self.batches.items():
            found[nic] = np.concatenate([batch.parse() for batch in batches])
            found[nic]["ns"] -= self.outcome.setting.epoch_ns
        return found

    def frames(self, nic: int) -> list[bytes]:
        """What the tap of a NIC kept of each packet."""
        return [batch.data(row) for batch in self.batches[nic] for row in range(len(batch))]

    def sent(self, nic: int, to: int | None = None) -> Packets:
        """Packets that a NIC has sent, to one other or to all, as its own tap shows them."""
        return self._between(nic, nic, to)

    def received(self, nic: int, source: int | None = None) -> Packets:
        """Packets that a NIC has received, of one other or of all, as its own tap shows them."""
        return self._between(nic, source, nic)

    def _between(self, tap: int, source: int | None, target: int | None) -> Packets:
        packets = self.packets[tap]
        for column, nic in (("src", source), ("dst", target)):
            if nic is not None:
                address = np.frombuffer(self.world.nics[nic].ipv4.to_bytes(4, "big"), np.uint8)
                packets = packets[(packets[column][:, 12:] == address).all(axis=1)]
        return packets

    def repeats(self, nic: int) -> Packets:
        """Requests that a NIC sent although it had sent their sequence number or a later one before."""
        sent = self.sent(nic)
        sent = sent[sent["opcode"] < 0x11]
        repeated = np.zeros(len(sent), bool)
        for address, qpn in {(bytes(p["dst"]), int(p["dest_qpn"])) for p in sent}:
            rows = np.flatnonzero((sent["dest_qpn"] == qpn) & (sent["dst"] == list(address)).all(axis=1))
            psn = unwrapped(sent["psn"][rows])
            repeated[rows[1:]] = psn[1:] <= np.maximum.accumulate(psn)[:-1]
        return sent[repeated]

    # ---- what really happened

    def lane(self, sender: int, kind: str = "ring") -> LaneInfo:
        """The first lane of a rank of one kind."""
        return next(lane for lane in self.world.lanes if lane.sender == sender and lane.kind == kind)

    def slots(self, lane: LaneInfo) -> Table:
        """The slots of a lane, in order."""
        return self.records.slots[self.records.slots["lane"] == lane.number]

    def credits(self, lane: LaneInfo) -> Table:
        """The credits of a lane, in order."""
        mine = self.records.credits[self.records.credits["lane"] == lane.number]
        return mine[np.argsort(mine["number"])]

    def step(self, rank: int, step: int) -> StepTimes:
        """One step of a rank."""
        return next(one for one in self.records.steps[rank] if one.step == step)

    def compute(self, rank: int) -> list[int]:
        """Compute time by step."""
        return [step.compute_ns for step in self.records.steps[rank]]

    @property
    def iterations_ms(self) -> list[float]:
        """Iteration times over all training ranks."""
        return iteration_times_ms(self.records, [rank.number for rank in self.world.training_ranks])


def unwrapped(psn: np.ndarray) -> np.ndarray:
    """Sequence numbers that go on beyond 24 bits."""
    steps = np.diff(psn.astype(np.int64))
    steps = (steps + _PSN_SPAN // 2) % _PSN_SPAN - _PSN_SPAN // 2
    return np.concatenate([psn[:1].astype(np.int64), int(psn[0]) + np.cumsum(steps)])


def watch(scenario: Scenario) -> Watched:
    """Simulate with a tap on every NIC."""
    kept = Kept()
    outcome = simulate(scenario, kept)
    assert kept.closed
    return Watched(outcome, kept.batches)


def ran(scenario: Scenario) -> Watched:
    """Simulate without taps."""
    return Watched(simulate(scenario), {})
