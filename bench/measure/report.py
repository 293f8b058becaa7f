# SPDX-License-Identifier: Apache-2.0
"""Puts the measurements together, with the machine that they were made on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure.memory import memory_rows
from bench.measure.path import path_rows
from bench.measure.rows import Row, table
from bench.windows.report import window_rows

PARTS = ("path", "memory", "windows")


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, cores, load; no names."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def measure(parts: tuple[str, ...] = PARTS, *, quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Measure the named parts; give a text and the same for JSON."""
    before = machine()
    rows = [row for part in parts for row in _rows(part, quick=quick)]
    text = (
        f"{before['processor']}, {before['cores']} cores, load {before['load']} at the start\n"
        "Times are the quickest of several repetitions in processor time of one thread; ratios in brackets\n"
        "are medians. On a machine that others use too only ratios mean something.\n\n"
    )
    return text + table(rows), {"machine": before, "quick": quick, "rows": [row.as_dict() for row in rows]}


def _rows(part: str, *, quick: bool) -> Iterator[Row]:
    if part == "path":
        return path_rows(quick=quick)
    return memory_rows(quick=quick) if part == "memory" else window_rows(quick=quick)
