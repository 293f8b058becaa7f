# SPDX-License-Identifier: Apache-2.0
"""Bounds of live analysis; kept apart from what uses them, which takes long to load."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """How many iterations a look wants and needs; the longest span and the most bytes that it may have."""

    iterations: int = 60
    least_iterations: int = 8
    most_ns: int = 1_800_000_000_000
    most_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Bounds of live analysis.

    ``every_ns``: traffic between two looks, at least; ``look_s``: processor time that a look may take;
    ``deadline_ns``: how long a NIC is waited for; ``held_bytes``: encoded frames that are held;
    ``forget_ns``: silence after which a NIC or a job is forgotten.
    """

    window: WindowLimits = field(default_factory=WindowLimits)
    every_ns: int = 1_000_000_000
    look_s: float = 3.0
    deadline_ns: int = 3_000_000_000
    held_bytes: int = 1 << 30
    forget_ns: int = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What the worker is to do; ``cpu_share`` of one processor is the most that it takes in the long run.

    It hangs when nothing comes from it for ``hung_s``, and that is not explained by a look.
    """

    directory: Path
    limits: LiveLimits
    cpu_share: float = 1.0
    hung_s: float = 30.0
