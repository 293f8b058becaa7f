# SPDX-License-Identifier: Apache-2.0
"""Rows of the measurement tables: a goal, what was measured, and what it is compared with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `met` is None where no goal is stated."""

    part: str
    case: str
    goal: str
    measured: float
    unit: str
    reference: str
    met: bool | None
    details: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self)


def table(rows: list[Row]) -> str:
    """Return the rows as text, parts apart."""
    lines: list[str] = []
    part = ""
    for row in rows:
        if row.part != part:
            part = row.part
            lines += ["", part, f"  {'case':<46}{'goal':>26}{'measured':>14}  {'beside':<34}met"]
        met = "-" if row.met is None else "yes" if row.met else "NO"
        measured = "-" if math.isnan(row.measured) else f"{row.measured:.3g} {row.unit}"
        lines.append(f"  {row.case:<46}{row.goal:>26}{measured:>14}  {row.reference:<34}{met}")
    return "\n".join(lines[1:]) + "\n"
