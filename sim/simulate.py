# SPDX-License-Identifier: Apache-2.0
"""Run a scenario: plan it, let the engine run, and hand what the taps see to a sink."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, runtime_checkable

from pulse_native import PacketBatch
from pulse_native._sim import SentStamp, Sightings, Simulation, Tap, TapMode
from sim.planning.clocks import NicClock, draw_clock, seed_of, stamp_noise
from sim.planning.commands import Program
from sim.planning.faults import STOPS_JOB, Armed, arm, shape
from sim.planning.plan import Table
from sim.planning.traffic import add_bandwidth_test, add_storage, trains
from sim.planning.world import START_NS, World
from sim.spec import CaptureKind, FaultKind, FaultSpec, Scenario, SimulationError, TxStamp, Workload, stream

_EVENTS_PER_STRETCH = 500_000
_EVENTS_PER_NIC = 1_000  # of a stretch at least: every tap and meter has a look at each
_LARGEST_STRETCH_NS = 50_000_000
_STRETCHES_AHEAD = 2
_TAP_MODES = {
    CaptureKind.ALL: TapMode.ALL,
    CaptureKind.STEERED: TapMode.STEERED,
    CaptureKind.SAMPLED: TapMode.SAMPLED,
}
_SENT_STAMPS = {TxStamp.WIRE: SentStamp.WIRE, TxStamp.COPY: SentStamp.COPY, TxStamp.NONE: SentStamp.NONE}

ProgramSource = Callable[[World], Mapping[int, Program]]
"""Makes the program of every rank, by its number."""

Progress = Callable[[float], None]
"""Told which share of the expected simulated time is over, now and then."""


class Sink(Protocol):
    """What becomes of captured packets; called from one thread, in the order of capture of each NIC."""

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Packets of one NIC."""

    def close(self, end_ns: int) -> None:
        """The capture is over at ``end_ns`` of true time since the simulation began."""


@runtime_checkable
class TimedSink(Sink, Protocol):
    """A sink that is told how time passes, also while no packet comes."""

    def reach(self, now_ns: int) -> None:
        """What was captured until ``now_ns``, but for the last milliseconds, has been taken."""


@runtime_checkable
class HeaderSink(Sink, Protocol):
    """A sink that reads headers alone: its packets get no ICRC."""

    headers_only: ClassVar[Literal[True]]


@dataclass(frozen=True, slots=True)
class Pacing:
    """Makes a simulation wait: ``reached`` is told after every stretch how many ns are over since its begin.

    It is called from the thread that runs the simulation, which goes on when it returns.
    """

    reached: Callable[[int], None]
    longest_stretch_ns: int = _LARGEST_STRETCH_NS


