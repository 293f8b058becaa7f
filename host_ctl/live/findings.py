# SPDX-License-Identifier: Apache-2.0
"""What one look at recent traffic came to: the border between live analysis and what is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from host_ctl.diagnose.verdict import Health, Verdict


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as it was seen last: ``key`` stays the same while the job lives, ``iteration_ns`` is 0 if unknown."""

    key: str
    machines: tuple[str, ...]
    nics: tuple[str, ...]
    iterations: int
    iteration_ns: int
    health: Health
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The analysis of [begin_ns, end_ns), times of the controller's clock.

    ``report`` is the ``pulse.report/1`` document of it. ``problems`` say what kept the analysis from being
    whole (late NICs, too much traffic). ``silent`` are the NICs that should have reported and did not.
    ``details`` is the ``pulse.details/1`` document of it as JSON, empty where nothing was seen.
    """

    begin_ns: int
    end_ns: int
    health: Health
    jobs: tuple[JobState, ...]
    report: dict[str, Any]
    silent: tuple[str, ...]
    problems: tuple[str, ...]
    details: str = ""
