# SPDX-License-Identifier: Apache-2.0
"""``python -m bench figures``: a figure per cause, each drawn from a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.figures import hosts, stops, wires
from bench.figures.style import save

FIGURES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        draw.__name__: draw
        for draw in (
            hosts.compute_slow,
            hosts.input_stall,
            hosts.cpu_contention,
            wires.receiver_slow,
            wires.nic_slow,
            wires.link_slow,
            wires.link_loss,
            wires.link_down,
            stops.nic_dead,
            wires.congestion,
            wires.path_collision,
            stops.hang,
            stops.crash,
            stops.op_mismatch,
            hosts.random_pauses,
            hosts.periodic_pause,
            hosts.data_imbalance,
            hosts.stage_imbalance,
        )
    }
)
"""By the cause that each shows."""


def report_figures(folder: Path, causes: list[str]) -> int:
    """Draw the figures of some causes, or of all; 0 = done. Raises ValueError for an unknown cause."""
    unknown = [name for name in causes if name not in FIGURES]
    if unknown:
        raise ValueError(f"no figure of {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in causes or FIGURES:
        path = folder / f"{name}.svg"
        save(FIGURES[name](), path)
        print(f"{path}: {path.stat().st_size} bytes", flush=True)
    return 0
