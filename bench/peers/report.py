# SPDX-License-Identifier: Apache-2.0
"""Which machine each contender names, scenario by scenario, against the truth of simulated runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.contenders import CONTENDERS
from bench.peers.interface import Contender, ContenderVerdict
from bench.simulator import SMALL_CLUSTER, in_mode
from sim.output.run import OutputForm, run_scenario
from sim.scenarios.catalogue import CATALOGUE, Order, build
from sim.scenarios.preset_jobs import PRESETS
from sim.spec import SimulationError


@dataclass(slots=True)
class Tally:
    """One contender on the runs of one scenario.

    ``guilty`` runs have a machine to blame: ``noticed`` said that something is slow or dead, ``right`` named
    the machine (all, where two are to blame); of the machines ``named`` in them, ``wrong`` were others.
    ``innocent`` runs have no machine to blame: ``accused`` named one all the same, ``alarms`` said that
    something is wrong without naming anybody, which is right for faults of paths.
    """

    contender: str
    scenario: str
    guilty: int = 0
    noticed: int = 0
    right: int = 0
    named: int = 0
    wrong: int = 0
    innocent: int = 0
    accused: int = 0
    alarms: int = 0


def orders(runs: int, seed: int, only: Iterable[str] = ()) -> Iterator[Order]:
    """The scenarios of the catalogue in turn, each on workloads that go with it, on the small cluster."""
    rng = np.random.default_rng(seed)
    names = [name for name in CATALOGUE if name in set(only) or not only]
    for number in range(runs):
        entry = CATALOGUE[names[number % len(names)]]
        workloads = list(entry.workloads) or list(PRESETS)
        workload = workloads[int(rng.integers(len(workloads)))]
        yield Order(entry.name, int(rng.integers(1 << 30)), SMALL_CLUSTER, workload)


def guilty_machines(truth: dict[str, Any]) -> set[str]:
    """The machines that a report should name; empty when none is to blame."""
    faults = [truth["fault"], truth["second_fault"]]
    return {f["allowed"]["machine"] for f in faults if f is not None and f["allowed"]["machine"]}


def count(tally: Tally, truth: dict[str, Any], verdicts: list[ContenderVerdict]) -> None:
    """Add one run."""
    loud = [verdict for verdict in verdicts if verdict.severity != "notice"]
    named = {verdict.machine for verdict in loud if verdict.machine is not None}
    guilty = guilty_machines(truth)
    if guilty:
        tally.guilty += 1
        tally.noticed += bool(loud)
        tally.right += guilty <= named
        tally.named += len(named)
        tally.wrong += len(named - guilty)
    else:
        tally.innocent += 1
        tally.accused += bool(named)
        tally.alarms += bool(loud) and not named


def measure(
    runs: int, seed: int, only: Iterable[str] = (), contenders: Iterable[Contender] = CONTENDERS
) -> list[Tally]:
    """Simulate, judge and count."""
    tallies: dict[tuple[str, str], Tally] = {}
    for order in orders(runs, seed, only):
        try:
            scenario = in_mode(build(order), "messages")
        except SimulationError:
            continue  # this fault needs more machines or stages than the small cluster has
        with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
            truth = run_scenario(scenario, Path(scratch), form=OutputForm.FRAMES).data
            frames = sorted(Path(scratch).glob("*.frames"))
            for contender in contenders:
                key = contender.name, order.scenario
                tally = tallies.setdefault(key, Tally(*key))
                count(tally, truth, contender.judge(truth, frames))
    return list(tallies.values())


def totals(tallies: list[Tally]) -> list[Tally]:
    """One row per contender over all scenarios."""
    sums: dict[str, Tally] = {}
    for one in tallies:
        total = sums.setdefault(one.contender, Tally(one.contender, "all"))
        for name in ("guilty", "noticed", "right", "named", "wrong", "innocent", "accused", "alarms"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
    return list(sums.values())


def report_peers(runs: int, seed: int, only: Iterable[str] = (), *, as_json: bool) -> int:
    """Print a row per contender and scenario, and one per contender; 0 = done."""
    tallies = measure(runs, seed, only)
    rows = [*tallies, *totals(tallies)]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    print("contender | scenario | noticed | right | machines named right | accused | alarms")
    for row in rows:
        true, named = row.named - row.wrong, row.named + row.accused
        shares = [
            (row.noticed, row.guilty), (row.right, row.guilty), (true, named),
            (row.accused, row.innocent), (row.alarms, row.innocent),
        ]  # fmt: skip
        texts = (f"{part}/{whole}" if whole else "-" for part, whole in shares)
        print(" | ".join([row.contender, row.scenario, *texts]))
    return 0
