# SPDX-License-Identifier: Apache-2.0
"""Faults and controls: each changes one physical property of the simulated world, from its onset step on.

Nothing here touches a time that another rank sees; neighbours suffer through packets alone. What a fault does
to compute is fixed before the programs are compiled (``sim/planning/compute_faults.py``); what it does to
devices and processes becomes triggers of the plan (``arm``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pulse_native._sim import ActionKind
from sim.planning.compute_faults import culprit_of, growth, growth_steps, rng_of
from sim.planning.compute_faults import shape as shape
from sim.planning.plan import PS_PER_NS
from sim.planning.traffic import crossing_connections, foreign_load_ports
from sim.planning.world import RankInfo, World
from sim.spec import FaultKind, FaultSpec, SimulationError

STOPS_JOB = frozenset(
    {FaultKind.LINK_DOWN, FaultKind.NIC_DEAD, FaultKind.HANG, FaultKind.CRASH, FaultKind.OP_MISMATCH}
)
_AT_BEGIN = -1
_FOREIGN_BURST_BYTES = 16_384

Action = tuple[ActionKind, int, float, int]
"""Kind, subject, value, extra, as in ``native/sim/plan.hpp``."""


@dataclass(slots=True)
class Armed:
    """What the plan now holds of a fault: its onset trigger, its recovery trigger, who stands at its ends."""

    onset_trigger: int
    recovery_trigger: int | None = None
    candidates: tuple[int, ...] = ()


# ---- devices and processes


def arm(world: World, fault: FaultSpec) -> Armed:
    """Write the fault's triggers into the plan; the programs are compiled by now."""
    return _ARMERS.get(fault.kind, _only_mark)(world, fault)


def _trigger(
    world: World,
    rank: int,
    step: int,
    actions: list[Action],
    *,
    operation: int = _AT_BEGIN,
    delay_ns: int = 0,
    onset: bool = False,
) -> int:
    first = len(world.plan.rows["actions"])
    for action in actions:
        world.plan.add("actions", *action)
    return world.plan.add("triggers", rank, step, operation, delay_ns * PS_PER_NS, first, len(actions), onset)


def _only_mark(world: World, fault: FaultSpec) -> Armed:
    """The change itself is bound to step numbers; the onset is marked on the culprit, else on rank 0."""
    rank = world.training_ranks[0] if fault.machine is None else culprit_of(world, fault)
    return Armed(_trigger(world, rank.number, fault.onset_step, [], onset=True))


def _switched(world: World, fault: FaultSpec, rank: int, on: list[Action], off: list[Action]) -> Armed:
    """Actions at the onset step, and their reversal if the fault ends."""
    armed = Armed(_trigger(world, rank, fault.onset_step, on, onset=True))
    if fault.until_step:
        armed.recovery_trigger = _trigger(world, rank, fault.until_step, off)
    return armed


def _scaled(kind: ActionKind, subject: int, factor: float) -> tuple[Action, Action]:
    return (kind, subject, factor, 0), (kind, subject, 1.0, 0)


def _slow_nic(world: World, fault: FaultSpec) -> Armed:
    rank = culprit_of(world, fault)
    kind = ActionKind.ENGINE_RATE if fault.before_tap else ActionKind.WIRE_RATE
    pairs = [_scaled(kind, rank.nic, fault.factor)]
    if fault.ingress:
        pairs.append(_scaled(ActionKind.PORT_RATE, world.fabric.access[rank.nic], fault.factor))
    return _switched(world, fault, rank.number, [on for on, _ in pairs], [off for _, off in pairs])


def _slow_pcie(world: World, fault: FaultSpec) -> Armed:
    """The NIC fetches and delivers data slowly, so it also pauses the switch in front of it."""
    rank = culprit_of(world, fault)
    fetch, fetch_again = _scaled(ActionKind.ENGINE_RATE, rank.nic, fault.factor)
    deliver: Action = (ActionKind.DRAIN_RATE, rank.nic, fault.factor, 0)
    deliver_again: Action = (ActionKind.DRAIN_RATE, rank.nic, 0.0, 0)
    return _switched(world, fault, rank.number, [fetch, deliver], [fetch_again, deliver_again])


def _slow_receiver(world: World, fault: FaultSpec) -> Armed:
    rank = culprit_of(world, fault)
    on: Action = (ActionKind.DRAIN_RATE, rank.nic, fault.factor, 0)
    return _switched(world, fault, rank.number, [on], [(ActionKind.DRAIN_RATE, rank.nic, 0.0, 0)])


