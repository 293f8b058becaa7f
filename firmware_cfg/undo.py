# SPDX-License-Identifier: Apache-2.0
"""What of a record can be brought back, and what must stay as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firmware_cfg.cards import Card, Parameter, set_command
from firmware_cfg.record import Change


@dataclass(frozen=True, slots=True)
class Undo:
    """Changes that are undone, the commands that do it, and those that stay with the reason why."""

    undone: tuple[Change, ...]
    commands: tuple[list[str], ...]
    left: tuple[tuple[Change, str], ...]


def plan_undo(tool: str, changes: Iterable[Change], cards: Mapping[str, Card]) -> Undo:
    """Hold the record against what the cards say now; only what is still as it was set is brought back."""
    undone: list[Change] = []
    left: list[tuple[Change, str]] = []
    back: dict[str, list[str]] = {}
    for change in changes:
        now = cards[change.device].parameters.get(change.key)
        if now is not None and now.next.text == change.before:
            undone.append(change)
            continue
        why = _obstacle(change, now)
        if why:
            left.append((change, why))
        else:
            undone.append(change)
            back.setdefault(change.device, []).append(f"{change.key}={change.before_number}")
    commands = tuple(set_command(tool, device, values) for device, values in back.items())
    return Undo(tuple(undone), commands, tuple(left))


def _obstacle(change: Change, now: Parameter | None) -> str:
    if now is None:
        return "the card no longer knows it"
    if now.next.number is not None and now.next.number != change.after:
        return f"somebody set it to {now.next.text} since"
    if change.before_number is None:
        return f"it was {change.before}, which the tool cannot set"
    return ""
