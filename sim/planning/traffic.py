# SPDX-License-Identifier: Apache-2.0
"""Traffic that is not training (storage, bandwidth tests), and where on the paths others can interfere."""

from __future__ import annotations

from pulse_native._sim import Verb
from sim.planning.plan import PS_PER_NS
from sim.planning.world import START_NS, World
from sim.spec import FaultSpec, SimulationError, Workload, stream

_STORAGE_GAP_NS = 60_000_000
_TEST_BYTES = 65_536
_TEST_DEPTH = 16


def add_storage(world: World, end_ns: int) -> None:
    """A storage server that every machine writes to and reads from in irregular bursts until ``end_ns``.

    The server has no capture; reads are modelled as its writes into the machine.
    """
    scenario = world.scenario
    server = world.add_nic(scenario.machines + 3, 0, external=True)
    for machine in range(scenario.machines):
        connection = world.connect(machine * scenario.nics_per_machine, server, "storage")
        rng = stream(scenario.seed, "storage", machine)
        for end in (2 * connection, 2 * connection + 1):
            at_ns = START_NS + int(rng.integers(0, 20_000_000))
            while at_ns < end_ns:
                for _ in range(int(rng.integers(1, 5))):
                    size = int(rng.choice([4096, 16_384, 65_536]))
                    verb = Verb.SEND if size == 4096 else Verb.WRITE
                    world.plan.add("injections", end, verb, size, 1, 1, at_ns * PS_PER_NS)
                at_ns += int(rng.exponential(_STORAGE_GAP_NS)) + 1_000_000


def add_bandwidth_test(world: World, machines: tuple[int, ...]) -> None:
    """Pairs of machines that stream messages one after the other, writes then sends, as perftest does."""
    scenario = world.scenario
    rails = scenario.nics_per_machine
    for first, second in zip(machines[::2], machines[1::2], strict=False):
        connection = world.connect(first * rails, second * rails, "perftest")
        rng = stream(scenario.seed, "perftest", first)
        begin_ns = START_NS
        for verb, side in ((Verb.WRITE, 0), (Verb.SEND, 0), (Verb.WRITE, 1)):
            messages = int(rng.integers(150, 400))
            begin_ps = begin_ns * PS_PER_NS
            world.plan.add(
                "injections", 2 * connection + side, verb, _TEST_BYTES, messages, _TEST_DEPTH, begin_ps
            )
            wire_ns = int(messages * _TEST_BYTES * 8 / scenario.network.rate_gbps)
            begin_ns += wire_ns + int(rng.integers(20_000_000, 80_000_000))


def foreign_load_ports(world: World) -> list[int]:
    """Where other tenants meet the job: the first leaf's uplinks, or without uplinks one access port."""
    nic = world.training_ranks[0].nic
    return world.fabric.uplinks_of(world.fabric.leaf(nic)) or [world.fabric.access[nic]]


def crossing_connections(world: World, fault: FaultSpec, at_least: int) -> list[int]:
    """One data connection of each NIC that sends from the first rank's leaf to others."""
    fabric = world.fabric
    leaf = fabric.leaf(world.training_ranks[0].nic)
    found: dict[int, int] = {}
    for lane in world.lanes:
        sender, receiver = world.ranks[lane.sender].nic, world.ranks[lane.receiver].nic
        if fabric.leaf(sender) == leaf != fabric.leaf(receiver):
            found.setdefault(sender, lane.first_connection)
    if len(found) < at_least:
        raise SimulationError(
            f"fault {fault.kind}: {len(found)} machines send from the first leaf, {at_least} needed; "
            "give a network with at least two leaves and a job that crosses them"
        )
    return list(found.values())


def trains(world: World) -> bool:
    """Whether any job of the scenario trains."""
    return any(job.workload is not Workload.NONE for job in world.scenario.jobs)
