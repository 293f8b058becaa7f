# SPDX-License-Identifier: Apache-2.0
"""What every contender is: something that judges a run and says whom it accuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ContenderVerdict:
    """One accusation. Severity and cause are words of ``host_ctl.diagnose.verdict``; None = not told."""

    machine: str | None
    cause: str | None
    severity: str
    iteration: int | None


class Contender(Protocol):
    """A method under comparison."""

    name: str

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """What it says about a run: the content of ``truth.json`` and the frames of the software DPUs.

        It takes from the truth only what its own instruments would have shown.
        """
        ...
