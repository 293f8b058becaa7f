# SPDX-License-Identifier: Apache-2.0
"""The tool that people use today: tshark's extraction of the fields that an analysis needs."""

from __future__ import annotations

import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

FIELDS = (
    "frame.time_epoch",
    "frame.len",
    "ip.src",
    "ip.dst",
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
)
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class TsharkResult:
    """How many packets tshark dissected in how much processor time, and which version it is."""

    version: str
    packets: int
    seconds: float


def measure_tshark(path: Path) -> TsharkResult | None:
    """Measure the processor time of tshark's field extraction of one file; None where it is not installed.

    TFTP is off: its heuristic takes RoCEv2 packets with certain source ports for its own.
    Raises OSError when tshark fails.
    """
    if shutil.which("tshark") is None:
        return None
    version = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True)
    command = ["tshark", "-n", "-r", str(path), "--disable-protocol", "tftp", "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    begin = _children_s()
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    seconds = _children_s() - begin
    if done.returncode:
        raise OSError(f"tshark failed on {path}: {done.stderr.decode(errors='replace').strip()[:200]}")
    return TsharkResult(version.stdout.splitlines()[0].rstrip("."), done.stdout.count(b"\n"), seconds)


def _children_s() -> float:
    """Processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
