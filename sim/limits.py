# SPDX-License-Identifier: Apache-2.0
"""Which values a scenario may hold: the range of every number, and what must fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.spec import JobSpec, Scenario

MAX_NICS = 4096
_MAX_RAILS = 16
_CAPABLE_OF_MARKS = (1, 2)  # the ECN bits of a packet that a switch may mark
_TIME = 10**15  # ns; the engine's picoseconds hold 106 days
_SIZE = 1 << 31
_COUNT = 1 << 20


class SimulationError(ValueError):
    """A scenario that cannot be simulated; the message says which field and what is allowed."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``least`` to ``most``; ``open`` leaves ``least`` itself out."""

    least: float
    most: float
    open: bool = False

    def __contains__(self, value: float) -> bool:
        return (value > self.least if self.open else value >= self.least) and value <= self.most

    def __str__(self) -> str:
        least = f"more than {self.least:g}" if self.open else f"at least {self.least:g}"
        return least if math.isinf(self.most) else f"{least} and at most {self.most:.12g}"


_TIMES = Range(0, _TIME)
_SOME_TIME = Range(1, _TIME)
_SIZES = Range(0, _SIZE)
_SOME_BYTES = Range(1, _SIZE)
_COUNTS = Range(0, _COUNT)
_SOME = Range(1, _COUNT)
_SHARES = Range(0, 1)
_SPREADS = Range(0, 10)
_RATES = Range(0, 1e5, open=True)
_FACTORS = Range(0, 1e6, open=True)

# By description and field; None passes where a field may be absent.
RANGES: dict[str, dict[str, Range]] = {
    "network": {
        "rate_gbps": _RATES,
        "propagation_ns": _TIMES,
        "switch_ns": _TIMES,
        "switch_jitter_ns": _TIMES,
        "leaves": Range(1, MAX_NICS),
        "uplinks": _SOME,
        "uplink_rate_gbps": _RATES,
        "mark_from_bytes": _SIZES,
        "mark_all_bytes": _SIZES,
        "mark_probability": _SHARES,
        "pause_bytes": _SIZES,
        "queue_bytes": _SIZES,
        "vlan": Range(0, 4095),
        "tos": Range(0, 255),
    },
    "transport": {
        "mtu": Range(256, 16_384),
        "ack_every": _COUNTS,
        "ack_latency_ns": _TIMES,
        "ack_jitter_ns": _TIMES,
        "timeout_ns": _SOME_TIME,
        "retry_limit": Range(0, _SIZE),
        "quantum_packets": _SOME,
        "fetch_jitter_ns": _TIMES,
        "cnp_interval_ns": _TIMES,
        "alpha_timer_ns": _SOME_TIME,
        "increase_timer_ns": _SOME_TIME,
        "increase_bytes": _SIZES,
        "additive_share": _SHARES,
    },
    "stack": {
        "slot_bytes": _SOME_BYTES,
        "p2p_slot_bytes": _SIZES,
        "ll_bytes": _SIZES,
        "ll128_bytes": _SIZES,
        "ll_slot_bytes": _SOME_BYTES,
        "depth": _SOME,
        "channels": Range(1, 256),
        "qps_per_lane": Range(1, 256),
        "credit_bytes": _SIZES,
        "proxy_ns": _TIMES,
        "proxy_jitter_ns": _TIMES,
        "reduce_bytes_per_ns": _FACTORS,
        "step_ns": _TIMES,
        "couple_ns": _TIMES,
    },
    "noise": {
        "jitter": _SPREADS,
        "static_spread": _SPREADS,
        "imbalance": _SPREADS,
        "pause_probability": _SHARES,
        "pause_ns": _TIMES,
        "launch_ns": _TIMES,
    },
    "clock": {
        "offset_ns": _TIMES,
        "drift_ppm": Range(0, 1e5),
        "wander_ppm": Range(0, 1e5),
        "step_ns": Range(-_TIME, _TIME),
        "tai_share": _SHARES,
        "jitter_ns": _TIMES,
        "poll_ns": _TIMES,
        "copy_delay_ns": _TIMES,
        "copy_jitter_ns": _TIMES,
    },
    "capture": {
        "sample_shift": Range(0, 24),
        "snap_bytes": _SIZES,
        "loss_probability": _SHARES,
        "mean_loss_packets": Range(1, 1e9),
    },
    "job": {
        "steps": _SOME,
        "collective_bytes": Range(1, 1 << 40),
        "dense_bytes": Range(0, 1 << 40),
        "compute_ns": _TIMES,
        "buckets": _SOME,
        "layers": _SOME,
        "stages": Range(1, MAX_NICS),
        "micro_batches": _SOME,
        "activation_bytes": _SOME_BYTES,
        "long_first_steps": _COUNTS,
        "pause_every": _COUNTS,
        "pause_ns": _TIMES,
    },
    "fault": {
        "nic": Range(0, _MAX_RAILS - 1),
        "onset_step": _COUNTS,
        "factor": _FACTORS,
        "probability": _SHARES,
        "duration_ns": _TIMES,
        "period_steps": _COUNTS,
        "until_step": _COUNTS,
    },
    "scenario": {
        "seed": Range(0, math.inf),
        "machines": Range(2, MAX_NICS),
        "nics_per_machine": Range(1, _MAX_RAILS),
        "watch_ns": _TIMES,
        "gpus_per_nic": Range(1, 64),
        "train_packets": Range(1, 4096),
    },
}


