# SPDX-License-Identifier: Apache-2.0
"""What really happened: fault, step tables in true time, connections, clock errors, costs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.allowed import ALLOWED
from sim.output.rank_truth import dotted, rank_truth, trigger_ns
from sim.output.records import Records, iteration_times_ms
from sim.output.requests import work_requests
from sim.output.wait_states import STATES, wait_states
from sim.planning.faults import Armed
from sim.planning.traffic import trains
from sim.planning.world import NicInfo, World
from sim.simulate import Outcome
from sim.spec import CONTROLS, FaultKind, FaultSpec

# Controls whose only allowed answers are a notice or nothing carry no kind, as a healthy run does.
_QUIET = frozenset(
    {FaultKind.IMBALANCE, FaultKind.STAGE_IMBALANCE, FaultKind.PERIODIC_PAUSE, FaultKind.CLOCK_ERROR}
)


@dataclass(frozen=True, slots=True)
class Truth:
    """The labels of one run; ``data`` is the content of ``truth.json``."""

    data: dict[str, Any]

    @property
    def iteration_ms(self) -> list[float]:
        """Iteration times of the first job."""
        times: list[float] = self.data["jobs"][0]["iteration_ms"] if self.data["jobs"] else []
        return times

    def write(self, path: Path) -> None:
        """Write ``truth.json``."""
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_text(json.dumps(self.data, indent=1) + "\n")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def collect(outcome: Outcome, records: Records, captures: dict[int, str]) -> Truth:
    """The truth of a finished run; times become epoch nanoseconds of the true clock."""
    world, scenario, epoch_ns = outcome.world, outcome.world.scenario, outcome.setting.epoch_ns
    training = trains(world)
    states = wait_states(world, records)
    requests = work_requests(world, records)
    faults = [_fault(outcome, fault, armed) for fault, armed in outcome.setting.armed]
    data: dict[str, Any] = {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "workload": scenario.jobs[0].workload.value if training else None,
        "training": training,
        "jobs": [_job(world, records, n) for n in range(len(scenario.jobs))] if training else [],
        "nodes": _nodes(world, captures),
        "nics": [_nic(outcome, nic, captures) for nic in world.nics],
        "fault": faults[0] if faults else _no_fault(),
        "second_fault": faults[1] if len(faults) > 1 else None,
        "capture": {
            "start_ns": epoch_ns,
            "end_ns": epoch_ns + outcome.end_ns,
            "until_ns": outcome.setting.clocks[0].show(outcome.end_ns),
            "point": "tap of each NIC, both directions",
            "clock": "each NIC's own, see clock_error; all other times here are true time",
            "tx_stamp": scenario.clock.tx_stamp.value,
            "snaplen": scenario.capture.snap_bytes,
            "kind": scenario.capture.kind.value,
            "lost": sum(outcome.lost),
        },
        "note": "Simulated. Packets before the first step are a warm-up.",
        "clock_error": _clock_error(outcome),
        "network": dict(outcome.simulation.counters),
        "wait_states": "per operation and outgoing lane: ms in " + ", ".join(STATES),
        "ranks": [rank_truth(outcome, records, rank, states, requests) for rank in world.training_ranks],
    }
    return Truth(data)


def _clock_error(outcome: Outcome) -> dict[str, Any]:
    return {
        "formula": "shown = straight lines between points (true ns since t_start_ns, shown ns)",
        "t_start_ns": outcome.setting.epoch_ns,
        "jitter_ns": outcome.world.scenario.clock.jitter_ns,
        "per_nic": {
            nic.name: {"offset_ns": clock.offset_ns, "drift_ppm": clock.drift_ppm, "points": clock.points}
            for nic, clock in zip(outcome.world.nics, outcome.setting.clocks, strict=True)
            if not nic.external
        },
    }


def _nic(outcome: Outcome, nic: NicInfo, captures: dict[int, str]) -> dict[str, Any]:
    clock = outcome.setting.clocks[nic.number]
    return {
        "node": nic.machine,
        "rail": nic.rail,
        "device": f"mlx5_{nic.rail}",
        "ip": dotted(nic.ipv4),
        "mac": nic.mac.hex(":"),
        "capture": captures.get(nic.number),
        "external": nic.external,
        "clock": {"offset_ns": clock.offset_ns, "drift_ppm": clock.drift_ppm},
    }


def _nodes(world: World, captures: dict[int, str]) -> dict[str, Any]:
    rails = world.scenario.nics_per_machine
    nodes: dict[str, Any] = {}
    for machine in range(world.scenario.machines):
        first = machine * rails
        nodes[str(machine)] = {
            "ip": dotted(world.nics[first].ipv4),
            "mac": world.nics[first].mac.hex(":"),
            "capture": captures.get(first),
            "ips": [dotted(world.nics[first + rail].ipv4) for rail in range(rails)],
            "captures": [captures.get(first + rail) for rail in range(rails)],
        }
    return nodes


def _job(world: World, records: Records, number: int) -> dict[str, Any]:
    job = world.scenario.jobs[number]
    ranks = [rank for rank in world.ranks if rank.job == number]
    params = {key: value for key, value in asdict(job).items() if key != "machines"}
    return {
        "id": number,
        "workload": job.workload.value,
        "nodes": list(job.machines),
        "ips": sorted({dotted(world.nics[rank.nic].ipv4) for rank in ranks}),
        "params": params,
        "iteration_ms": iteration_times_ms(records, [rank.number for rank in ranks]),
    }


def _no_fault() -> dict[str, Any]:
    return {
        "kind": None,
        "control": None,
        "culprit_node": None,
        "onset_step": None,
        "onset_ns": None,
        "recovery_ns": None,
        "params": {},
        "allowed": {
            "severities": ["none"],
            "causes": [],
            "scopes": [],
            "separable": False,
            "machine": None,
            "candidates": [],
        },
    }


def _fault(outcome: Outcome, fault: FaultSpec, armed: Armed) -> dict[str, Any]:
    world = outcome.world
    control = fault.kind in CONTROLS
    allowed = ALLOWED[fault.kind]
    culprit = None if control else fault.machine
    first = None if culprit is None else culprit * world.gpus + fault.nic * world.scenario.gpus_per_nic
    rank = None if first is None else world.ranks[first]
    return {
        "kind": None if fault.kind in _QUIET else fault.kind.value,
        "control": fault.kind.value if control else None,
        "culprit_node": culprit,
        "culprit_rail": None if culprit is None else fault.nic,
        "culprit_ip": None if rank is None else dotted(world.nics[rank.nic].ipv4),
        "culprit_job": None if rank is None else rank.job,
        "culprit_rank": None if rank is None else rank.job_rank,
        "onset_step": fault.onset_step,
        "onset_ns": trigger_ns(outcome, armed.onset_trigger),
        "recovery_ns": trigger_ns(outcome, armed.recovery_trigger),
        "params": asdict(fault),
        "witness_ns": outcome.setting.epoch_ns + outcome.end_ns,
        "allowed": {
            "severities": list(allowed.severities),
            "causes": list(allowed.causes),
            "scopes": list(allowed.scopes),
            "separable": allowed.separable,
            "machine": None if culprit is None else f"node{culprit}",
            "candidates": [f"node{machine}" for machine in armed.candidates],
        },
    }