def _packet_loss(world: World, fault: FaultSpec) -> Armed:
    rank = culprit_of(world, fault)
    if fault.ingress:
        kind, subject = ActionKind.PORT_LOSS, world.fabric.access[rank.nic]
    else:
        subject = rank.nic
        kind = ActionKind.LOSS_BEFORE_TAP if fault.before_tap else ActionKind.LOSS_ON_WIRE
    on: Action = (kind, subject, fault.probability, 0)
    return _switched(world, fault, rank.number, [on], [(kind, subject, 0.0, 0)])


def _cpu_hold(world: World, fault: FaultSpec) -> Armed:
    culprit = culprit_of(world, fault)
    ranks = [rank.number for rank in world.ranks if rank.machine == culprit.machine]
    mean_ps = fault.duration_ns * PS_PER_NS
    on: list[Action] = [(ActionKind.HOST_HOLD, rank, fault.probability, mean_ps) for rank in ranks]
    off: list[Action] = [(ActionKind.HOST_HOLD, rank, 0.0, 0) for rank in ranks]
    return _switched(world, fault, culprit.number, on, off)


def _growing_hold(world: World, fault: FaultSpec) -> Armed:
    """The proxy threads of the machine are held ever more often, until ``period_steps`` after the onset."""
    culprit = culprit_of(world, fault)
    ranks = [rank.number for rank in world.ranks if rank.machine == culprit.machine]
    last = min(fault.onset_step + growth_steps(fault), world.scenario.jobs[culprit.job].steps)
    armed = Armed(-1)
    for step in range(fault.onset_step, min(last, fault.until_step or last)):
        held = fault.probability * growth(fault, step)
        on: list[Action] = [
            (ActionKind.HOST_HOLD, rank, held, fault.duration_ns * PS_PER_NS) for rank in ranks
        ]
        trigger = _trigger(world, culprit.number, step, on, onset=step == fault.onset_step)
        armed.onset_trigger = trigger if step == fault.onset_step else armed.onset_trigger
    if fault.until_step:
        off: list[Action] = [(ActionKind.HOST_HOLD, rank, 0.0, 0) for rank in ranks]
        armed.recovery_trigger = _trigger(world, culprit.number, fault.until_step, off)
    return armed


def _place_in_step(world: World, fault: FaultSpec, rank: RankInfo) -> tuple[int, int]:
    """An operation of the onset step, drawn, and how far into it (ns) something inside of it happens."""
    operations = rank.operations.get(fault.onset_step, [])
    if not operations:
        raise SimulationError(f"fault {fault.kind}: step {fault.onset_step} has no operation to strike in")
    place = int(float(rng_of(world, fault, "which").random()) * len(operations))
    fraction = float(rng_of(world, fault, "when").uniform(0.15, 0.6))
    return place, int(fraction * operations[place].size * 8 / world.scenario.network.rate_gbps)


def _inside_operation(world: World, fault: FaultSpec, action: Action) -> Armed:
    rank = culprit_of(world, fault)
    place, delay_ns = _place_in_step(world, fault, rank)
    return Armed(
        _trigger(
            world,
            rank.number,
            fault.onset_step,
            [action],
            operation=place,
            delay_ns=max(1, delay_ns),
            onset=True,
        )
    )


def _link_down(world: World, fault: FaultSpec) -> Armed:
    return _inside_operation(world, fault, (ActionKind.LINK_DOWN, culprit_of(world, fault).nic, 0.0, 0))


def _link_flap(world: World, fault: FaultSpec) -> Armed:
    armed = _link_down(world, fault)
    rank = culprit_of(world, fault)
    place, delay_ns = _place_in_step(world, fault, rank)
    armed.recovery_trigger = _trigger(
        world,
        rank.number,
        fault.onset_step,
        [(ActionKind.LINK_UP, rank.nic, 0.0, 0)],
        operation=place,
        delay_ns=max(1, delay_ns) + fault.duration_ns,
    )
    return armed


def _nic_dead(world: World, fault: FaultSpec) -> Armed:
    return _inside_operation(world, fault, (ActionKind.NIC_DEAD, culprit_of(world, fault).nic, 0.0, 0))


def _hang(world: World, fault: FaultSpec) -> Armed:
    """The rank stops as it is about to enter an operation."""
    rank = culprit_of(world, fault)
    place, _ = _place_in_step(world, fault, rank)
    stop: Action = (ActionKind.RANK_STOP, rank.number, 0.0, 0)
    return Armed(_trigger(world, rank.number, fault.onset_step, [stop], operation=place, onset=True))


