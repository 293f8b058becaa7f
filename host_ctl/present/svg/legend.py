# SPDX-License-Identifier: Apache-2.0
"""Keys of pictures: a small box or line in the look of the data, and its name."""

from __future__ import annotations

from collections.abc import Sequence

from host_ctl.present.markup import Markup, Part, join
from host_ctl.present.svg.canvas import LINE, boxes, label, line, text_width

_BOX, _GAP = 12.0, 16.0


def legend(
    entries: Sequence[tuple[str, str]], x: float, y: float, width: float, *, lines: bool = False
) -> tuple[Markup, float]:
    """A key of (look, name) pairs from (x, y) on, wrapped to a width; and how high it is."""
    parts: list[Part] = []
    at, row = x, y
    for kind, name in entries:
        needs = _BOX + 5 + text_width(name) + _GAP
        if at > x and at + needs > x + width:
            at, row = x, row + LINE
        if lines:
            parts.append(line(at, row + 6, at + _BOX + 2, row + 6, kind))
        else:
            parts.append(boxes([(at, row, _BOX, _BOX)], f"{kind} boxed"))
        parts.append(label(at + _BOX + 5, row + 10, name))
        at += needs
    return join(parts), row + LINE - y
