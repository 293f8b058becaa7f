# SPDX-License-Identifier: Apache-2.0
"""The sets of cases: which faults and controls, how often, on what.

Network faults weigh most, since they are what slows jobs most often (compute less than 2 % of cases in
published counts). What varies beside the fault takes turns by fixed lists whose lengths have no common
factor, so that every fault meets all of it. Seeds are never used twice, except along a ladder of severities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from bench.scenarios.cases import Case, rungs
from sim.scenarios.catalogue import CATALOGUE

SEEDS = {"development": 1_000_000, "reported": 2_000_000}
SEEDS_PER_RANGE = 1_000_000
SETS = ("smoke", "quick", "full")

_NETWORK = (
    "pcie_slow", "port_slow", "rail_slow", "link_loss", "fabric_loss", "link_flap", "congestion",
    "slow_receiver", "path_collision", "switch_port",
)  # fmt: skip
_PAIRS = (
    "gpu_slow+port_slow", "port_slow+slow_receiver", "link_loss+cpu_contention", "pcie_slow+input_stall",
    "gpu_slow+gpu_slow", "rail_slow+link_loss", "congestion+gpu_slow",
)  # fmt: skip
_FAULTS = {
    **dict.fromkeys(_NETWORK, 3),
    "link_down": 2, "nic_dead": 2,
    "gpu_slow": 2, "gpu_power_cap": 1, "hbm_slow": 1, "nvlink_slow": 1, "cpu_contention": 2,
    "memory_pressure": 1, "input_stall": 2,
    "hang": 2, "op_mismatch": 2, "crash": 2,
}  # fmt: skip
_PAIRS_PER_UNIT = 4
_CONTROLS = {
    "healthy": 4, "gc_pauses": 3, "checkpoint": 2, "imbalance": 4, "stage_imbalance": 2, "clock_error": 3,
}  # fmt: skip

_WORKLOADS = (
    "dp", "fsdp", "pp", "dp_overlap", "cp", "dp", "tree", "fsdp", "moe", "storage", "dp", "two_jobs",
    "evaluation", "nvls", "dp_overlap", "pp", "warm_up",
)  # fmt: skip
_CLUSTERS = ((8, 1), (6, 1), (8, 2), (8, 1), (4, 2), (8, 1), (16, 1))
_SEVERAL_NICS = ((8, 2), (4, 2), (6, 2))
_STAMPS = ("wire", "copy", "wire", "none", "wire")
_CLOCKS = ("off", "off", "clean")
_CAPTURES = ("messages",) * 8 + ("trains",) * 3
_STEPS = (20, 24, 20, 30, 20, 20, 24, 20, 40, 20, 20, 30, 20)
_NEED_SEVERAL_NICS = frozenset({"rail_slow", "nvlink_slow"})
_DEFAULT_CLUSTER = (8, 8)
_LONG_STEPS = 200
_MOST_WITH_PACKETS = 8  # machines, in runs packet by packet: beyond, a run takes long and shows nothing new


def cases_of(name: str, seeds: str) -> list[Case]:
    """The cases of a set, the ranges of seeds being ``development`` and ``reported``."""
    numbers = count(SEEDS[seeds])
    if name == "smoke":
        return list(_smoke(numbers))
    units, ladders, long_runs, large = (1, 1, 4, 2) if name == "quick" else (14, 3, 400, 24)
    cases = [*_faults(units, numbers), *_ladders(ladders, name == "quick", numbers)]
    faults = len(cases)
    cases += _large(large, numbers)
    cases += _from_start(units, numbers)
    cases += _long(long_runs, numbers)
    control_units = 3 if name == "quick" else -(-(faults - long_runs) // sum(_CONTROLS.values()))
    cases += _controls(control_units, numbers)
    return cases


def ablation_cases(seeds: str) -> list[Case]:
    """The fixed cases on which one thing at a time is changed, each followed by its variants."""
    numbers = count(SEEDS[seeds] + SEEDS_PER_RANGE // 2)
    names = (
        "gpu_slow", "port_slow", "pcie_slow", "link_loss", "slow_receiver", "cpu_contention", "hang",
        "nic_dead", "congestion", "healthy", "gc_pauses", "imbalance",
    )  # fmt: skip
    cases = []
    for place, name in enumerate(names):
        workload = ("dp", "fsdp", "pp", "cp")[place % 4]
        base = Case(name, workload, 8, 1, next(numbers), capture="trains", variant="base")
        cases += [base, *(_varied(base, variant) for variant in VARIANTS)]
    return cases


VARIANTS = (
    "window_32", "window_64", "steered", "sampled", "tx_none", "worse_clocks", "nics_missing", "no_credits",
)  # fmt: skip
"""What is changed in an ablation; the base has windows of 8 us, all packets, stamps of the wire."""


def _varied(base: Case, variant: str) -> Case:
    case = replace(base, variant=variant)
    if variant in ("steered", "sampled"):
        return replace(case, capture=variant)
    if variant == "tx_none":
        return replace(case, tx_stamp="none")
    return replace(case, clocks="worse") if variant == "worse_clocks" else case


# ---- parts of a set


class _Turns:
    """What varies beside the fault, in turns."""

    def __init__(self, start: int) -> None:
        self._at = start

    def case(self, scenario: str, seed: int) -> Case:
        """The next case of a scenario."""
        at = self._at
        self._at += 1
        parts = scenario.split("+")
        several = bool(_NEED_SEVERAL_NICS.intersection(parts))
        clusters = _SEVERAL_NICS if several else _CLUSTERS
        machines, nics = clusters[at % len(clusters)]
        workload = _WORKLOADS[at % len(_WORKLOADS)]
        entry = CATALOGUE[parts[0]]
        if entry.workloads:
            workload = entry.workloads[0]
        if workload == "two_jobs" and any(CATALOGUE[part].changes_switches for part in parts):
            machines, nics = 8, 1  # each job needs machines on both sides of the network
        return Case(
            scenario,
            workload,
            machines,
            nics,
            seed,
            steps=_STEPS[at % len(_STEPS)],
            tx_stamp=_STAMPS[at % len(_STAMPS)],
            clocks=_CLOCKS[at % len(_CLOCKS)],
            capture=_CAPTURES[at % len(_CAPTURES)] if machines <= _MOST_WITH_PACKETS else "messages",
        )


def _in_turn(weights: dict[str, int], units: int, numbers: Iterator[int]) -> Iterator[Case]:
    for place, (scenario, weight) in enumerate(weights.items()):
        turns = _Turns(place * 5)
        for _ in range(units * weight):
            yield turns.case(scenario, next(numbers))


def _faults(units: int, numbers: Iterator[int]) -> Iterator[Case]:
    yield from _in_turn(_FAULTS, units, numbers)
    turns = _Turns(3)
    for number in range(units * _PAIRS_PER_UNIT):
        yield turns.case(_PAIRS[number % len(_PAIRS)], next(numbers))


def _controls(units: int, numbers: Iterator[int]) -> Iterator[Case]:
    for number, case in enumerate(_in_turn(_CONTROLS, units, numbers)):
        uneven = case.scenario == "healthy" and number % 4 == 3
        yield replace(case, noise="imbalance") if uneven else case


def _ladders(times: int, short: bool, numbers: Iterator[int]) -> Iterator[Case]:
    """Every severity of every fault on the same seed; a short ladder has only its middle rung."""
    for place, name in enumerate(_FAULTS):
        turns = _Turns(7 + place)
        for _ in range(times):
            base = replace(turns.case(name, next(numbers)), capture="messages", steps=24)
            steps = list(enumerate(rungs(name)))
            for rung, severity in steps[2:3] if short else steps:
                yield replace(base, severity=severity, rung=rung)


def _large(runs: int, numbers: Iterator[int]) -> Iterator[Case]:
    """A few on the default cluster, faults and controls in turn."""
    machines, nics = _DEFAULT_CLUSTER
    names = ("port_slow", "healthy", "gpu_slow", "gc_pauses", "link_loss", "clock_error", "hang", "imbalance")
    for number in range(runs):
        workload = ("dp", "fsdp")[number // 2 % 2]
        yield Case(names[number % len(names)], workload, machines, nics, next(numbers))


def _from_start(units: int, numbers: Iterator[int]) -> Iterator[Case]:
    """Faults that are there from the first iteration on: nothing to compare with but others."""
    for number, name in enumerate(("gpu_slow", "port_slow", "pcie_slow") * units):
        workload = ("dp", "fsdp", "cp")[(number + number // 3) % 3]
        yield Case(name, workload, 8, 1, next(numbers), onset=0)


def _long(runs: int, numbers: Iterator[int]) -> Iterator[Case]:
    for number in range(runs):
        workload = ("dp", "fsdp", "pp", "tree")[number % 4]
        machines = (4, 6, 4)[number % 3]
        if workload == "pp":
            machines = 4
        noise = "imbalance" if number % 5 == 4 else "realistic"
        yield Case("healthy", workload, machines, 1, next(numbers), steps=_LONG_STEPS, noise=noise)


def _smoke(numbers: Iterator[int]) -> Iterator[Case]:
    for name in ("port_slow", "gpu_slow", "link_loss", "hang", "healthy", "gc_pauses"):
        yield Case(name, "dp", 4, 1, next(numbers))
