# SPDX-License-Identifier: Apache-2.0
"""Hashes of what simulated runs come to, to tell whether a change of the simulator changed its output."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.simulator import SMALL_CLUSTER, in_mode
from sim.output.run import OutputForm, run_scenario
from sim.scenarios.catalogue import CATALOGUE, Order, build
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.spec import Scenario

_SEED = 11
_STEPS = 6
_CLUSTER = replace(DEFAULT_CLUSTER, nics_per_machine=2)


def report_fingerprints(*, as_json: bool) -> int:
    """Print one hash per run, over the bytes of all its files; 0 = done."""
    found = {name: fingerprint(scenario, form) for name, scenario, form in _runs()}
    if as_json:
        print(json.dumps(found, indent=1))
        return 0
    for name, digest in found.items():
        print(f"{digest[:32]}  {name}")
    total = hashlib.sha256("".join(found.values()).encode()).hexdigest()
    print(f"{total[:32]}  all {len(found)} runs")
    return 0


def fingerprint(scenario: Scenario, form: OutputForm) -> str:
    """SHA-256 over the names and bytes of all files of a run."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="pulse-bench-") as scratch:
        run_scenario(scenario, Path(scratch), form=form)
        for path in sorted(Path(scratch).iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _runs() -> Iterator[tuple[str, Scenario, OutputForm]]:
    """Every fault once, every workload once, in message mode; a few packet by packet and as captures."""
    for name, entry in CATALOGUE.items():
        workload = entry.workloads[0] if entry.workloads else "dp"
        made = build(Order(name, _SEED, _CLUSTER, workload, _STEPS))
        yield f"messages {name} {workload}", in_mode(made, "messages"), OutputForm.FRAMES
    for workload in PRESETS:
        made = build(Order("healthy", _SEED, SMALL_CLUSTER, workload, _STEPS))
        yield f"messages healthy {workload}", in_mode(made, "messages"), OutputForm.FRAMES
    for name, workload in (
        ("link_loss", "dp"),
        ("congestion", "fsdp"),
        ("port_slow", "pp"),
        ("crash", "moe"),
    ):
        made = build(Order(name, _SEED, SMALL_CLUSTER, workload, 2))
        yield f"packets {name} {workload}", in_mode(made, "packets"), OutputForm.FRAMES
        yield f"captures {name} {workload}", made, OutputForm.PCAP
