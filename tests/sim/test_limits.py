# SPDX-License-Identifier: Apache-2.0
"""Scenarios that cannot be simulated are refused with the field and what is allowed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from sim import limits
from sim.simulate import prepare
from sim.spec import (
    CaptureSpec,
    ClockSpec,
    FaultKind,
    FaultSpec,
    JobSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    SimulationError,
    StackSpec,
    TransportSpec,
    Workload,
)

_JOB = JobSpec((0, 1), steps=2)
_PARTS = {
    "network": NetworkSpec(),
    "transport": TransportSpec(),
    "stack": StackSpec(),
    "noise": NoiseSpec(),
    "clock": ClockSpec(),
    "capture": CaptureSpec(),
}
_BELOW_ZERO = [
    (part, field.name)
    for part, spec in _PARTS.items()
    for field in fields(spec)
    if type(getattr(spec, field.name)) in (int, float) and (part, field.name) != ("clock", "step_ns")
]


def _scenario(**values: object) -> Scenario:
    return Scenario("bad", 1, **{"machines": 4, "jobs": (_JOB,), **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"machines": 1}, "machines is 1; give at least 2 and at most 4096"),
        ({"machines": 5000}, "machines is 5000"),
        ({"nics_per_machine": 17}, "at least 1 and at most 16"),
        ({"machines": 4096, "nics_per_machine": 2}, "8192 NICs"),
        ({"gpus_per_nic": 0}, "gpus_per_nic is 0"),
        ({"train_packets": 0}, "train_packets is 0"),
        ({"watch_ns": -1}, "watch_ns is -1"),
        ({"jobs": ()}, "no job"),
        ({"jobs": (JobSpec((0, 9)),)}, "beyond 3"),
        ({"jobs": (JobSpec((0, -1)),)}, "beyond 3"),
        ({"jobs": (JobSpec((0, 1)), JobSpec((1, 2)))}, "overlap"),
        ({"jobs": (JobSpec((0, 1, 2), stages=2),)}, "equal stages"),
        ({"jobs": (JobSpec((0,)),)}, "1 machines; give at least 2"),
    ],
)
def test_impossible_scenarios_are_refused_with_a_reason(values: dict[str, object], word: str) -> None:
    with pytest.raises(SimulationError, match=word):
        _scenario(**values)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(SimulationError, match="seed is -1"):
        replace(_scenario(), seed=-1)


@pytest.mark.parametrize(("part", "name"), _BELOW_ZERO)
def test_no_number_may_be_below_zero(part: str, name: str) -> None:
    with pytest.raises(SimulationError, match=f"{part} {name} is -1"):
        _scenario(**{part: replace(_PARTS[part], **{name: -1})})


@pytest.mark.parametrize(("part", "name"), _BELOW_ZERO)
def test_no_number_may_be_none_at_all(part: str, name: str) -> None:
    with pytest.raises(SimulationError, match=f"{part} {name} is nan"):
        _scenario(**{part: replace(_PARTS[part], **{name: float("nan")})})


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("network", {"rate_gbps": 0.0}),
        ("network", {"rate_gbps": float("inf")}),
        ("network", {"uplink_rate_gbps": 0.0}),
        ("network", {"leaves": 0}),
        ("network", {"uplinks": 0}),
        ("network", {"leaves": 5}),
        ("network", {"mark_probability": 1.1}),
        ("network", {"vlan": 4096}),
        ("network", {"vlan": -1}),
        ("network", {"tos": 256}),
        ("network", {"pause_bytes": 1}),
        ("network", {"queue_bytes": 1_000}),
        ("network", {"tos": 0, "mark_from_bytes": 1_000}),
        ("transport", {"mtu": 0}),
        ("transport", {"mtu": 255}),
        ("transport", {"timeout_ns": 0}),
        ("transport", {"quantum_packets": 0}),
        ("transport", {"alpha_timer_ns": 0}),
        ("transport", {"increase_timer_ns": 0}),
        ("transport", {"additive_share": 1.5}),
        ("stack", {"slot_bytes": 0}),
        ("stack", {"ll_slot_bytes": 0}),
        ("stack", {"depth": 0}),
        ("stack", {"channels": 0}),
        ("stack", {"qps_per_lane": 0}),
        ("stack", {"reduce_bytes_per_ns": 0.0}),
        ("noise", {"pause_probability": 1.01}),
        ("clock", {"tai_share": 2.0}),
        ("capture", {"loss_probability": 1.01}),
        ("capture", {"mean_loss_packets": 0.5}),
        ("capture", {"sample_shift": 32}),
    ],
)
def test_what_could_never_pass_a_packet_is_refused(part: str, values: dict[str, object]) -> None:
    with pytest.raises(SimulationError, match=f"{part} {next(iter(values))} is"):
        _scenario(**{part: replace(_PARTS[part], **values)})


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"steps": 0}, "job steps is 0"),
        ({"collective_bytes": 0}, "job collective_bytes is 0"),
        ({"collective_bytes": -5}, "job collective_bytes is -5"),
        ({"compute_ns": -1}, "job compute_ns is -1"),
        ({"buckets": 0}, "job buckets is 0"),
        ({"layers": 0}, "job layers is 0"),
        ({"stages": 0}, "job stages is 0"),
        ({"micro_batches": 0}, "job micro_batches is 0"),
        ({"activation_bytes": 0}, "job activation_bytes is 0"),
        ({"pause_every": -1}, "job pause_every is -1"),
        ({"stages": 2, "stage_factors": (1.0,)}, "1 stage factors for 2 stages"),
        ({"stages": 2, "stage_factors": (1.0, 0.0)}, "more than 0"),
    ],
)
def test_a_job_that_nobody_can_run_is_refused(values: dict[str, object], word: str) -> None:
    with pytest.raises(SimulationError, match=word):
        _scenario(jobs=(replace(_JOB, **values),))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"factor": 0.0}, "fault factor is 0.0; give more than 0"),
        ({"factor": -2.0}, "fault factor is -2.0"),
        ({"probability": 1.5}, "fault probability is 1.5; give at least 0 and at most 1"),
        ({"duration_ns": -1}, "fault duration_ns is -1"),
        ({"onset_step": -1}, "fault onset_step is -1"),
        ({"onset_step": 5, "until_step": 5}, "until_step is 5; give a step after its onset in 5"),
        ({"kind": FaultKind.PERIODIC_PAUSE}, "period_steps is 0"),
    ],
)
def test_a_fault_that_means_nothing_is_refused(values: dict[str, object], word: str) -> None:
    fault = replace(FaultSpec(FaultKind.SLOW_NIC, 1, onset_step=1), **values)
    with pytest.raises(SimulationError, match=word):
        _scenario(fault=fault)
    with pytest.raises(SimulationError, match=word):
        _scenario(second_fault=fault)


@pytest.mark.parametrize("kind", list(FaultKind))
def test_no_fault_can_hit_a_scenario_without_training(kind: FaultKind) -> None:
    with pytest.raises(SimulationError, match=f"fault {kind} needs a job that trains"):
        _scenario(
            jobs=(JobSpec((0, 1), Workload.NONE),), fault=FaultSpec(kind, 1, onset_step=1, period_steps=1)
        )


@pytest.mark.parametrize(("machine", "nic"), [(4, 0), (-1, 0), (1, 1)])
def test_a_fault_on_a_machine_that_is_not_there_names_it(machine: int, nic: int) -> None:
    with pytest.raises(SimulationError, match=f"no machine {machine} with NIC {nic}; there are 4 machines"):
        prepare(_scenario(fault=FaultSpec(FaultKind.SLOW_NIC, machine, nic, onset_step=1)))


def test_a_fault_on_a_machine_without_a_job_names_it() -> None:
    with pytest.raises(SimulationError, match="machine 3 runs no job"):
        prepare(_scenario(fault=FaultSpec(FaultKind.SLOW_NIC, 3, onset_step=1)))


def test_a_fault_inside_an_operation_of_a_step_that_never_comes_is_refused() -> None:
    with pytest.raises(SimulationError, match="step 7 has no operation"):
        prepare(_scenario(fault=FaultSpec(FaultKind.HANG, 1, onset_step=7)))


def test_storage_on_another_rail_needs_a_spine() -> None:
    spread = {"machines": 4, "nics_per_machine": 2}
    world = prepare(_scenario(**spread)).world
    with pytest.raises(SimulationError, match="no path from rail 0 to rail 1; give the network a spine"):
        world.connect(0, 1, "across")
    joined = prepare(_scenario(**spread, network=NetworkSpec(spine=True))).world
    assert joined.connect(0, 1, "across") >= 0


def test_every_number_of_a_description_has_its_range() -> None:
    for part, spec in {
        **_PARTS, "job": _JOB, "fault": FaultSpec(FaultKind.HANG), "scenario": _scenario()
    }.items():  # fmt: skip
        numbers = {f.name for f in fields(spec) if type(getattr(spec, f.name)) in (int, float)}
        assert numbers <= limits.RANGES[part].keys()
