# SPDX-License-Identifier: Apache-2.0
"""The widget that shows lines; it paints again only those that have changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from host_ctl.top.lines import Line
from host_ctl.top.theme import style_of


class Canvas(Widget):
    """Lines of spans over the whole screen."""

    can_focus = True
    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    class Clicked(Message):
        """A click on something with a meaning."""

        def __init__(self, target: str) -> None:
            super().__init__()
            self.target = target

    class Resized(Message):
        """The canvas has another size now."""

    class Turned(Message):
        """The mouse wheel, by so many lines."""

        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

    def __init__(self, theme: str) -> None:
        super().__init__()
        self._theme = theme
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line], theme: str) -> int:
        """Show lines; returns how many of them had changed."""
        before, self._lines = self._lines, list(lines)
        if theme != self._theme or len(before) != len(self._lines):
            self._theme = theme
            self.refresh()
            return len(self._lines)
        changed = [y for y, (a, b) in enumerate(zip(before, self._lines, strict=True)) if a != b]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))
        return len(changed)

    def render_line(self, y: int) -> Strip:
        """One line in the colours of the theme."""
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, style_of(self._theme, ""))
        segments = [Segment(span.text, style_of(self._theme, span.role)) for span in self._lines[y]]
        return Strip(segments).adjust_cell_length(width, style_of(self._theme, ""))

    def on_resize(self) -> None:
        """Another size is another frame."""
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        """Find what is under the mouse."""
        if not 0 <= event.y < len(self._lines):
            return
        at = 0
        for span in self._lines[event.y]:
            at += Segment(span.text).cell_length
            if event.x < at:
                if span.target:
                    self.post_message(self.Clicked(span.target))
                return

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves the cursor."""
        self.post_message(self.Turned(1))

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves the cursor."""
        self.post_message(self.Turned(-1))
