# SPDX-License-Identifier: Apache-2.0
"""A heatmap of rows by time in few fixed steps of colour, on which nothing, stale and missing differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.present.evidence.lost_time import Known
from host_ctl.present.markup import Markup, Part
from host_ctl.present.svg.canvas import Plot, axis_x, boxes, fitting, label, onset_mark, picture, text_width
from host_ctl.present.svg.legend import legend

_WIDTH, _MOST_NAME, _MARK = 760.0, 190.0, 14.0
STEPS = 6
_MANY_ROWS = 24


@dataclass(frozen=True, slots=True)
class Heat:
    """``value[row, column]`` with ``known`` beside it; column k begins at ``first + k * each``."""

    names: tuple[str, ...]
    marked: frozenset[int]
    value: NDArray[np.float64]
    known: NDArray[np.int64]
    first: int
    each: int
    until: int
    bounds: tuple[float, ...]
    steps: tuple[str, ...]


def heatmap(
    name: str, heat: Heat, title: str, description: str, axis: str, onsets: Sequence[tuple[float, str]]
) -> Markup:
    """The heatmap. Marked rows have an arrow and a frame, not only a colour."""
    rows, columns = heat.value.shape
    row_height = 18.0 if rows <= _MANY_ROWS else 13.0
    left = min(_MOST_NAME, max(text_width(n) for n in heat.names)) + _MARK + 8
    looks = [(f"heat h{k}", text) for k, text in enumerate(heat.steps)]
    for state, text in ((Known.STALE, "capture not running"), (Known.MISSING, "no capture of it")):
        if (heat.known == state).any():
            looks.append((_LOOK[state], text))
    key, key_height = legend(looks, 0, 0, _WIDTH)
    plot = Plot(left, key_height + 22, _WIDTH - left - 12, row_height * rows)
    cell = plot.width / max(1, columns)
    span = heat.until - heat.first
    parts: list[Part] = [key, *_cells(heat, plot, cell, row_height)]
    for row, full in enumerate(heat.names):
        y = plot.top + row * row_height
        marked = row in heat.marked
        if marked:
            parts.append(label(0, y + row_height / 2 + 4, "▶", "start", "accused-name"))
        kind = "accused-name" if marked else None
        parts.append(label(left - 6, y + row_height / 2 + 4, fitting(full, left - _MARK - 8), "end", kind))
    parts.append(boxes(((plot.left, plot.top + r * row_height, plot.width, row_height)
                        for r in sorted(heat.marked)), "accused-frame"))  # fmt: skip
    parts.append(axis_x(plot, heat.first, heat.until, axis))
    for at, text in onsets:
        parts.append(onset_mark(Plot(plot.left, plot.top - 12, plot.width, plot.height + 12),
                                plot.left + (at - heat.first) / (span or 1) * plot.width, text))  # fmt: skip
    return picture(name, title, description, _WIDTH, plot.bottom + 40, *parts)


_LOOK = {Known.STALE: "stale", Known.MISSING: "missing"}


def _cells(heat: Heat, plot: Plot, cell: float, row_height: float) -> list[Markup]:
    """One path for each look; neighbours of one look in a row are one box."""
    step = np.searchsorted(np.array(heat.bounds), heat.value, side="left")
    look = np.where(heat.known == Known.YES, step, STEPS + heat.known)
    shapes: dict[int, list[tuple[float, float, float, float]]] = {}
    for row in range(look.shape[0]):
        edges = np.flatnonzero(np.r_[True, look[row, 1:] != look[row, :-1], True])
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            box = (plot.left + a * cell, plot.top + row * row_height, (b - a) * cell, row_height - 1)
            shapes.setdefault(int(look[row, a]), []).append(box)
    names = {k: f"heat h{k}" for k in range(STEPS)} | {STEPS + k: v for k, v in _LOOK.items()}
    return [boxes(shapes[k], names[k]) for k in sorted(shapes)]
