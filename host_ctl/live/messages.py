# SPDX-License-Identifier: Apache-2.0
"""What the process that looks tells the controller."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from host_ctl.live.findings import Findings
from host_ctl.live.intake import IntakeCounts

LENGTH = struct.Struct("<Q")
"""Before every message, which is pickled."""


@dataclass(slots=True)
class LookCounts:
    """Looks since the start, and the last one."""

    looks: int = 0
    empty: int = 0
    failed: int = 0
    cut: int = 0
    seconds: float = 0.0
    last_seconds: float = 0.0
    last_span_ns: int = 0
    last_bytes: int = 0
    decoded_frames: int = 0
    decoded_bytes: int = 0
    stages: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alive:
    """The worker goes on; with ``looking`` it begins a look, about which nothing comes until it is over."""

    looking: bool
    looks: LookCounts
    intake: IntakeCounts
    held_frames: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """A look is over."""

    findings: Findings
    alive: Alive