@dataclass(frozen=True, slots=True)
class Setting:
    """A planned scenario: its world, tables, clocks, and when it is expected to end."""

    world: World
    tables: dict[str, Table]
    armed: tuple[tuple[FaultSpec, Armed], ...]
    clocks: tuple[NicClock, ...]
    epoch_ns: int
    expected_ns: int
    limit_ns: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished simulation; ``end_ns`` of true time since its beginning is when the capture ended."""

    setting: Setting
    simulation: Simulation
    end_ns: int
    lost: tuple[int, ...]

    @property
    def world(self) -> World:
        """The world that was simulated."""
        return self.setting.world


def prepare(scenario: Scenario, programs: ProgramSource | None = None) -> Setting:
    """Plan ``scenario``, perhaps with given programs. Raises SimulationError when it is impossible."""
    world = World(scenario)
    expected_ns = START_NS + _expected_ns(scenario)
    for job in scenario.jobs:
        if job.workload is Workload.NONE:
            add_bandwidth_test(world, job.machines)
    for fault in scenario.faults:
        shape(world, fault)
    world.compile_programs(None if programs is None else programs(world))
    if scenario.storage:
        add_storage(world, 2 * expected_ns)
    armed = tuple((fault, arm(world, fault)) for fault in scenario.faults)
    world.add_settings()
    epoch_ns = int(stream(scenario.seed, "epoch").integers(1_735_000_000, 1_790_000_000)) * 1_000_000_000
    epoch_ns += int(stream(scenario.seed, "epoch", 1).integers(0, 1_000_000_000))
    clocks = tuple(
        draw_clock(scenario.clock, scenario.seed, nic.machine, nic.rail, epoch_ns, 2 * expected_ns)
        for nic in world.nics
    )
    limit_ns = START_NS + _longest_ns(scenario)
    return Setting(world, world.plan.tables(), armed, clocks, epoch_ns, expected_ns, limit_ns)


def moved_to(setting: Setting, epoch_ns: int) -> Setting:
    """The same run, begun at another time."""
    later_ns = epoch_ns - setting.epoch_ns
    clocks = tuple(clock.moved_by(later_ns) for clock in setting.clocks)
    return replace(setting, epoch_ns=epoch_ns, clocks=clocks)


def simulate(scenario: Scenario, sink: Sink | None = None, progress: Progress | None = None) -> Outcome:
    """Run ``scenario`` to its end; without a sink nothing is captured."""
    setting = prepare(scenario)
    return run(setting, sink, progress)


def run(
    setting: Setting,
    sink: Sink | None,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> Outcome:
    """Run a planned scenario to its end; the sink gets the packets of at most one stretch at a time."""
    scenario = setting.world.scenario
    stops = any(fault.kind in STOPS_JOB for fault in scenario.faults)
    tail_ns = int(stream(scenario.seed, "tail").integers(5_000_000, 30_000_000))
    training = trains(setting.world)
    steered = scenario.capture.kind is CaptureKind.STEERED
    simulation = Simulation(
        setting.tables,
        seed=scenario.seed & (1 << 64) - 1,
        limit_ns=setting.limit_ns if training else START_NS + scenario.watch_ns + tail_ns,
        tail_ns=tail_ns if training else scenario.watch_ns + START_NS,
        watch_ns=scenario.watch_ns if stops else None,
        tapped=sink is not None,
        # A copy never overtakes the one before it, though a steered tap passes over that.
        sent_middles=not steered or scenario.clock.tx_stamp is TxStamp.COPY,
        received_middles=not steered,
    )

    def told(running: Simulation) -> None:
        if progress is not None:
            progress(min(1.0, running.now_ns / setting.expected_ns))
        if pacing is not None:
            pacing.reached(running.now_ns)

    longest_stretch_ns = _LARGEST_STRETCH_NS if pacing is None else pacing.longest_stretch_ns
    if sink is None:
        _advance(simulation, told, longest_stretch_ns, len(setting.world.nics))
        lost: tuple[int, ...] = ()
    else:
        lost = _with_taps(simulation, setting, sink, told, longest_stretch_ns)
    return Outcome(setting, simulation, simulation.now_ns, lost)


def _advance(
    simulation: Simulation, after_stretch: Callable[[Simulation], None], longest_stretch_ns: int, nics: int
) -> None:
    """Run in stretches of bounded work, so that little waits in memory at any time."""
    events = max(_EVENTS_PER_STRETCH, _EVENTS_PER_NIC * nics)
    goes_on = True
    while goes_on:
        goes_on = simulation.advance(simulation.now_ns + longest_stretch_ns, events)
        after_stretch(simulation)


def _with_taps(
    simulation: Simulation,
    setting: Setting,
    sink: Sink,
    told: Callable[[Simulation], None],
    longest_stretch_ns: int,
) -> tuple[int, ...]:
    """The engine runs in this thread, taps and sink in another, a few stretches behind."""
    taps = make_taps(setting, checksums=not isinstance(sink, HeaderSink))
    waiting: queue.Queue[tuple[Sightings, int] | None] = queue.Queue(_STRETCHES_AHEAD)
    failures: list[BaseException] = []
    given_up = threading.Event()

    def work() -> None:
        try:
            while (stretch := waiting.get()) is not None:
                sightings, now_ns = stretch
                for nic, tap in taps.items():
                    if not given_up.is_set():
                        sink.take(nic, tap.expand(sightings))
                if isinstance(sink, TimedSink):
                    sink.reach(now_ns)
            if given_up.is_set():
                return
            for nic, tap in taps.items():
                sink.take(nic, tap.finish())
        except BaseException as error:  # noqa: BLE001  told to the thread that can raise it
            failures.append(error)
            while waiting.get() is not None:
                pass

    def hand_over(running: Simulation) -> None:
        if failures:
            raise failures[0]
        waiting.put((running.take_sightings(), running.now_ns))
        told(running)

    worker = threading.Thread(target=work, name="taps")
    worker.start()
    try:
        _advance(simulation, hand_over, longest_stretch_ns, len(taps))
    except BaseException:
        given_up.set()
        raise
    finally:
        waiting.put(None)
        worker.join()
    if failures:
        raise failures[0]
    sink.close(simulation.now_ns)
    return tuple(tap.lost for tap in taps.values())


def make_taps(setting: Setting, *, checksums: bool = True) -> dict[int, Tap]:
    """The tap of every captured NIC, by the NIC's number; without ``checksums`` packets have no ICRC."""
    world = setting.world
    scenario = world.scenario
    network, capture = scenario.network, scenario.capture
    style = {
        "mtu": scenario.transport.mtu,
        "vlan": -1 if network.vlan is None else network.vlan,
        "ipv6": network.ipv6,
        "migration_bit": bool(stream(scenario.seed, "style").random() < 0.5),
        "type_of_service": network.tos,
        "checksums": checksums,
    }
    common = stamp_noise(scenario.clock) | {
        "mode": _TAP_MODES[capture.kind],
        "sample_shift": capture.sample_shift,
        "sent_stamp": _SENT_STAMPS[scenario.clock.tx_stamp],
        "loss_probability": capture.loss_probability,
        "mean_loss_packets": capture.mean_loss_packets,
        "snap_bytes": capture.snap_bytes,
    }
    taps = {}
    for nic in world.nics:
        if nic.external:
            continue
        config = common | {
            "clock": list(setting.clocks[nic.number].points),
            "seed": seed_of("tap", nic.machine, nic.rail, seed=scenario.seed),
        }
        try:
            taps[nic.number] = Tap(nic.number, setting.tables, config, style)
        except ValueError as error:
            raise SimulationError(f"scenario {scenario.name}: {error}") from error
    return taps


