# SPDX-License-Identifier: Apache-2.0
"""Traffic that is not training: storage, bandwidth tests, other tenants, and unlucky paths."""

from __future__ import annotations

from functools import partial

import numpy as np

from sim.network import Nic, Port
from sim.spec import FaultSpec, SimulationError, stream
from sim.transport import Message, QueuePair, Verb, ignore
from sim.world import START_NS, World

_BURST_BYTES = 16_384


def add_storage(world: World) -> None:
    """A storage server that every machine writes to and reads from in irregular bursts.

    The server has no capture; reads are modelled as its writes into the machine.
    """
    scenario = world.scenario
    server = world.add_nic(scenario.machines + 3, 0, external=True)
    for machine in range(scenario.machines):
        nic = world.nics[machine * scenario.nics_per_machine]
        mine, theirs = world.connect(nic, server, "storage")
        rng = stream(scenario.seed, "storage", machine)
        for queue_pair in (mine, theirs):
            world.loop.after(
                START_NS + int(rng.integers(0, 20_000_000)), partial(_burst, world, queue_pair, rng)
            )


def _burst(world: World, queue_pair: QueuePair, rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(1, 5))):
        size = int(rng.choice([4096, 16_384, 65_536]))
        queue_pair.post(
            Message(Verb.SEND if size == 4096 else Verb.WRITE, size, ignore, ignore, 1 << 40, 0x77)
        )
    world.loop.after(int(rng.exponential(60_000_000)) + 1_000_000, partial(_burst, world, queue_pair, rng))


def add_bandwidth_test(world: World, machines: tuple[int, ...]) -> None:
    """Pairs of machines that stream messages one after the other, writes then sends, as perftest does."""
    scenario = world.scenario
    for first, second in zip(machines[::2], machines[1::2], strict=False):
        rails = scenario.nics_per_machine
        pair = world.connect(world.nics[first * rails], world.nics[second * rails], "perftest")
        rng = stream(scenario.seed, "perftest", first)
        begin = START_NS
        for verb, sender in ((Verb.WRITE, pair[0]), (Verb.SEND, pair[0]), (Verb.WRITE, pair[1])):
            messages = int(rng.integers(150, 400))
            world.loop.at(begin, partial(_stream, sender, verb, 65_536, messages, 16))
            wire = int(messages * 65_536 * 8 / scenario.network.rate_gbps)
            begin += wire + int(rng.integers(20_000_000, 80_000_000))


def _stream(queue_pair: QueuePair, verb: Verb, size: int, messages: int, depth: int) -> None:
    left = [messages]

    def post() -> None:
        if left[0] > 0:
            left[0] -= 1
            queue_pair.post(Message(verb, size, ignore, post, 1 << 41, 0x99))

    for _ in range(min(depth, messages)):
        post()


def congest(world: World, fault: FaultSpec) -> None:
    """Another tenant's bursts share the first leaf's uplinks, or without uplinks some access ports.

    ``factor`` is the share of the port's rate that the foreign traffic takes on average.
    """
    fabric = world.fabrics[0]
    if fabric.uplinks:
        ports = [port for (leaf, _), port in fabric.uplinks.items() if leaf == 0]
    else:
        ports = [fabric.access_port(world.training_ranks[0].nic)]
    for number, port in enumerate(ports):
        _foreign_load(world, port, fault.factor, stream(world.scenario.seed, "tenant", number))


def _foreign_load(world: World, port: Port, share: float, rng: np.random.Generator) -> None:
    mean_gap = _BURST_BYTES * port.ns_per_byte / share
    level = [1.0, 0]  # present strength, bursts until it changes

    def burst() -> None:
        if level[1] <= 0:
            level[0], level[1] = float(rng.uniform(0.75, 1.25)), int(rng.integers(50, 400))
        level[1] -= 1
        if port.free_ns - world.loop.now < 200 * _BURST_BYTES * port.ns_per_byte:
            port.occupy(_BURST_BYTES)
        world.loop.after(int(rng.exponential(mean_gap / level[0])) + 1, burst)

    burst()


def _crossing(world: World, fault: FaultSpec, at_least: int) -> list[tuple[QueuePair, QueuePair]]:
    """One data connection (sender, receiver) of each machine that sends from the first leaf to others."""
    fabric = world.fabrics[0]
    found: dict[Nic, tuple[QueuePair, QueuePair]] = {}
    for lane in world.lanes:
        sender, receiver = lane.pairs[0]
        leaves = fabric.leaf(sender.nic), fabric.leaf(receiver.nic)
        if fabric.uplinks and sender.nic.address.rail == 0 and leaves[0] == 0 != leaves[1]:
            found.setdefault(sender.nic, (sender, receiver))
    if len(found) < at_least:
        raise SimulationError(
            f"fault {fault.kind}: {len(found)} machines send from the first leaf, {at_least} needed; "
            "give a network with at least two leaves and a job that crosses them"
        )
    return list(found.values())


def collide(world: World, fault: FaultSpec) -> None:
    """Two flows of different machines that leave the first leaf hash to one uplink from now on.

    ``factor`` divides that uplink's rate as well, as if further foreign flows lived there.
    """
    fabric = world.fabrics[0]
    for sender, receiver in _crossing(world, fault, 2)[:2]:
        fabric.pin_uplink(sender.nic, receiver.nic, receiver.qpn, 0)
    fabric.uplinks[0, 0].ns_per_byte *= fault.factor


def slow_leaf(world: World, fault: FaultSpec) -> None:
    """Every uplink of the first leaf runs at a part of its rate."""
    _crossing(world, fault, 1)
    for (leaf, _), port in world.fabrics[0].uplinks.items():
        if leaf == 0:
            port.ns_per_byte *= fault.factor


def lose_on_path(world: World, fault: FaultSpec) -> None:
    """Packets of one flow get lost between the leaves; neither end is to blame."""
    fabric = world.fabrics[0]
    rng = stream(world.scenario.seed, "fabric loss")
    crossing = _crossing(world, fault, 1)
    sender, receiver = crossing[int(rng.integers(0, len(crossing)))]
    world.candidates = [sender.nic.address.machine, receiver.nic.address.machine]
    uplink = fabric.uplink_of(sender.nic, receiver.nic, receiver.qpn)
    fabric.uplinks[0, uplink].loss = lambda: bool(rng.random() < fault.probability)
