# SPDX-License-Identifier: Apache-2.0
"""A picture: its frame with a text alternative, axes, and paths that hold many shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from host_ctl.present.markup import Markup, Part, join, number, tag

LINE = 17.0
"""Height of a line of labels; text is 12 units high (html/style.css)."""
_CHARACTER = 6.4  # width of a character, on average
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Plot:
    """The part of a picture that data are drawn in, in the picture's units."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height


def picture(name: str, title: str, description: str, width: float, height: float, *parts: Part) -> Markup:
    """An SVG picture with its text alternative. ``name`` must be unique in the page."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-t"),
        tag("desc", description, id=f"{name}-d"),
        *parts,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


def label(x: float, y: float, content: str, anchor: str = "start", kind: str | None = None) -> Markup:
    """A piece of text; ``anchor`` is start, middle or end."""
    return tag("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=kind)


def fitting(content: str, width: float) -> str:
    """Text cut in its middle so that it fits: names tend to differ at their ends."""
    most = max(3, int(width / _CHARACTER))
    if len(content) <= most:
        return content
    head = (most - 1) // 2
    return content[:head] + _ELLIPSIS + content[len(content) - (most - 1 - head) :]


def text_width(content: str) -> float:
    """How wide a piece of text is, roughly."""
    return len(content) * _CHARACTER


def boxes(shapes: Iterable[tuple[float, float, float, float]], kind: str) -> Markup:
    """Rectangles (x, y, width, height) of one look as one path."""
    d = "".join(f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z" for x, y, w, h in shapes)
    return tag("path", d=d, class_=kind) if d else Markup("")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return tag("path", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", class_=kind)


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values inside of a range, at most as many as asked for."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_text(value: float, step: float) -> str:
    """A tick's value with the places that its step needs."""
    places = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return f"{value:,.{places}f}"


def axis_x(plot: Plot, low: float, high: float, title: str, most: int = 8) -> Markup:
    """Ticks and title below a plot."""
    ticks = nice_ticks(low, high, most)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    parts: list[Part] = [line(plot.left, plot.bottom, plot.right, plot.bottom, "axis")]
    for value in ticks:
        x = plot.left + (value - low) / ((high - low) or 1.0) * plot.width
        parts.append(line(x, plot.bottom, x, plot.bottom + 4, "axis"))
        parts.append(label(x, plot.bottom + LINE, tick_text(value, step), "middle", "soft"))
    parts.append(label(plot.left + plot.width / 2, plot.bottom + 2 * LINE + 2, title, "middle", "soft"))
    return join(parts)


def axis_y(plot: Plot, high: float, title: str, most: int = 4) -> Markup:
    """Ticks and grid from zero up, the title above."""
    ticks = nice_ticks(0.0, high, most)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    parts: list[Part] = [label(0, plot.top - 8, title, "start", "soft")]
    for value in ticks:
        y = plot.bottom - value / (high or 1.0) * plot.height
        parts.append(line(plot.left, y, plot.right, y, "grid"))
        parts.append(label(plot.left - 6, y + 4, tick_text(value, step), "end", "soft"))
    return join(parts)


def onset_mark(plot: Plot, x: float, content: str) -> Markup:
    """A dashed line where something begins, with its name on whichever side there is room."""
    inside = x + 4 + text_width(content) < plot.right
    where = (x + 4, "start") if inside else (x - 4, "end")
    return join(
        (
            line(x, plot.top - 4, x, plot.bottom, "onset"),
            label(where[0], plot.top + 6, content, where[1], "onset-name"),
        )
    )
