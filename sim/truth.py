# SPDX-License-Identifier: Apache-2.0
"""What really happened: fault, step tables in true time, connections, clock errors, costs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sim.clocks import NicClock
from sim.headers import SNAP_BYTES
from sim.network import Nic
from sim.ranks import Rank, StepRecord
from sim.spec import CONTROLS, FaultKind, FaultSpec, Workload
from sim.world import World

# kind -> (severities, causes); which machine may be named follows from the culprit
ALLOWED: dict[FaultKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    FaultKind.SLOW_COMPUTE: (("fail_slow",), ("compute_slow",)),
    FaultKind.SLOW_NIC: (("fail_slow",), ("nic_slow", "link_slow")),
    FaultKind.SLOW_RECEIVER: (("fail_slow",), ("receiver_slow", "nic_slow")),
    FaultKind.PACKET_LOSS: (("fail_slow",), ("link_loss",)),
    FaultKind.LINK_DOWN: (("fail_stop",), ("link_down", "nic_dead")),
    FaultKind.LINK_FLAP: (("fail_slow", "notice"), ("link_down", "nic_dead")),
    FaultKind.NIC_DEAD: (("fail_stop",), ("nic_dead", "link_down")),
    FaultKind.HANG: (("fail_stop",), ("hang", "crash")),
    FaultKind.CRASH: (("fail_stop",), ("crash", "nic_dead")),
    FaultKind.CPU_CONTENTION: (("fail_slow",), ("cpu_contention", "compute_slow")),
    FaultKind.INPUT_STALL: (("fail_slow",), ("input_stall", "compute_slow")),
    FaultKind.OP_MISMATCH: (("fail_stop",), ("op_mismatch", "hang")),
    FaultKind.RANDOM_PAUSES: (("notice", "none"), ("random_pauses",)),
    FaultKind.IMBALANCE: (("notice", "none"), ("data_imbalance",)),
    FaultKind.STAGE_IMBALANCE: (("notice", "none"), ("stage_imbalance",)),
    FaultKind.CONGESTION: (("fail_slow",), ("congestion",)),
    FaultKind.PERIODIC_PAUSE: (("notice", "none"), ("periodic_pause",)),
    FaultKind.PATH_COLLISION: (("fail_slow",), ("path_collision", "congestion")),
    FaultKind.SWITCH_PORT: (("fail_slow",), ("switch_port", "link_slow", "congestion")),
    FaultKind.FABRIC_LOSS: (("fail_slow",), ("link_loss",)),
}
# Controls whose only allowed answers are a notice or nothing carry no kind, as a healthy run does.
_QUIET = frozenset({FaultKind.IMBALANCE, FaultKind.STAGE_IMBALANCE, FaultKind.PERIODIC_PAUSE})


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
        path.write_text(json.dumps(self.data, indent=1) + "\n")


def collect(
    world: World, epoch_ns: int, end_ns: int, captures: dict[int, str], clocks: dict[int, NicClock]
) -> Truth:
    """The truth of a finished run; times become epoch nanoseconds of the true clock."""
    scenario = world.scenario
    training = [job for job in scenario.jobs if job.workload is not Workload.NONE]
    data: dict[str, Any] = {
        "scenario": scenario.name,
        "seed": scenario.seed,
        "workload": scenario.jobs[0].workload.value if training else None,
        "training": bool(training),
        "jobs": [_job(world, number, epoch_ns) for number in range(len(scenario.jobs))] if training else [],
        "nodes": _nodes(world, captures),
        "nics": [_nic(nic, number, captures, clocks) for number, nic in enumerate(world.nics)],
        "fault": _fault(world, scenario.fault, epoch_ns),
        "second_fault": _fault(world, scenario.second_fault, epoch_ns) if scenario.second_fault else None,
        "capture": {
            "start_ns": epoch_ns,
            "end_ns": epoch_ns + end_ns,
            "point": "tap of each NIC, both directions",
            "clock": "each NIC's own, see clock_error; all other times here are true time",
            "tx_stamp": scenario.clock.tx_stamp.value,
            "snaplen": SNAP_BYTES,
        },
        "note": "Simulated. Packets before the first step are a warm-up.",
        "clock_error": {
            "formula": "capture_time = true_time + offset_ns + drift_ppm*1e-6*(true_time - t_start_ns)",
            "t_start_ns": epoch_ns,
            "jitter_ns": scenario.clock.jitter_ns,
            "per_nic": {
                _nic_name(world.nics[number]): {"offset_ns": clock.offset_ns, "drift_ppm": clock.drift_ppm}
                for number, clock in clocks.items()
            },
        },
        "ranks": [_rank(world, rank, epoch_ns) for rank in world.training_ranks],
    }
    return Truth(data)


def _nic_name(nic: Nic) -> str:
    return f"node{nic.address.machine}/mlx5_{nic.address.rail}"


def dotted(address: int) -> str:
    """An IPv4 address as text."""
    return ".".join(str(address >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _nic(nic: Nic, number: int, captures: dict[int, str], clocks: dict[int, NicClock]) -> dict[str, Any]:
    return {
        "node": nic.address.machine,
        "rail": nic.address.rail,
        "device": f"mlx5_{nic.address.rail}",
        "ip": dotted(nic.address.ipv4),
        "mac": nic.address.mac.hex(":"),
        "capture": captures.get(number),
        "clock": {"offset_ns": clocks[number].offset_ns, "drift_ppm": clocks[number].drift_ppm},
    }


def _nodes(world: World, captures: dict[int, str]) -> dict[str, Any]:
    rails = world.scenario.nics_per_machine
    nodes: dict[str, Any] = {}
    for machine in range(world.scenario.machines):
        first = machine * rails
        nodes[str(machine)] = {
            "ip": dotted(world.nics[first].address.ipv4),
            "mac": world.nics[first].address.mac.hex(":"),
            "capture": captures.get(first),
            "ips": [dotted(world.nics[first + rail].address.ipv4) for rail in range(rails)],
            "captures": [captures.get(first + rail) for rail in range(rails)],
        }
    return nodes


def _job(world: World, number: int, epoch_ns: int) -> dict[str, Any]:
    job = world.scenario.jobs[number]
    rails = world.scenario.nics_per_machine
    ranks = [rank for rank in world.ranks if rank.job == number]
    params = {key: value for key, value in asdict(job).items() if key != "machines"}
    return {
        "id": number,
        "workload": job.workload.value,
        "nodes": list(job.machines),
        "ips": [dotted(world.nics[m * rails + r].address.ipv4) for m in job.machines for r in range(rails)],
        "params": params,
        "iteration_ms": iteration_times_ms(ranks),
    }


def iteration_times_ms(ranks: list[Rank]) -> list[float]:
    """Per completed step: from the last rank's start to the last rank's end, so that they add up."""
    times: list[float] = []
    for records in zip(*(rank.steps for rank in ranks), strict=False):
        if all(record.end_ns >= 0 for record in records):
            start = max(record.compute_start_ns for record in records)
            times.append(round((max(record.end_ns for record in records) - start) / 1e6, 4))
    return times


def _fault(world: World, fault: FaultSpec | None, epoch_ns: int) -> dict[str, Any]:
    if fault is None:
        return {
            "kind": None,
            "control": None,
            "culprit_node": None,
            "onset_step": None,
            "onset_ns": None,
            "recovery_ns": None,
            "params": {},
            "allowed": {"severities": ["none"], "causes": [], "machine": None, "candidates": []},
        }
    control = fault.kind in CONTROLS
    severities, causes = ALLOWED[fault.kind]
    culprit = None if control else fault.machine
    rails = world.scenario.nics_per_machine
    rank = None if culprit is None else world.ranks[culprit * rails + fault.nic]
    return {
        "kind": None if fault.kind in _QUIET else fault.kind.value,
        "control": fault.kind.value if control else None,
        "culprit_node": culprit,
        "culprit_rail": None if culprit is None else fault.nic,
        "culprit_ip": None if rank is None else dotted(rank.nic.address.ipv4),
        "culprit_job": None if rank is None else rank.job,
        "culprit_rank": None if rank is None else rank.job_rank,
        "onset_step": fault.onset_step,
        "onset_ns": epoch_ns + world.onsets_ns[fault.kind] if fault.kind in world.onsets_ns else None,
        "recovery_ns": None if world.recovery_ns is None else epoch_ns + world.recovery_ns,
        "params": asdict(fault),
        "allowed": {
            "severities": list(severities),
            "causes": list(causes),
            "machine": None if culprit is None else f"node{culprit}",
            "candidates": [f"node{machine}" for machine in world.candidates],
        },
    }


def _rank(world: World, rank: Rank, epoch_ns: int) -> dict[str, Any]:
    fault = world.scenario.fault
    onset = fault.onset_step if fault is not None else None
    before = [r for r in rank.steps if onset is None or r.step < onset]
    after = [r for r in rank.steps if onset is not None and r.step >= onset]
    return {
        "node": rank.nic.address.machine,
        "rail": rank.nic.address.rail,
        "ip": dotted(rank.nic.address.ipv4),
        "job": rank.job,
        "rank": rank.job_rank,
        "qps": _queue_pairs(world, rank),
        "before_onset": _summary(before),
        "after_onset": _summary(after) if after else None,
        "verbs_errors": rank.errors,
        "last_step_logged": rank.step,
        "steps": [_step(record, epoch_ns) for record in rank.steps],
    }


def _queue_pairs(world: World, rank: Rank) -> list[dict[str, Any]]:
    found = []
    for lane in world.lanes:
        if rank.number not in (lane.sender, lane.receiver):
            continue
        for pair in lane.pairs:
            near, far = pair if rank.number == lane.sender else pair[::-1]
            found.append(
                {
                    "qpn": near.qpn,
                    "peer_qpn": far.qpn,
                    "role": "data_sender" if rank.number == lane.sender else "data_receiver",
                    "kind": lane.kind,
                    "channel": lane.channel,
                    "peer_node": far.nic.address.machine,
                    "peer_ip": dotted(far.nic.address.ipv4),
                    "start_psn": near.start_psn,
                }
            )
    return found


def _communication_ns(record: StepRecord) -> int:
    """Time of the step that was neither compute nor pause."""
    return record.end_ns - record.compute_start_ns - record.compute_ns - record.pause_ns


def _summary(records: list[StepRecord]) -> dict[str, Any]:
    done = [r for r in records if r.end_ns >= 0]
    return {
        "steps": len(records),
        "median_compute_ms": _median_ms([r.compute_ns for r in records]),
        "median_comm_ms": _median_ms([_communication_ns(r) for r in done]),
        "median_step_ms": _median_ms([r.end_ns - r.compute_start_ns for r in done]),
        "total_pause_ms": sum(r.pause_ns for r in records) / 1e6,
    }


def _median_ms(values: list[int]) -> float | None:
    return round(median(values) / 1e6, 4) if values else None


def _step(record: StepRecord, epoch_ns: int) -> dict[str, Any]:
    def shown(time_ns: int) -> int | None:
        return None if time_ns < 0 else epoch_ns + time_ns

    ended = record.end_ns >= 0
    return {
        "step": record.step,
        "compute_start_ns": shown(record.compute_start_ns),
        "collective_start_ns": shown(record.collective_start_ns),
        "collective_end_ns": shown(record.collective_end_ns) if ended else None,
        "compute_ms": round(record.compute_ns / 1e6, 4),
        "comm_ms": round(_communication_ns(record) / 1e6, 4) if ended else None,
        "pause_ms": record.pause_ns / 1e6,
        "operations": [
            {"kind": o.kind, "bytes": o.size, "enter_ns": shown(o.enter_ns), "end_ns": shown(o.end_ns)}
            for o in record.operations
        ],
    }
