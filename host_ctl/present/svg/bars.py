# SPDX-License-Identifier: Apache-2.0
"""Bars: columns over iterations, stacked shares by row, and single values by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.present.markup import Markup, Part
from host_ctl.present.svg.canvas import (
    Plot,
    axis_x,
    axis_y,
    boxes,
    fitting,
    label,
    onset_mark,
    picture,
    text_width,
)
from host_ctl.present.svg.legend import legend

_WIDTH, _MOST_NAME, _ROW = 760.0, 220.0, 20.0


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a bar chart; parts follow each other from the left."""

    name: str
    parts: tuple[float, ...]
    accused: bool
    text: str


def columns(
    name: str,
    values: NDArray[np.float64],
    marked: frozenset[int],
    title: str,
    description: str,
    axes: tuple[str, str],
    onsets: Sequence[tuple[float, str]],
) -> Markup:
    """A column per iteration; marked ones stand out by their look as well."""
    plot = Plot(52, 26, _WIDTH - 64, 130)
    high = float(values.max(initial=0.0)) * 1.05 or 1.0
    width = plot.width / max(1, len(values))
    gap = 1.0 if width > 3 else 0.0
    shapes: dict[bool, list[tuple[float, float, float, float]]] = {True: [], False: []}
    for k, value in enumerate(values.tolist()):
        height = value / high * plot.height
        shapes[k in marked].append((plot.left + k * width, plot.bottom - height, width - gap, height))
    parts: list[Part] = [axis_y(plot, high, axes[1])]
    parts += [boxes(shapes[False], "column"), boxes(shapes[True], "column shown")]
    parts.append(axis_x(plot, 0, len(values), axes[0]))
    parts += [onset_mark(plot, plot.left + at * width, text) for at, text in onsets]
    return picture(name, title, description, _WIDTH, plot.bottom + 40, *parts)


def rows(
    name: str,
    entries: Sequence[Row],
    looks: Sequence[tuple[str, str]],
    title: str,
    description: str,
    most: float | None = None,
) -> Markup:
    """Stacked bars by row with a text behind each. ``looks`` are (look, name) of the parts in order.

    ``most`` is the length of a full bar; without it the longest row's.
    """
    widest = max((text_width(row.name) for row in entries), default=0.0) + 16
    left = min(_MOST_NAME, widest) + 8
    tail = max((text_width(row.text) for row in entries), default=0.0) + 10
    key, key_height = legend(looks, 0, 0, _WIDTH) if len(looks) > 1 else (Markup(""), 0.0)
    plot = Plot(left, key_height + 8, max(60.0, _WIDTH - left - tail), _ROW * len(entries))
    full = most or max((sum(row.parts) for row in entries), default=0.0) or 1.0
    shapes: list[list[tuple[float, float, float, float]]] = [[] for _ in looks]
    parts: list[Part] = [key]
    for number, row in enumerate(entries):
        y, x = plot.top + number * _ROW, plot.left
        for k, value in enumerate(row.parts):
            width = value / full * plot.width
            if width > 0.05:
                shapes[k].append((x, y + 2, width, _ROW - 5))
            x += width
        shown = f"▶ {row.name}" if row.accused else row.name
        kind = "accused-name" if row.accused else None
        parts.append(label(left - 6, y + 14, fitting(shown, left - 8), "end", kind))
        parts.append(label(x + 6, y + 14, row.text, "start", "soft"))
    parts += [boxes(shape, look) for shape, (look, _) in zip(shapes, looks, strict=True)]
    return picture(name, title, description, _WIDTH, plot.bottom + 8, *parts)