def check_scenario(scenario: Scenario) -> None:
    """Raise SimulationError, naming the field, when ``scenario`` cannot be simulated."""
    for problem in _problems(scenario):
        raise SimulationError(f"scenario {scenario.name}: {problem}")


def _problems(scenario: Scenario) -> Iterator[str]:
    yield from _out_of_range("scenario", scenario)
    for part in ("network", "transport", "stack", "noise", "clock", "capture"):
        yield from _out_of_range(part, getattr(scenario, part))
    for job in scenario.jobs:
        yield from _out_of_range("job", job)
    for fault in scenario.faults:
        yield from _out_of_range("fault", fault)
    yield from _placement(scenario)
    for job in scenario.jobs:
        yield from _job(job)
    yield from _leaves(scenario)
    yield from _switches(scenario)
    yield from _faults(scenario)


def _out_of_range(kind: str, part: object) -> Iterator[str]:
    for name, allowed in RANGES[kind].items():
        value = getattr(part, name)
        if value is not None and value not in allowed:
            yield f"{kind} {name} is {value}; give {allowed}"


def _placement(scenario: Scenario) -> Iterator[str]:
    nics = scenario.machines * scenario.nics_per_machine
    if nics > MAX_NICS:
        yield f"{nics} NICs; give at most {MAX_NICS}"
    placed = [machine for job in scenario.jobs for machine in job.machines]
    if not scenario.jobs:
        yield "no job; give at least one"
    if len(placed) != len(set(placed)) or any(not 0 <= m < scenario.machines for m in placed):
        yield f"jobs overlap or name machines beyond {scenario.machines - 1}"


def _job(job: JobSpec) -> Iterator[str]:
    if len(job.machines) < 2:
        yield f"a job on {len(job.machines)} machines; give at least 2"
    if len(job.machines) % job.stages:
        yield f"{len(job.machines)} machines are not {job.stages} equal stages"
    if job.stage_factors and len(job.stage_factors) != job.stages:
        yield f"{len(job.stage_factors)} stage factors for {job.stages} stages; give one for each"
    if any(factor not in _FACTORS for factor in job.stage_factors):
        yield f"job stage_factors are {job.stage_factors}; give numbers of {_FACTORS}"


def _leaves(scenario: Scenario) -> Iterator[str]:
    leaves, machines = scenario.network.leaves, scenario.machines
    if leaves > machines:
        yield f"network leaves is {leaves}; give at most {machines}, one for each machine"


def _switches(scenario: Scenario) -> Iterator[str]:
    """A buffer must hold what travels as one, or nothing ever passes."""
    network, mtu = scenario.network, scenario.transport.mtu
    if 0 < network.pause_bytes < mtu:
        yield f"network pause_bytes is {network.pause_bytes}; give 0 or at least the MTU of {mtu}"
    together = (mtu + 256) * scenario.train_packets
    if 0 < network.queue_bytes < together:
        yield f"network queue_bytes is {network.queue_bytes}; give 0 or at least {together}"
    if network.mark_from_bytes and network.tos & 3 not in _CAPABLE_OF_MARKS:
        yield f"network tos is {network.tos:#x}, which no switch may mark; end it in 1 or 2, or mark nothing"


def _faults(scenario: Scenario) -> Iterator[str]:
    for fault in scenario.faults:
        if 0 < fault.until_step <= fault.onset_step:
            yield f"fault until_step is {fault.until_step}; give a step after its onset in {fault.onset_step}"
        if fault.kind == "periodic_pause" and fault.period_steps < 1:
            yield "fault period_steps is 0; a periodic pause needs at least 1"
        if all(job.workload == "none" for job in scenario.jobs):
            yield f"fault {fault.kind} needs a job that trains"
