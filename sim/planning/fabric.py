# SPDX-License-Identifier: Apache-2.0
"""Switches: which output ports exist, and which of them a packet passes on its way from NIC to NIC.

Every rail has leaves of its own. Without a spine the rails never meet, and leaves of one rail are joined by
that rail's uplinks; with a spine all leaves of all rails meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from sim.spec import NetworkSpec, SimulationError

Leaf = tuple[int, int]  # rail, number


@dataclass(slots=True)
class Fabric:
    """Ports and paths of one network; ``ports`` are (rate factor, rate, latency) rows of the plan.

    ``uplink[leaf, number]`` leads from a leaf to spine plane ``number``, ``downlink`` back.
    """

    spec: NetworkSpec
    machines: int
    rng: np.random.Generator
    ports: list[tuple[float, int, int]] = field(default_factory=list)
    access: list[int] = field(default_factory=list)
    uplink: dict[tuple[Leaf, int], int] = field(default_factory=dict)
    downlink: dict[tuple[Leaf, int], int] = field(default_factory=dict)
    _leaf: list[Leaf] = field(default_factory=list)
    _choice: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self._choice = cycle(self.rng.permutation(self.spec.uplinks).tolist())

    def attach(self, machine: int, rail: int) -> int:
        """Plug the next NIC in; gives its access port."""
        leaves = self.spec.leaves
        block = min(machine * leaves // self.machines, leaves - 1)
        leaf = rail, machine % leaves if self.spec.interleaved else block
        self._leaf.append(leaf)
        self.access.append(self._port(self.spec.rate_gbps, self.spec.propagation_ns))
        return self.access[-1]

    def leaf(self, nic: int) -> Leaf:
        """Rail and number of the leaf that a NIC is plugged into."""
        return self._leaf[nic]

    def same_leaf(self, a: int, b: int) -> bool:
        """Whether packets between two NICs pass one switch only."""
        return self._leaf[a] == self._leaf[b]

    def choose_plane(self) -> int:
        """The spine plane that the next flow hashes to."""
        return next(self._choice)

    def path(self, source: int, target: int, plane: int) -> tuple[int, ...]:
        """Ports from one NIC to another. Raises SimulationError when no cable leads there."""
        from_leaf, to_leaf = self._leaf[source], self._leaf[target]
        if from_leaf == to_leaf:
            return (self.access[target],)
        if from_leaf[0] != to_leaf[0] and not self.spec.spine:
            raise SimulationError(
                f"no path from rail {from_leaf[0]} to rail {to_leaf[0]}; give the network a spine"
            )
        up = self._uplink(self.uplink, from_leaf, plane)
        down = self._uplink(self.downlink, to_leaf, plane)
        return up, down, self.access[target]

    def uplinks_of(self, leaf: Leaf) -> list[int]:
        """All ports from a leaf upwards, made if need be; empty when there is nothing above it."""
        if self.spec.leaves < 2 and not self.spec.spine:
            return []
        return [self._uplink(self.uplink, leaf, plane) for plane in range(self.spec.uplinks)]

    def _uplink(self, table: dict[tuple[Leaf, int], int], leaf: Leaf, plane: int) -> int:
        key = leaf, plane
        if key not in table:
            table[key] = self._port(
                self.spec.uplink_rate_gbps, self.spec.propagation_ns + self.spec.switch_ns
            )
        return table[key]

    def _port(self, rate_gbps: float, latency_ns: int) -> int:
        self.ports.append((rate_gbps, latency_ns, self.spec.switch_jitter_ns))
        return len(self.ports) - 1
