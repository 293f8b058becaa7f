# SPDX-License-Identifier: Apache-2.0
"""The characters that carry meaning: every figure that colours tell is told by a character too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from host_ctl.attribute.states import WaitState

LEVELS = (0.0, 0.005, 0.02, 0.1, 0.3)
"""Shares of an iteration at which a heatmap takes the next step: a fixed scale, so that pictures compare."""
LEVEL_TEXT = ("none", "<0.5 %", "<2 %", "<10 %", "<30 %", "more")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """``heat`` by step, ``spark`` by eighths, ``state`` by wait state; ``tree``: branch and last branch."""

    heat: tuple[str, ...]
    stale: str
    missing: str
    spark: tuple[str, ...]
    full: str
    empty: str
    state: tuple[str, ...]
    health: dict[str, str]
    tree: tuple[str, str]
    up: str
    down: str
    here: str
    accused: str
    possible: str
    dot: str
    plus_minus: str
    ellipsis: str
    rule: str


UNICODE = Glyphs(
    heat=("·", "▁", "▂", "▄", "▆", "█"),
    stale="╌",
    missing="\u2573",
    spark=(" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"),
    full="█",
    empty="·",
    state=("━", "█", "▒", "░", "▓", "\u2573", "≈", "·", "?"),
    health={"ok": "●", "degraded": "▲", "failed": "■", "unsure": "?", "loading": "○"},
    tree=("├─ ", "└─ "),
    up="▲",
    down="▼",
    here="▲",
    accused="▶",
    possible="▷",
    dot="·",
    plus_minus="±",
    ellipsis="…",
    rule="─",
)
ASCII = Glyphs(
    heat=(".", ":", "-", "=", "#", "@"),
    stale="~",
    missing="x",
    spark=(" ", ".", ".", ":", "-", "=", "+", "#", "@"),
    full="#",
    empty=".",
    state=("=", "N", "C", "-", "S", "x", "~", ".", "?"),
    health={"ok": "*", "degraded": "!", "failed": "X", "unsure": "?", "loading": "o"},
    tree=("|- ", "`- "),
    up="^",
    down="v",
    here="^",
    accused=">",
    possible="?",
    dot=".",
    plus_minus="+/-",
    ellipsis="...",
    rule="-",
)

STATE_TEXT = {
    WaitState.NOT_STARTED: "not started, could",
    WaitState.WAIT_SENDER: "stalled, could send",
    WaitState.WAIT_CREDIT: "waits for credit",
    WaitState.REPAIR: "sends again",
    WaitState.PACED: "congested",
    WaitState.TRANSFER: "under way",
    WaitState.WAIT_UPSTREAM: "waits for input",
    WaitState.UNKNOWN: "unknown",
    WaitState.COMPLETE: "done, others not",
}
"""In the order in which bars stack them: what a NIC itself is charged with comes first."""

HEALTH_WORD = {
    "ok": "OK", "degraded": "DEGRADED", "failed": "FAILED", "unsure": "UNSURE", "loading": "LOADING",
}  # fmt: skip


def glyphs(*, ascii_only: bool) -> Glyphs:
    """The set to use."""
    return ASCII if ascii_only else UNICODE


def level(share: float) -> int:
    """The step of a share of an iteration: 0 for nothing, 5 for the most."""
    return sum(share > bound for bound in LEVELS)


def spark(values: Sequence[float], most: float, chosen: Glyphs) -> str:
    """Values as columns of a line, the highest as high as ``most``."""
    steps = len(chosen.spark) - 1
    scale = steps / most if most > 0 else 0.0
    return "".join(chosen.spark[0 if v <= 0 else max(1, min(steps, round(v * scale)))] for v in values)


def bar(share: float, width: int, chosen: Glyphs) -> str:
    """A bar of a share of a width; anything above zero shows."""
    filled = 0 if share <= 0 else max(1, min(width, round(share * width)))
    return chosen.full * filled + " " * (width - filled)
