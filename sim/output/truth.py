# SPDX-License-Identifier: Apache-2.0
"""What really happened: fault, step tables in true time, connections, clock errors, costs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sim.allowed import ALLOWED
from sim.output.records import Records, StepTimes, iteration_times_ms
from sim.output.wait_states import STATES, LaneStates, wait_states
from sim.planning.faults import Armed
from sim.planning.plan import PS_PER_NS
from sim.planning.traffic import trains
from sim.planning.world import NicInfo, RankInfo, World
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
        "ranks": [_rank(outcome, records, rank, states) for rank in world.training_ranks],
    }
    return Truth(data)


def dotted(address: int) -> str:
    """An IPv4 address as text."""
    return ".".join(str(address >> shift & 0xFF) for shift in (24, 16, 8, 0))


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
        "onset_ns": _trigger_ns(outcome, armed.onset_trigger),
        "recovery_ns": _trigger_ns(outcome, armed.recovery_trigger),
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


def _trigger_ns(outcome: Outcome, trigger: int | None) -> int | None:
    if trigger is None:
        return None
    time_ps = int(outcome.simulation.trigger_times_ps[trigger])
    return None if time_ps < 0 else outcome.setting.epoch_ns + time_ps // PS_PER_NS


def _rank(
    outcome: Outcome, records: Records, rank: RankInfo, states: dict[int, list[LaneStates]]
) -> dict[str, Any]:
    world, epoch_ns = outcome.world, outcome.setting.epoch_ns
    fault = world.scenario.fault
    onset = fault.onset_step if fault is not None else None
    steps = records.steps[rank.number]
    before = [r for r in steps if onset is None or r.step < onset]
    after = [r for r in steps if onset is not None and r.step >= onset]
    nic = world.nics[rank.nic]
    by_tag = _by_tag(states.get(rank.number, []))
    return {
        "node": rank.machine,
        "rail": nic.rail,
        "gpu": rank.gpu,
        "ip": dotted(nic.ipv4),
        "job": rank.job,
        "rank": rank.job_rank,
        "qps": _queue_pairs(world, rank),
        "before_onset": _summary(before),
        "after_onset": _summary(after) if after else None,
        "verbs_errors": _errors(outcome, rank),
        "last_step_logged": steps[-1].step if steps else -1,
        "steps": [_step(step, epoch_ns, by_tag) for step in steps],
    }


def _errors(outcome: Outcome, rank: RankInfo) -> list[str]:
    ends = outcome.world.plan.rows["ends"]
    failed = [end for end in outcome.simulation.failed_ends.tolist() if ends[end][0] == rank.nic]
    return [f"qp {ends[end ^ 1][2]}: retry limit reached" for end in failed]


def _queue_pairs(world: World, rank: RankInfo) -> list[dict[str, Any]]:
    ends = world.plan.rows["ends"]
    found = []
    for lane in world.lanes:
        if rank.number not in (lane.sender, lane.receiver):
            continue
        sends = rank.number == lane.sender
        for connection in range(lane.first_connection, lane.first_connection + lane.connections):
            near, far = 2 * connection + (not sends), 2 * connection + sends
            _, peer_nic, peer_qpn, start_psn, _, _ = ends[near]
            peer = world.nics[peer_nic]
            found.append(
                {
                    "qpn": ends[far][2],
                    "peer_qpn": peer_qpn,
                    "role": "data_sender" if sends else "data_receiver",
                    "kind": lane.kind,
                    "channel": lane.channel,
                    "peer_node": peer.machine,
                    "peer_ip": dotted(peer.ipv4),
                    "start_psn": start_psn,
                }
            )
    return found


def _communication_ns(step: StepTimes) -> int:
    """Time of the step that was neither compute nor pause."""
    return step.end_ns - step.begin_ns - step.compute_ns - step.pause_ns


def _summary(steps: list[StepTimes]) -> dict[str, Any]:
    done = [step for step in steps if step.end_ns >= 0]
    return {
        "steps": len(steps),
        "median_compute_ms": _median_ms([step.compute_ns for step in steps]),
        "median_comm_ms": _median_ms([_communication_ns(step) for step in done]),
        "median_step_ms": _median_ms([step.end_ns - step.begin_ns for step in done]),
        "total_pause_ms": sum(step.pause_ns for step in steps) / 1e6,
    }


def _median_ms(values: list[int]) -> float | None:
    return round(median(values) / 1e6, 4) if values else None


def _by_tag(states: list[LaneStates]) -> dict[int, dict[str, list[float]]]:
    """Milliseconds per state by operation (tag) and lane."""
    found: dict[int, dict[str, list[float]]] = {}
    for one in states:
        found.setdefault(one.tag, {})[str(one.lane)] = [round(ns / 1e6, 4) for ns in one.state_ns]
    return found


def _step(step: StepTimes, epoch_ns: int, states: dict[int, dict[str, list[float]]]) -> dict[str, Any]:
    def shown(time_ns: int) -> int | None:
        return None if time_ns < 0 else epoch_ns + time_ns

    ended = step.end_ns >= 0
    return {
        "step": step.step,
        "compute_start_ns": shown(step.begin_ns),
        "collective_start_ns": shown(step.first_operation_ns),
        "collective_end_ns": shown(step.last_operation_ns) if ended else None,
        "compute_ms": round(step.compute_ns / 1e6, 4),
        "comm_ms": round(_communication_ns(step) / 1e6, 4) if ended else None,
        "pause_ms": step.pause_ns / 1e6,
        "operations": [
            {
                "kind": o.kind,
                "bytes": o.size,
                "tag": o.tag,
                "enter_ns": shown(o.enter_ns),
                "end_ns": shown(o.end_ns),
                "wait_states_ms": states.get(o.tag, {}),
            }
            for o in step.operations
        ],
    }
