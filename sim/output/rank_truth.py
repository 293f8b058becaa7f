# SPDX-License-Identifier: Apache-2.0
"""What really happened to one rank: its connections, steps and operations."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import Any

from sim.output.records import Records, StepTimes
from sim.output.requests import Sent
from sim.output.wait_states import LaneStates
from sim.planning.compute_faults import culprit_of
from sim.planning.plan import PS_PER_NS
from sim.planning.world import RankInfo, World
from sim.simulate import Outcome
from sim.spec import FaultKind


def dotted(address: int) -> str:
    """An IPv4 address as text."""
    return ".".join(str(address >> shift & 0xFF) for shift in (24, 16, 8, 0))


def trigger_ns(outcome: Outcome, trigger: int | None) -> int | None:
    """When a trigger of the plan fired, in epoch ns; None = never."""
    if trigger is None:
        return None
    time_ps = int(outcome.simulation.trigger_times_ps[trigger])
    return None if time_ps < 0 else outcome.setting.epoch_ns + time_ps // PS_PER_NS


def rank_truth(
    outcome: Outcome,
    records: Records,
    rank: RankInfo,
    states: dict[int, list[LaneStates]],
    requests: dict[int, dict[int, list[Sent]]],
) -> dict[str, Any]:
    """Everything about one rank; times in epoch ns of the true clock."""
    world, epoch_ns = outcome.world, outcome.setting.epoch_ns
    fault = world.scenario.fault
    onset = fault.onset_step if fault is not None else None
    steps = records.steps[rank.number]
    before = [r for r in steps if onset is None or r.step < onset]
    after = [r for r in steps if onset is not None and r.step >= onset]
    nic = world.nics[rank.nic]
    by_tag = _by_tag(states.get(rank.number, []))
    sent = requests.get(rank.number, {})
    return {
        "number": rank.number,
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
        "process_end_ns": _process_end_ns(outcome, rank),
        "steps": [_step(step, epoch_ns, by_tag, sent) for step in steps],
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


def _process_end_ns(outcome: Outcome, rank: RankInfo) -> int | None:
    """When the process was seen to be gone, as a keep-alive beside the network would notice."""
    for fault, armed in outcome.setting.armed:
        if fault.kind is FaultKind.CRASH and culprit_of(outcome.world, fault).number == rank.number:
            return trigger_ns(outcome, armed.onset_trigger)
    return None


def _step(
    step: StepTimes, epoch_ns: int, states: dict[int, dict[str, list[float]]], sent: dict[int, list[Sent]]
) -> dict[str, Any]:
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
                "group": o.group,
                "number": None if o.number < 0 else o.number,
                "sends": [asdict(one) for one in sent.get(o.enter_ns, [])],
                "wait_states_ms": states.get(o.tag, {}),
            }
            for o in step.operations
        ],
    }
