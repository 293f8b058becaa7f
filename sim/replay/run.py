# SPDX-License-Identifier: Apache-2.0
"""From a recorded trace to a planned simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sim.planning.commands import Program
from sim.planning.world import World
from sim.replay.model import Layout, ModelSpec, Scaling
from sim.replay.programs import programs
from sim.replay.schedule import slowed_workers
from sim.replay.trace_file import Trace
from sim.simulate import Setting, prepare
from sim.spec import (
    ClockSpec,
    CreditPolicy,
    JobSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    StackSpec,
    TransportSpec,
    Workload,
)

_STACK = StackSpec(credit_policy=CreditPolicy.EARLY)
_CLOCKS = ClockSpec(offset_ns=50_000_000, drift_ppm=20.0, jitter_ns=20)
_NO_NOISE = NoiseSpec(jitter=0.0, static_spread=0.0, launch_ns=0)  # the noise is in the recorded times


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed: a trace, the model that its bytes come from, where workers sit, and the scales."""

    trace: Trace
    model: ModelSpec
    layout: Layout
    scaling: Scaling
    steps: int | None = None

    @property
    def slowed_machines(self) -> list[int]:
        """Machines of workers that computed lastingly slower than their stage: the recorded truth."""
        workers = slowed_workers(self.trace, self.trace.first_steps(self.steps))
        return sorted({self.layout.machine(worker) for worker in workers})


def scenario_of(replay: Replay, seed: int) -> Scenario:
    """The scenario in which the recorded programs run."""
    layout, trace = replay.layout, replay.trace
    steps = trace.first_steps(replay.steps)
    longest_s = max(trace.step_length_s(step) for step in steps)
    job = JobSpec(
        machines=tuple(range(layout.machines)),
        workload=Workload.REPLAY,
        steps=len(steps),
        compute_ns=replay.scaling.duration_ns(longest_s),
    )
    return Scenario(
        name="replay",
        seed=seed,
        machines=layout.machines,
        jobs=(job,),
        nics_per_machine=layout.rails,
        network=NetworkSpec(rate_gbps=replay.scaling.link_gbps()),
        transport=TransportSpec(timeout_ns=67_108_864),
        stack=_STACK,
        noise=_NO_NOISE,
        clock=_CLOCKS,
    )


def prepare_replay(replay: Replay, seed: int) -> Setting:
    """Plan the replay. Raises SimulationError when trace, model and layout do not fit."""
    scenario = scenario_of(replay, seed)
    return prepare(scenario, partial(_programs, replay, scenario.stack))


def _programs(replay: Replay, stack: StackSpec, world: World) -> Mapping[int, Program]:
    return programs(
        replay.trace, replay.model, stack, world.make_lane, replay.layout, replay.scaling, replay.steps
    )
