# SPDX-License-Identifier: Apache-2.0
"""Methods that are judged on the same runs as Pulse: what they are given, and what they answer.

A contender is given the whole truth of a run (``Truth.data``), operations and true times included: more than
any of them would have in the field. It is judged by the machines that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ContenderVerdict:
    """What a contender says of a run; ``iteration`` is when it knew. Notices accuse nobody."""

    machine: str | None
    cause: str | None
    severity: str
    iteration: int | None


class Contender(Protocol):
    """A method that judges a run."""

    @property
    def name(self) -> str:
        """As the tables show it."""

    def judge(self, truth: dict[str, Any]) -> list[ContenderVerdict]:
        """The verdicts on one run; ``truth`` must not be changed."""


CONTENDERS: tuple[Contender, ...] = ()
"""All that the benchmark judges beside Pulse."""