def _crash(world: World, fault: FaultSpec) -> Armed:
    """The process is killed, inside a collective or while it computes; its queue pairs go with it."""
    rank = culprit_of(world, fault)
    kill: Action = (ActionKind.RANK_CRASH, rank.number, 0.0, 0)
    if rng_of(world, fault, "where").random() < 0.5:
        return _inside_operation(world, fault, kill)
    compute_ns = world.scenario.jobs[rank.job].compute_ns
    delay_ns = int(compute_ns * rng_of(world, fault, "when").uniform(0.1, 0.8))
    return Armed(
        _trigger(world, rank.number, fault.onset_step, [kill], delay_ns=max(1, delay_ns), onset=True)
    )


# ---- the path


def _congestion(world: World, fault: FaultSpec) -> Armed:
    """Another tenant's bursts share ports; ``factor`` is the share of the rate that they take on average."""
    if world.fabric.uplinks_of(world.fabric.leaf(world.training_ranks[0].nic)):
        crossing_connections(world, fault, 1)
    ports = foreign_load_ports(world)
    on: list[Action] = [(ActionKind.FOREIGN_LOAD, p, fault.factor, _FOREIGN_BURST_BYTES) for p in ports]
    off: list[Action] = [(ActionKind.FOREIGN_LOAD, p, 0.0, 0) for p in ports]
    return _switched(world, fault, world.training_ranks[0].number, on, off)


def _path_collision(world: World, fault: FaultSpec) -> Armed:
    """Two flows of different machines that leave the first leaf hash to one uplink from now on.

    ``factor`` divides that uplink's rate as well, as if further foreign flows lived there.
    """
    crossing = crossing_connections(world, fault, 2)[:2]
    leaf = world.fabric.leaf(world.training_ranks[0].nic)
    slower, as_before = _scaled(ActionKind.PORT_RATE, world.fabric.uplinks_of(leaf)[0], fault.factor)
    on: list[Action] = [slower]
    off: list[Action] = [as_before]
    for connection in crossing:
        end = 2 * connection
        source, target = world.plan.rows["ends"][end][:2]
        path = world.plan.add_spare_path(world.fabric.path(source, target, 0))
        on.append((ActionKind.PIN_PATH, end, 0.0, path))
        off.append((ActionKind.PIN_PATH, end, 0.0, end))  # an end's own path has its number
    return _switched(world, fault, world.training_ranks[0].number, on, off)


def _switch_port(world: World, fault: FaultSpec) -> Armed:
    """Every uplink of the first leaf runs at a part of its rate."""
    crossing_connections(world, fault, 1)
    leaf = world.fabric.leaf(world.training_ranks[0].nic)
    pairs = [_scaled(ActionKind.PORT_RATE, port, fault.factor) for port in world.fabric.uplinks_of(leaf)]
    rank = world.training_ranks[0].number
    return _switched(world, fault, rank, [on for on, _ in pairs], [off for _, off in pairs])


def _fabric_loss(world: World, fault: FaultSpec) -> Armed:
    """Packets of one flow get lost between the leaves; neither end is to blame."""
    crossing = crossing_connections(world, fault, 1)
    connection = crossing[int(rng_of(world, fault).integers(0, len(crossing)))]
    source, target = world.plan.rows["ends"][2 * connection][:2]
    ports, _ = world.plan.path_of(2 * connection)
    on: Action = (ActionKind.PORT_LOSS, ports[0], fault.probability, 0)
    rank = world.training_ranks[0].number
    armed = _switched(world, fault, rank, [on], [(ActionKind.PORT_LOSS, ports[0], 0.0, 0)])
    armed.candidates = world.nics[source].machine, world.nics[target].machine
    return armed


_ARMERS: dict[FaultKind, Callable[[World, FaultSpec], Armed]] = {
    FaultKind.SLOW_NIC: _slow_nic,
    FaultKind.SLOW_PCIE: _slow_pcie,
    FaultKind.SLOW_RECEIVER: _slow_receiver,
    FaultKind.PACKET_LOSS: _packet_loss,
    FaultKind.LINK_DOWN: _link_down,
    FaultKind.LINK_FLAP: _link_flap,
    FaultKind.NIC_DEAD: _nic_dead,
    FaultKind.HANG: _hang,
    FaultKind.CRASH: _crash,
    FaultKind.CPU_CONTENTION: _cpu_hold,
    FaultKind.MEMORY_PRESSURE: _growing_hold,
    FaultKind.CONGESTION: _congestion,
    FaultKind.PATH_COLLISION: _path_collision,
    FaultKind.SWITCH_PORT: _switch_port,
    FaultKind.FABRIC_LOSS: _fabric_loss,
}
