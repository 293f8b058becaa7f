# SPDX-License-Identifier: Apache-2.0
"""What is measured: captures of a simulated job, or given ones, repeated until they are long enough.

The simulated job moves slots of half a MiB over fast links, as collective libraries do by default: the work
of the later stages grows with messages, that of the first with packets. A longer capture comes from larger
collectives, so that PSNs, credits and times go on as in a real one. Given captures are repeated with later
times; every repetition is a new life of their queue pairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.repeat import packet_count, repeat_capture, unpack_capture
from host_ctl.ingest.naming import CaptureFiles, find_captures
from sim.output.run import run_scenario
from sim.scenarios.lab import build

SCENARIO = "slow_compute-dp-on_entry"
SEED = 1
STEPS = 20
_SLOT_BYTES = 512 << 10
_LINK_GBPS = 100.0
_COMPUTE_NS = 3_000_000
_BYTES_PER_PACKET = 320  # collective bytes per packet of a step, all captures together, rounded up
_MIN_COLLECTIVE_BYTES = 512 << 10


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
    collective = max(_MIN_COLLECTIVE_BYTES, packets // STEPS * _BYTES_PER_PACKET)
    folder = keep / f"{SCENARIO}-{SEED}-{collective}"
    if not (folder / "truth.json").is_file():
        drawn = build(SCENARIO, SEED)
        jobs = tuple(
            replace(job, steps=STEPS, collective_bytes=collective, compute_ns=_COMPUTE_NS)
            for job in drawn.jobs
        )
        stack = replace(drawn.stack, slot_bytes=_SLOT_BYTES)
        network = replace(drawn.network, rate_gbps=_LINK_GBPS)
        run_scenario(replace(drawn, jobs=jobs, stack=stack, network=network), folder)
    files, _ = find_captures([folder], {})
    return _input(f"simulated {SCENARIO}, seed {SEED}, {STEPS} iterations of {collective >> 10} KiB", files)


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
