# SPDX-License-Identifier: Apache-2.0
"""What a replayed trace does not hold: the model that gives byte counts, and where workers sit."""

from __future__ import annotations

from dataclasses import dataclass

from sim.replay.trace_file import Trace, Worker
from sim.spec import SimulationError

_LEAST_SCALE = 1e-5  # below, fixed delays would be all that is left
_SMALLEST_BYTES = 64
_MACHINE_GPUS = 8


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A transformer, as stated by the user: traces hold no byte counts.

    ``tensor_split`` GPUs of a worker share one copy of the parameters; ``sequence_split`` GPUs share
    the activations of a micro-batch. ``stage_parameters`` overrides the computed number of parameters
    of each stage.
    """

    hidden: int
    layers: int
    vocabulary: int
    micro_batch_tokens: int
    tensor_split: int = 1
    sequence_split: int = 1
    element_bytes: int = 2
    gradient_bytes: int = 4
    stage_parameters: tuple[int, ...] = ()

    @property
    def activation_bytes(self) -> int:
        """What one GPU hands to the next stage per micro-batch, and gets back as gradient."""
        return self.micro_batch_tokens * self.hidden * self.element_bytes // self.sequence_split

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the word embedding on one GPU; the first and the last stage hold a copy each."""
        return self.vocabulary * self.hidden // self.tensor_split

    def parameters(self, stage: int, stages: int) -> int:
        """Parameters on one GPU of the stage."""
        if self.stage_parameters:
            if len(self.stage_parameters) != stages:
                raise SimulationError(
                    f"stage_parameters has {len(self.stage_parameters)} entries for {stages} stages"
                )
            return self.stage_parameters[stage] // self.tensor_split
        blocks = 12 * self.hidden**2 * self.layers // (stages * self.tensor_split)
        return blocks + (self.embedding_parameters if stage in (0, stages - 1) else 0)


# Stated, not known: chosen so that the shortest recorded transfers fit links of 200 Gbit/s.
MODELS = {
    "AR": ModelSpec(8192, 64, 65_536, 6_144, tensor_split=4, sequence_split=4),
    "SE": ModelSpec(4096, 12, 120_000, 32_768, tensor_split=1, sequence_split=2),
}


@dataclass(frozen=True, slots=True)
class Scaling:
    """How much shorter times and smaller messages are than in the real job; shapes are unchanged."""

    time: float = 0.01
    size: float = 0.001

    def __post_init__(self) -> None:
        if not (_LEAST_SCALE <= self.time <= 1 and _LEAST_SCALE <= self.size <= 1):
            raise SimulationError(f"time and size scale must be at least {_LEAST_SCALE:g} and at most 1")

    def duration_ns(self, seconds: float) -> int:
        """A recorded time in the simulation."""
        return round(seconds * self.time * 1e9)

    def size_bytes(self, size: float) -> int:
        """A message or buffer in the simulation; never empty."""
        return max(_SMALLEST_BYTES, int(size * self.size))

    def link_gbps(self, real_gbps: float = 200.0) -> float:
        """The link rate at which transfers take as large a part of the step as on ``real_gbps``."""
        return real_gbps * self.size / self.time


@dataclass(frozen=True, slots=True)
class Seat:
    """One simulated rank: a GPU with its NIC. ``sister`` is the GPU within its worker."""

    rank: int
    machine: int
    rail: int
    replica: int
    stage: int
    sister: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Workers on machines in Megatron's default order: tensor first, then data, then pipeline.

    One rank is simulated per worker, or all ``width`` GPUs of it with ``tensor_ranks``. Rails are
    numbered by the simulated GPUs of a machine.
    """

    replicas: int
    stages: int
    width: int
    gpus_per_machine: int = _MACHINE_GPUS
    tensor_ranks: bool = False

    def __post_init__(self) -> None:
        stage_gpus = self.replicas * self.width
        if self.gpus_per_machine < 1 or self.gpus_per_machine % self.width:
            raise SimulationError(
                f"{self.gpus_per_machine} GPUs per machine cannot hold whole workers of {self.width} GPUs"
            )
        if stage_gpus % self.gpus_per_machine:
            raise SimulationError(
                f"{self.gpus_per_machine} GPUs per machine would mix pipeline stages; "
                f"give a divisor of {stage_gpus}"
            )

    @property
    def workers_per_machine(self) -> int:
        """Workers that share a machine; they are neighbours in the data-parallel group of one stage."""
        return self.gpus_per_machine // self.width

    @property
    def sisters(self) -> int:
        """Simulated ranks per worker."""
        return self.width if self.tensor_ranks else 1

    @property
    def rails(self) -> int:
        """Simulated NICs per machine."""
        return self.workers_per_machine * self.sisters

    @property
    def machines(self) -> int:
        """Machines of the job."""
        return self.replicas * self.stages // self.workers_per_machine

    @property
    def machines_per_stage(self) -> int:
        """Machines that hold one stage."""
        return self.machines // self.stages

    def machine(self, worker: Worker) -> int:
        """The machine of a worker."""
        replica, stage = worker
        return (replica + self.replicas * stage) // self.workers_per_machine

    def seat(self, worker: Worker, sister: int = 0) -> Seat:
        """The place of one simulated GPU of a worker; ranks are numbered machine by machine."""
        replica, stage = worker
        machine = self.machine(worker)
        rail = replica % self.workers_per_machine * self.sisters + sister
        return Seat(machine * self.rails + rail, machine, rail, replica, stage, sister)

    def seats(self) -> list[Seat]:
        """All simulated ranks in order of their number."""
        return [
            self.seat((replica, stage), sister)
            for stage in range(self.stages)
            for replica in range(self.replicas)
            for sister in range(self.sisters)
        ]


def layout_of(trace: Trace, gpus_per_machine: int = _MACHINE_GPUS, tensor_ranks: bool = False) -> Layout:
    """The layout of a trace's workers."""
    return Layout(trace.replicas, trace.stages, trace.width, gpus_per_machine, tensor_ranks)
