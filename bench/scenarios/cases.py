# SPDX-License-Identifier: Apache-2.0
"""One case of the benchmark: everything that decides a run, by a name that stays the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.scenarios.catalogue import CATALOGUE, HEALTHY, Choice, Order, build, entries_named
from sim.scenarios.presets import DEFAULT_CLUSTER, NOISES
from sim.spec import (
    CaptureKind,
    CaptureSpec,
    ClockSpec,
    CreditPolicy,
    CreditStyle,
    Scenario,
    TxStamp,
)

CONTROLS = frozenset({HEALTHY, "gc_pauses", "checkpoint", "imbalance", "stage_imbalance", "clock_error"})
"""Scenarios in which nothing or a notice is the right answer."""

_MESSAGE_TRAIN, _PACKET_TRAIN = 128, 8
_CAPTURES = {
    "messages": (CaptureSpec(CaptureKind.STEERED, snap_bytes=96), _MESSAGE_TRAIN),
    "trains": (CaptureSpec(CaptureKind.ALL, snap_bytes=96), _PACKET_TRAIN),
    "steered": (CaptureSpec(CaptureKind.STEERED, snap_bytes=96), _PACKET_TRAIN),
    "sampled": (CaptureSpec(CaptureKind.SAMPLED, sample_shift=3, snap_bytes=96), _PACKET_TRAIN),
}
_CLOCKS = {
    "off": ClockSpec(offset_ns=50_000_000, drift_ppm=50.0, wander_ppm=0.1, jitter_ns=20),
    "clean": ClockSpec(),
    "worse": ClockSpec(offset_ns=500_000_000, drift_ppm=200.0, wander_ppm=2.0, jitter_ns=200),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    ``scenario`` is a name of the catalogue or two, ``severity`` and ``onset`` None = drawn from the seed.
    ``clocks``: ``off`` (50 ms, 50 ppm), ``clean`` or ``worse``. ``capture``: ``messages`` (message by
    message, as a steered tap sees them), ``trains`` (all packets, eight at a time), ``steered`` or
    ``sampled`` (1 of 8). ``rung`` tells the place on the ladder of severities, ``variant`` the ablation.
    """

    scenario: str
    workload: str
    machines: int
    nics: int
    seed: int
    steps: int = 20
    severity: float | None = None
    onset: int | None = None
    noise: str = "realistic"
    tx_stamp: str = "wire"
    clocks: str = "off"
    capture: str = "messages"
    rung: int | None = None
    variant: str | None = None

    @property
    def id(self) -> str:
        """The name by which a finished case is recognised: all that decides it."""
        drawn = "drawn" if self.severity is None else f"{self.severity:.6g}"
        parts = [self.scenario, self.workload, self.cluster, f"i{self.steps}", f"s{self.seed}", drawn]
        if self.onset is not None:
            parts.append(f"from{self.onset}")
        if self.noise != "realistic":
            parts.append(self.noise)
        parts += [self.tx_stamp, self.clocks, self.capture]
        return "/".join(parts if self.variant is None else [*parts, self.variant])

    @property
    def cluster(self) -> str:
        """Machines and NICs of each."""
        return f"{self.machines}x{self.nics}"

    @property
    def control(self) -> bool:
        """Whether nothing or a notice is the right answer."""
        return self.scenario in CONTROLS

    @property
    def long(self) -> bool:
        """Whether it is one of the long healthy runs, which tell the rate of false alarms."""
        return self.control and self.steps >= 100


def scenario_of(case: Case) -> Scenario:
    """The run to simulate. Raises SimulationError when it is impossible."""
    site = replace(
        DEFAULT_CLUSTER, machines=case.machines, nics_per_machine=case.nics, noise=NOISES[case.noise]
    )
    faulty = any(entry.kind is not None for entry in entries_named(case.scenario))
    choice = Choice(severity=case.severity, onset_step=case.onset) if faulty else Choice()
    made = build(Order(case.scenario, case.seed, site, case.workload, case.steps, choice=choice))
    capture, train = _CAPTURES[case.capture]
    clock = _CLOCKS[case.clocks]
    if case.scenario == "clock_error":  # the fault is in the clock itself
        clock = made.clock
    if case.variant == "no_credits":
        stack = replace(made.stack, credit_policy=CreditPolicy.NONE, credit_style=CreditStyle.NONE)
        made = replace(made, stack=stack)
    clock = replace(clock, tx_stamp=TxStamp(case.tx_stamp))
    return replace(made, capture=capture, train_packets=train, clock=clock)


def rungs(name: str) -> list[float]:
    """Severities of a scenario from far below its usual range up to its end; none when it has none."""
    severity = CATALOGUE[name].severity if name in CATALOGUE else None
    if severity is None:
        return []
    low, high = severity.low, severity.high
    if severity.logarithmic:
        return [low / 30, low / 8, low / 2.5, low, high]
    none = 1.0 if severity.least == 1.0 else 0.0
    return [none + (low - none) * share for share in (0.08, 0.2, 0.5, 1.0)] + [high]
