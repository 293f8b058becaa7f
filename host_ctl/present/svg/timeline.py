# SPDX-License-Identifier: Apache-2.0
"""A timeline of one iteration: a row for each NIC, its states as boxes, its operators as brackets above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from host_ctl.present.markup import Markup, Part, tag
from host_ctl.present.svg.canvas import Plot, axis_x, boxes, fitting, label, picture, text_width

_WIDTH, _MOST_NAME, _ROW, _BRACKET = 520.0, 130.0, 20.0, 4.0


@dataclass(frozen=True, slots=True)
class Track:
    """One row: ``runs`` are (begin, end, look) and ``operators`` (begin, end), as shares of the whole span.

    Without ``known`` no capture tells anything of the row.
    """

    name: str
    accused: bool
    runs: tuple[tuple[float, float, str], ...]
    operators: tuple[tuple[float, float], ...]
    known: bool


def timeline(
    name: str, tracks: Sequence[Track], span_ms: float, title: str, description: str, axis: str
) -> Markup:
    """The tracks below each other on one axis in ms."""
    widest = max((text_width(track.name) for track in tracks), default=0.0) + 16
    left = min(_MOST_NAME, widest) + 6
    plot = Plot(left, 6, _WIDTH - left - 12, _ROW * len(tracks))
    shapes: dict[str, list[tuple[float, float, float, float]]] = {}
    brackets: list[tuple[float, float, float, float]] = []
    parts: list[Part] = []
    for number, track in enumerate(tracks):
        y = plot.top + number * _ROW
        shown = f"▶ {track.name}" if track.accused else track.name
        kind = "accused-name" if track.accused else None
        parts.append(label(left - 6, y + 15, fitting(shown, left - 6), "end", kind))
        if not track.known:
            parts.append(
                tag("rect", x=plot.left, y=y + 4, width=plot.width, height=_ROW - 6, class_="missing")
            )
        for begin, end, look in track.runs:
            box = (plot.left + begin * plot.width, y + 6, max(0.4, (end - begin) * plot.width), _ROW - 9)
            shapes.setdefault(look, []).append(box)
        for begin, end in track.operators:
            width = max(1.0, (end - begin) * plot.width - 0.6)
            brackets.append((plot.left + begin * plot.width, y + 2, width, _BRACKET - 1))
    parts += [boxes(shapes[look], look) for look in sorted(shapes)]
    parts.append(boxes(brackets, "operator"))
    parts.append(axis_x(plot, 0, span_ms, axis, 5))
    return picture(name, title, description, _WIDTH, plot.bottom + 40, *parts)
