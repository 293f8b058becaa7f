# SPDX-License-Identifier: Apache-2.0
"""Colours of roles. What they tell is told by characters as well, so that any of them may be left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rich.style import Style

from host_ctl.top.lines import SELECTED


@dataclass(frozen=True, slots=True)
class Theme:
    """``roles`` by name as rich styles; ``base`` is the theme of Textual for prompts and palette."""

    name: str
    base: str
    background: str
    foreground: str
    chosen: str
    roles: dict[str, str]


# Distinguishable with any kind of colour blindness: the colours of Okabe and Ito, and steps from blue over
# grey to yellow and vermilion that differ in lightness as well.
_SAFE_DARK = {
    "strip-ok": "#d9f2ea on #0b3d2e", "strip-ok-word": "bold #00140d on #2bc49a",
    "strip-degraded": "#ffe9c2 on #4a3200", "strip-degraded-word": "bold #1f1400 on #e69f00",
    "strip-failed": "#ffe0d1 on #591f00", "strip-failed-word": "bold #ffffff on #d55e00",
    "strip-unsure": "#f3dcea on #46203a", "strip-unsure-word": "bold #21091a on #cc79a7",
    "strip-loading": "#d5e6f5 on #10324d", "strip-loading-word": "bold #06131d on #56b4e9",
    "facts": "#c9ced6", "alarm": "bold #ffffff on #a33c00", "warn": "#f0c040", "bad": "bold #ff8c42",
    "good": "#2bc49a", "dim": "#8b94a3", "head": "bold #e8ecf2", "accused": "bold #ffb000",
    "tab": "#aab2bf on #1d2530", "tab-on": "bold #06131d on #56b4e9", "key": "bold #56b4e9",
    "note": "bold #f0e442", "spark": "#56b4e9", "cursor": "bold #f0e442", "stale": "#8b94a3 italic",
    "missing": "#6f5f7f",
    "heat0": "#3c4654", "heat1": "#44628c", "heat2": "#5f86a8", "heat3": "#b9a85f", "heat4": "#f0c430",
    "heat5": "#ff6a13",
    "state0": "#56b4e9", "state1": "#ff6a13", "state2": "#cc79a7", "state3": "#5d6a7a", "state4": "#e69f00",
    "state5": "#f0e442", "state6": "#009e73", "state7": "#3c4654", "state8": "#8b94a3",
}  # fmt: skip
_DARK = _SAFE_DARK | {
    "strip-ok": "#d6f5d6 on #0d3b12", "strip-ok-word": "bold #001a03 on #3fb950",
    "strip-degraded": "#fff1c2 on #4d3c00", "strip-degraded-word": "bold #1f1800 on #e3b341",
    "strip-failed": "#ffd9d6 on #5a0d0a", "strip-failed-word": "bold #ffffff on #da3633",
    "good": "#3fb950", "bad": "bold #ff6b63", "alarm": "bold #ffffff on #a11510",
    "heat3": "#d2b13c", "heat4": "#f0883e", "heat5": "#f85149", "state1": "#f85149",
}  # fmt: skip
_SAFE_LIGHT = {
    "strip-ok": "#04382a on #d3f0e6", "strip-ok-word": "bold #ffffff on #00745a",
    "strip-degraded": "#422c00 on #ffe8b8", "strip-degraded-word": "bold #1f1400 on #e69f00",
    "strip-failed": "#521c00 on #ffdcc7", "strip-failed-word": "bold #ffffff on #b34700",
    "strip-unsure": "#4a1338 on #f7dcec", "strip-unsure-word": "bold #ffffff on #9c3f74",
    "strip-loading": "#0b2d47 on #d3e9f9", "strip-loading-word": "bold #ffffff on #0072b2",
    "facts": "#333a44", "alarm": "bold #ffffff on #a33c00", "warn": "#7a5600", "bad": "bold #a83c00",
    "good": "#00664f", "dim": "#5b6470", "head": "bold #10151c", "accused": "bold #a83c00",
    "tab": "#333a44 on #e3e8ee", "tab-on": "bold #ffffff on #0072b2", "key": "bold #005f96",
    "note": "bold #7a3f00", "spark": "#0072b2", "cursor": "bold #7a3f00", "stale": "#5b6470 italic",
    "missing": "#84708f",
    "heat0": "#b3bcc7", "heat1": "#8fa8c9", "heat2": "#5c83ad", "heat3": "#a08a28", "heat4": "#b87700",
    "heat5": "#b33900",
    "state0": "#0072b2", "state1": "#b33900", "state2": "#9c3f74", "state3": "#9aa4b0", "state4": "#b87700",
    "state5": "#6b6000", "state6": "#00745a", "state7": "#c3cbd4", "state8": "#5b6470",
}  # fmt: skip
# Without colours: weight and reversal only, in whatever the terminal has.
_BOLD = ("head", "accused", "bad", "key", "note", "cursor", "heat4", "heat5", "state1", "state4")
_REVERSE = ("strip-ok", "strip-degraded", "strip-failed", "strip-unsure", "strip-loading")
_MONO = (
    dict.fromkeys(_BOLD, "bold")
    | dict.fromkeys((f"{role}-word" for role in _REVERSE), "bold reverse")
    | {"alarm": "bold reverse", "tab-on": "reverse", "stale": "dim", "missing": "dim", "heat0": "dim"}
)

THEMES = (
    Theme("safe-dark", "textual-dark", "#0e141b", "#d5dbe3", "on #26384d", _SAFE_DARK),
    Theme("safe-light", "textual-light", "#fbfcfd", "#1b222b", "on #cfe3f3", _SAFE_LIGHT),
    Theme("dark", "textual-dark", "#0d1117", "#d5dbe3", "on #26384d", _DARK),
    Theme("mono", "ansi-dark", "ansi_default", "ansi_default", "reverse", _MONO),
)
NAMES = tuple(theme.name for theme in THEMES)


def theme_of(name: str) -> Theme:
    """The theme of a name; the first where there is none of that name."""
    return next((theme for theme in THEMES if theme.name == name), THEMES[0])


@lru_cache(maxsize=512)
def style_of(theme: str, role: str) -> Style:
    """How a role looks in a theme; what is under the cursor has its background changed."""
    chosen = theme_of(theme)
    base = role.removesuffix(SELECTED)
    style = Style.parse(chosen.roles.get(base, "") or "none")
    if chosen.background != "ansi_default":
        style = Style.parse(f"{chosen.foreground} on {chosen.background}") + style
    if role != base:
        style += Style.parse(chosen.chosen)
    return style
