# SPDX-License-Identifier: Apache-2.0
"""Curves over time, one panel above the other where several would hide each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.present.markup import Markup, Part, number, tag
from host_ctl.present.svg.canvas import Plot, axis_x, axis_y, fitting, label, onset_mark, picture

_WIDTH, _LEFT, _PANEL, _GAP = 760.0, 52.0, 58.0, 24.0


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve in equal steps; without values nothing is known of it, which is not zero."""

    name: str
    values: NDArray[np.float64]
    accused: bool


def panels(
    name: str,
    curves: Sequence[Curve],
    span: tuple[float, float],
    title: str,
    description: str,
    axes: tuple[str, str],
    onset: tuple[float, str] | None,
) -> Markup:
    """One panel for each curve on one scale, so that heights compare; ``axes`` names x and y."""
    high = max((float(c.values.max()) for c in curves if len(c.values)), default=0.0) * 1.05 or 1.0
    low, until = span
    parts: list[Part] = []
    plot = Plot(_LEFT, 24, _WIDTH - _LEFT - 12, _PANEL)
    for row, curve in enumerate(curves):
        plot = Plot(_LEFT, 24 + row * (_PANEL + _GAP), _WIDTH - _LEFT - 12, _PANEL)
        parts.append(axis_y(plot, high, axes[1] if row == 0 else "", 2))
        kind = "accused-name" if curve.accused else None
        marked = f"▶ {curve.name}" if curve.accused else curve.name
        parts.append(label(plot.right, plot.top - 6, fitting(marked, 400), "end", kind))
        if len(curve.values):
            parts.append(_area(curve, plot, high))
        else:
            parts.append(tag("rect", x=plot.left, y=plot.top, width=plot.width, height=plot.height,
                             class_="missing"))  # fmt: skip
            parts.append(label(plot.left + 8, plot.top + 20, "no capture tells", "start", "on-missing"))
    whole = Plot(_LEFT, 24, plot.width, plot.bottom - 24)
    parts.append(axis_x(whole, low, until, axes[0]))
    if onset is not None and low <= onset[0] <= until:
        x = _LEFT + (onset[0] - low) / ((until - low) or 1.0) * plot.width
        parts.append(onset_mark(whole, x, onset[1]))
    return picture(name, title, description, _WIDTH, plot.bottom + 40, *parts)


def _area(curve: Curve, plot: Plot, high: float) -> Markup:
    """The curve in steps with the area below it: what is zero for long has a line and no area."""
    step = plot.width / len(curve.values)
    heights = np.round(curve.values / high * plot.height, 1)
    edges = np.flatnonzero(np.r_[True, heights[1:] != heights[:-1], True])
    d = [f"M{number(plot.left)} {number(plot.bottom)}"]
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        d.append(f"V{number(plot.bottom - heights[a])}H{number(plot.left + b * step)}")
    d.append(f"V{number(plot.bottom)}z")
    return tag("path", d="".join(d), class_="curve accused-curve" if curve.accused else "curve")