def without_faults(scenario: Scenario) -> Scenario:
    """The same seed's healthy run, which costs of faults are measured against."""
    kinds = {fault.kind for fault in scenario.faults}
    noise, jobs = scenario.noise, scenario.jobs
    if FaultKind.IMBALANCE in kinds:
        noise = replace(noise, imbalance=0.0)
    if FaultKind.STAGE_IMBALANCE in kinds:
        jobs = tuple(replace(job, stage_factors=()) for job in jobs)
    return replace(scenario, fault=None, second_fault=None, noise=noise, jobs=jobs)


def _expected_ns(scenario: Scenario) -> int:
    """About how long a healthy run lasts."""
    longest = 0
    for job in scenario.jobs:
        sent_ns = int(2 * job.collective_bytes * 8 / scenario.network.rate_gbps)
        pauses = job.pause_ns // job.pause_every if job.pause_every else 0
        longest = max(longest, (job.steps + 1) * (job.compute_ns + 2 * sent_ns + pauses))
    return longest + scenario.watch_ns


def _longest_ns(scenario: Scenario) -> int:
    """A generous bound on the run time, so that a job that never ends is cut off."""
    jobs = scenario.jobs
    per_step = max(
        job.compute_ns + 200 * int(job.collective_bytes * 8 / scenario.network.rate_gbps) for job in jobs
    )
    pauses = max((job.pause_ns for job in jobs), default=0)
    steps = max(job.steps for job in jobs) + 2
    return steps * (5 * per_step + pauses) + 20 * scenario.transport.timeout_ns * steps
