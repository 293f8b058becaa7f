# SPDX-License-Identifier: Apache-2.0
"""How long a rank computes: base time, lasting differences, noise, and what faults add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.spec import NoiseSpec, stream


@dataclass(frozen=True, slots=True)
class Phase:
    """A compute phase: its step (-1 = warm-up), its number in it, how many the step before had (0 = none).

    Steps of a rank have equally many phases, so ``of`` tells which phase is the last.
    """

    step: int
    number: int
    of: int

    @property
    def at_edge(self) -> bool:
        """Whether the phase is the first or the last of its step."""
        return self.number in (0, self.of - 1)


Factor = Callable[[int, Phase], float]
Extra = Callable[[int, int, bool], int]


class ComputeModel:
    """Compute times of all ranks of a scenario.

    ``factors`` (rank, phase) multiply every phase; ``extras`` (rank, step, first phase) add ns. Faults
    append to both; neither ever consumes a draw of the healthy noise.
    """

    def __init__(self, seed: int, spec: NoiseSpec, machine_of_rank: list[int]) -> None:
        self._seed = seed
        self._spec = spec
        self._jitter = [stream(seed, "jitter", rank) for rank in range(len(machine_of_rank))]
        self._pauses = [stream(seed, "pause", rank) for rank in range(len(machine_of_rank))]
        static = stream(seed, "static").normal(0.0, spec.static_spread, max(machine_of_rank, default=0) + 1)
        limit = 1.5 * spec.static_spread
        self._static = [1.0 + float(np.clip(static[machine], -limit, limit)) for machine in machine_of_rank]
        self._phase = [Phase(-1, -1, 0)] * len(machine_of_rank)
        self.factors: list[Factor] = []
        self.extras: list[Extra] = []

    def duration_ns(self, rank: int, step: int, base_ns: int, first: bool) -> int:
        """Time of one phase of ``base_ns`` on ``rank`` in ``step`` (-1 = warm-up)."""
        noise = 1.0 + min(max(self._jitter[rank].normal(0.0, self._spec.jitter), -0.3), 0.3)
        scale = self._static[rank] * noise * self._imbalance(rank, step)
        phase = self._next_phase(rank, step)
        for factor in self.factors:
            scale *= factor(rank, phase)
        launch = int(self._jitter[rank].exponential(self._spec.launch_ns or 1))
        return int(base_ns * scale) + launch + sum(extra(rank, step, first) for extra in self.extras)

    def _next_phase(self, rank: int, step: int) -> Phase:
        before = self._phase[rank]
        if before.step == step:
            phase = Phase(step, before.number + 1, before.of)
        else:
            phase = Phase(step, 0, before.number + 1 if before.step >= 0 else 0)
        self._phase[rank] = phase
        return phase

    def pause_ns(self, rank: int, step: int) -> int:
        """A rare benign pause at the start of a step."""
        hit, size = self._pauses[rank].random(2)
        if step < 0 or hit >= self._spec.pause_probability:
            return 0
        return int(self._spec.pause_ns * (0.5 + size))

    def _imbalance(self, rank: int, step: int) -> float:
        if self._spec.imbalance <= 0.0 or step < 0:
            return 1.0
        draw = stream(self._seed, "imbalance", rank, step).normal(0.0, self._spec.imbalance)
        return float(np.exp(np.clip(draw, -0.6, 0.6)))
