# SPDX-License-Identifier: Apache-2.0
"""What is measured: captures of a simulated job, or given ones, repeated until they are long enough.

A simulated job is made longer by more iterations, so that PSNs, credits and times go on as in a real one.
Given captures are repeated with later times; every repetition is a new life of their queue pairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.repeat import packet_count, repeat_capture, unpack_capture
from host_ctl.ingest.naming import CaptureFiles, find_captures
from sim.run import run_scenario
from sim.scenarios import build

SCENARIO = "slow_compute-dp-on_entry"
SEED = 1
_PACKETS_PER_STEP = 4_000  # of this scenario and seed, all NICs, rounded down


@dataclass(frozen=True, slots=True)
class BenchInput:
    """Uncompressed captures by NIC, and where they come from."""

    source: str
    files: tuple[CaptureFiles, ...]
    packets: int

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(path.stat().st_size for files in self.files for path in files.paths)


def simulated_captures(packets: int, keep: Path) -> BenchInput:
    """Captures of one simulated job with at least about ``packets`` packets; kept for the next run."""
    steps = max(8, -(-packets // _PACKETS_PER_STEP))
    folder = keep / f"{SCENARIO}-{SEED}-{steps}"
    if not (folder / "truth.json").is_file():
        scenario = build(SCENARIO, SEED)
        longer = tuple(replace(job, steps=steps) for job in scenario.jobs)
        run_scenario(replace(scenario, jobs=longer), folder)
    files, _ = find_captures([folder], {})
    return _input(f"simulated {SCENARIO}, seed {SEED}, {steps} iterations", files)


def given_captures(folder: Path, packets: int, keep: Path) -> BenchInput:
    """The captures of a folder, unpacked, and repeated until they hold at least ``packets`` packets.

    Raises InputError without captures, ValueError when repeating is needed and they are not pcap.
    """
    found, _ = find_captures([folder], {})
    target = keep / f"given-{folder.resolve().name}"
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    files = [_unpacked(one, target) for one in found]
    once = sum(packet_count(path) for one in files for path in one.paths)
    times = max(1, -(-packets // max(once, 1)))
    if times > 1:
        for one in files:
            if len(one.paths) > 1:
                raise ValueError(f"{one.machine} has several files: captures in parts cannot be repeated")
        paths = [one.paths[0] for one in files]
        for path in paths:
            repeat_capture(path, times)
    return _input(f"{folder.name}, {times} times", files)


def _unpacked(files: CaptureFiles, target: Path) -> CaptureFiles:
    return replace(files, paths=tuple(unpack_capture(path, target) for path in files.paths))


def _input(source: str, files: Sequence[CaptureFiles]) -> BenchInput:
    count = sum(packet_count(path) for one in files for path in one.paths)
    return BenchInput(source, tuple(files), count)
