# SPDX-License-Identifier: Apache-2.0
"""Hand-made truths, verdicts and outcomes."""

from __future__ import annotations

from dataclasses import replace

from bench.scenarios.cases import Case
from bench.scenarios.outcome import Facts, FaultFacts, Outcome, SaidVerdict
from bench.scenarios.results import Result

PORT = FaultFacts(
    name="port_slow",
    row=6,
    severities=("fail_slow",),
    causes=("nic_slow", "link_slow"),
    scopes=("nic", "link"),
    separable=True,
    machine="node3",
    candidates=(),
    onset_step=7,
    onset_iteration=8,
    slowdown=1.2,
    spread=0.01,
    iterations=12,
    counts=True,
)
GPU = replace(
    PORT, name="gpu_slow", row=1, causes=("compute_slow",), scopes=("gpu", "machine"), machine="node1"
)
CONGESTION = replace(
    PORT, name="congestion", row=10, causes=("congestion",), scopes=("path",), separable=False, machine=None
)
FABRIC_LOSS = replace(
    CONGESTION,
    name="fabric_loss",
    row=7,
    causes=("link_loss",),
    scopes=("link", "path"),
    candidates=("node1", "node2"),
)
FLAP = replace(
    PORT, name="link_flap", severities=("fail_slow", "notice"), causes=("link_down",), slowdown=1.1
)
SAID_PORT = SaidVerdict("fail_slow", "nic_slow", "nic", "node3", "mlx5_0", ("node3",), 8, 10, 1.19, 0.93)
SAID_CONGESTION = replace(SAID_PORT, cause="congestion", scope="path", machine=None, nic=None, candidates=())
NOTICE = replace(SAID_CONGESTION, severity="notice", cause="random_pauses", scope="none")


def truth(*faults: FaultFacts, control: bool = False) -> Facts:
    """The truth about a run with these faults."""
    return Facts(control, faults, 20, 11.0)


HEALTHY = truth(control=True)


def outcome(case: Case, facts: Facts, *verdicts: SaidVerdict, health: str = "degraded") -> Outcome:
    """What was said about a run."""
    return Outcome(case.id, facts, verdicts, health, {}, 0.5, 0.5)


def case(seed: int = 1, scenario: str = "port_slow") -> Case:
    """A small case."""
    return Case(scenario, "dp", 4, 1, seed)


def ended(one: Case) -> Result:
    """The result of a case that was found right."""
    return Result(one.id, outcome(one, truth(PORT), SAID_PORT))
