# SPDX-License-Identifier: Apache-2.0
"""How a card differs from what is wanted, and the commands that would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firmware_cfg.cards import Card, Parameter
from firmware_cfg.wanted import Setting, Watched

RIGHT, PENDING, WRONG, REVERTING, UNKNOWN, ABSENT = (
    "right",
    "power cycle needed",
    "to be set",
    "right until the next power-on",
    "unknown to this card",
    "not there, not needed",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting on one card; `found` is None when the card does not know the parameter."""

    setting: Setting
    found: Parameter | None

    @property
    def state(self) -> str:
        """What must happen to it, in a few words."""
        if self.found is None:
            return ABSENT if self.setting.if_known else UNKNOWN
        live = self.setting.accepts(self.found.live.number, self.found.live.text)
        coming = self.setting.accepts(self.found.next.number, self.found.next.text)
        if live:
            return RIGHT if coming else REVERTING
        return PENDING if coming else WRONG

    @property
    def to_set(self) -> bool:
        """Whether the value of the next power-on must be changed."""
        return self.state in (WRONG, REVERTING)

    @property
    def assignment(self) -> str:
        """The change as the tools take it."""
        return f"{self.setting.key}={self.setting.value}"

    def as_json(self) -> dict[str, Any]:
        """Return it as one object of the report."""
        found = self.found
        return {
            "key": self.setting.key,
            "wanted": self.setting.value,
            "compare": self.setting.compare,
            "need": self.setting.need,
            "live": found.live.text if found else None,
            "next_boot": found.next.text if found else None,
            "default": found.default.text if found else None,
            "state": self.state,
            "reason": self.setting.reason,
        }


@dataclass(frozen=True, slots=True)
class CardReport:
    """A card beside what is wanted of it."""

    card: Card
    differences: tuple[Difference, ...]
    watched: tuple[tuple[Watched, Parameter | None], ...]

    @property
    def assignments(self) -> list[str]:
        """What one call of the tool must set."""
        return [difference.assignment for difference in self.differences if difference.to_set]

    def having(self, *states: str) -> list[Difference]:
        """Return the differences in any of `states`."""
        return [difference for difference in self.differences if difference.state in states]


def compare(card: Card, settings: Sequence[Setting], watched: Sequence[Watched]) -> CardReport:
    """Hold a card against the settings."""
    return CardReport(
        card,
        tuple(Difference(setting, card.parameters.get(setting.key)) for setting in settings),
        tuple((entry, card.parameters.get(entry.key)) for entry in watched),
    )


def table(report: CardReport) -> list[str]:
    """Return the lines that show a card to people."""
    lines = [f"{report.card.device} ({report.card.kind})"]
    rows = [("setting", "live", "next boot", "wanted", "")]
    for each in report.differences:
        found = each.found
        least = "at least " if each.setting.compare == "at_least" else ""
        name = f"{each.setting.name}({each.setting.value})" if each.setting.name else str(each.setting.value)
        rows.append(
            (
                each.setting.key,
                found.live.text if found else "-",
                found.next.text if found else "-",
                least + name,
                each.state,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append(("  " + "  ".join([*cells, row[4]])).rstrip())
    for entry, parameter in report.watched:
        if parameter is not None:
            lines.append(f"  {entry.key} is {parameter.live.text}, left alone: {entry.reason}")
    return lines
