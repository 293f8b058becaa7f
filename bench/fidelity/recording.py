# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario through software DPUs, analyses their frames, and keeps what really happened beside it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.gates import find_gates, send_actions
from host_ctl.attribute.needs import learn_needs, share_needs
from host_ctl.attribute.program import Program
from host_ctl.attribute.roles import find_sharing
from host_ctl.attribute.states import state_stretches
from host_ctl.ingest.series import Table
from host_ctl.pipeline import Analysis, analyze_paths
from host_ctl.reconstruct.repairs import mend
from host_ctl.reconstruct.transfers import Endpoint, Traffic
from sim.output.records import Records, records_of
from sim.output.sinks import FrameSink
from sim.planning.world import World
from sim.simulate import Outcome, Setting, prepare, run
from sim.spec import Scenario

_POINTS = 200


@dataclass(frozen=True, slots=True)
class Recorded:
    """A simulated run and its analysis."""

    outcome: Outcome
    records: Records
    analysis: Analysis

    @property
    def world(self) -> World:
        """The world that was simulated."""
        return self.outcome.world


def record(scenario: Scenario) -> Recorded:
    """Simulate a scenario and analyse what its software DPUs sent."""
    setting = prepare(scenario)
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        outcome = run(setting, FrameSink(setting, Path(scratch)))
        until_ns = setting.clocks[0].show(outcome.end_ns)
        analysis = analyze_paths(sorted(Path(scratch).glob("*.frames")), until_ns=until_ns)
    return Recorded(outcome, records_of(outcome), analysis)


def nic_number(endpoint: Endpoint, world: World) -> int | None:
    """The simulated NIC of an endpoint; None without a capture of its own."""
    if endpoint.series is None:
        return None
    machine = int(endpoint.machine.removeprefix("node"))
    rail = int(endpoint.nic.removeprefix("mlx5_")) if endpoint.nic else 0
    return machine * world.scenario.nics_per_machine + rail


def lane_of_links(traffic: Traffic, world: World) -> NDArray[np.int64]:
    """The simulated lane whose data every link carries; -1 for other traffic."""
    ends = world.plan.rows["ends"]
    known = {}
    for lane in world.lanes:
        for connection in range(lane.first_connection, lane.first_connection + lane.connections):
            source, target, qpn, *_ = ends[2 * connection]
            known[source, target, qpn] = lane.number
    numbers = [nic_number(e, world) for e in traffic.endpoints]
    found = [known.get((numbers[x.src], numbers[x.dst], x.dest_qpn), -1) for x in traffic.links]
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Gauge:
    """Maps the common time of one component to true time since the simulation began.

    A common clock has no zero of its own: what all of its NICs are off by together is no error. What one is
    off by beyond that stays one.
    """

    base_ns: int
    common_ns: NDArray[np.float64]
    true_ns: NDArray[np.float64]

    def to_true(self, common_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """True time (ns) of common times."""
        since = (common_ns - self.base_ns).astype(np.float64)
        return np.rint(np.interp(since, self.common_ns, self.true_ns)).astype(np.int64)


def gauges(analysis: Analysis, setting: Setting, end_ns: int) -> dict[int, Gauge]:
    """The gauge of every component of the alignment."""
    points = np.linspace(0, end_ns, _POINTS).astype(np.int64)
    shown: dict[int, list[NDArray[np.int64]]] = {}
    for endpoint in analysis.traffic.endpoints:
        number = nic_number(endpoint, setting.world)
        if number is None or endpoint.series is None:
            continue
        clock = analysis.traffic.clocks[endpoint.series]
        of_nic = np.array([setting.clocks[number].show(int(t)) for t in points], dtype=np.int64)
        shown.setdefault(clock.component, []).append(clock.to_common(of_nic))
    found = {}
    for component, times in shown.items():
        base = int(times[0][0])
        middle = np.mean([(t - base).astype(np.float64) for t in times], axis=0)
        found[component] = Gauge(base, middle, points.astype(np.float64))
    return found


def analysed_stretches(analysis: Analysis, program: Program) -> tuple[Table, ...]:
    """The wait states that the analysis found, lane by lane over time, instead of their sums."""
    traffic, repairs = mend(analysis.traffic)
    actions = send_actions(traffic, program)
    own = learn_needs(actions, program.arrivals, traffic)
    sharing = find_sharing(program, own.needs)
    needs = share_needs(own, actions, program.arrivals, sharing)
    return state_stretches(traffic, program, find_gates(traffic, program, needs, sharing), sharing, repairs)
