# SPDX-License-Identifier: Apache-2.0
"""Puts the measurements together, with the machine that they were made on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measure.frames import frame_rows
from bench.measure.memory import memory_rows
from bench.measure.modes import mode_rows
from bench.measure.path import path_rows
from bench.measure.rows import Row, table
from bench.windows.report import window_rows

PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    "path": path_rows,
    "memory": memory_rows,
    "windows": window_rows,
    "frames": frame_rows,
    "modes": mode_rows,
}
"""What makes the rows of each part, given whether to be quick."""


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


def measure(
    parts: tuple[str, ...] = tuple(PARTS), *, quick: bool = False, captures: Path | None = None
) -> tuple[str, dict[str, Any]]:
    """Measure the named parts, `modes` on given captures too; give a text and the same for JSON."""
    before = machine()
    settings = {"modes": {"captures": captures}}
    rows = [row for part in parts for row in PARTS[part](quick=quick, **settings.get(part, {}))]
    text = (
        f"{before['processor']}, {before['cores']} cores, load {before['load']} at the start\n"
        "Times are the quickest of several repetitions in processor time of one thread; ratios in brackets\n"
        "are medians. On a machine that others use too only ratios mean something.\n\n"
    )
    return text + table(rows), {"machine": before, "quick": quick, "rows": [row.as_dict() for row in rows]}
