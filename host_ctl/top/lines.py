# SPDX-License-Identifier: Apache-2.0
"""Lines of text in roles: what views are made of, before anything knows of colours or terminals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size

SELECTED = "+sel"
"""Ends the role of what lies under the cursor."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line. ``role`` says what it is, not how it looks; ``target`` what a click on it means."""

    text: str
    role: str = ""
    target: str = ""


Line = tuple[Span, ...]
EMPTY: Line = ()


def line(*parts: Span | str) -> Line:
    """A line of spans and plain text."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def text_of(content: Line) -> str:
    """The text alone."""
    return "".join(span.text for span in content)


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """Text of at most a width; what is too long loses its middle, for names tend to differ at their ends."""
    if cell_len(text) <= width:
        return text
    mark = ellipsis if width > 3 * len(ellipsis) else ""
    tail = (width - len(mark)) // 2
    head = width - len(mark) - tail
    end = text[-tail:] if tail else ""
    while cell_len(end) > tail:
        end = end[1:]
    return set_cell_size(text, head) + mark + end


def fit(text: str, width: int, ellipsis: str = "…", *, right: bool = False) -> str:
    """Text of exactly a width."""
    short = cut(text, width, ellipsis)
    space = " " * (width - cell_len(short))
    return space + short if right else short + space


def length(content: Line) -> int:
    """How many columns a line takes."""
    return sum(cell_len(span.text) for span in content)


def clip(content: Line, width: int) -> Line:
    """A line of exactly a width."""
    out: list[Span] = []
    left = width
    for span in content:
        size = cell_len(span.text)
        if size > left:
            out.append(replace(span, text=set_cell_size(span.text, left)))
            return tuple(out)
        out.append(span)
        left -= size
    if left:
        out.append(Span(" " * left, out[-1].role if out and out[-1].role.startswith("strip") else ""))
    return tuple(out)


def apart(left: Line, right: Line, width: int) -> Line:
    """Two pieces at either end of a line; where there is no room the left one is cut."""
    room = width - length(right) - 1
    if room < 1:
        return clip(left, width)
    return (*clip(left, room), Span(" "), *right)


def wrap(text: str, width: int, most: int = 1000) -> list[str]:
    """Text in lines of at most a width, broken between words where that goes."""
    lines: list[str] = []
    current = ""
    for whole in text.split():
        word = whole
        while word:
            joined = f"{current} {word}" if current else word
            if cell_len(joined) <= width:
                current, word = joined, ""
            elif current:
                lines.append(current)
                current = ""
            else:
                taken = set_cell_size(word, max(1, width)).rstrip() or word[0]
                lines.append(taken)
                word = word[len(taken) :]
    lines += [current] if current else []
    if len(lines) > most:
        rest = " ".join(lines[most - 1 :])
        lines = [*lines[: most - 1], set_cell_size(rest, width - 3).rstrip() + "..."]
    return lines


def paragraph(text: str, width: int, role: str = "", indent: str = "") -> list[Line]:
    """A wrapped paragraph."""
    return [(Span(indent + each, role),) for each in wrap(text, width - len(indent))]


def selected(content: Line, width: int) -> Line:
    """The line as it is under the cursor."""
    return tuple(replace(span, role=span.role + SELECTED) for span in clip(content, width))


def aimed(content: Line, target: str) -> Line:
    """The line with a meaning for clicks wherever it has none of its own."""
    return tuple(span if span.target else replace(span, target=target) for span in content)


def ascii_only(content: Line) -> Line:
    """What a terminal without Unicode can show: other characters become question marks."""
    if all(span.text.isascii() for span in content):
        return content
    return tuple(_ascii(span) for span in content)


def _ascii(span: Span) -> Span:
    text = "".join(c if c.isascii() else "?" * max(1, cell_len(c)) for c in span.text)
    return replace(span, text=text)


def visible(count: int, cursor: int, height: int) -> range:
    """Which of many rows are on a screen of a height when one of them must be, as near its middle as goes."""
    first = max(0, min(cursor - height // 2, count - height))
    return range(first, min(count, first + height))


def scrolled(content: Sequence[Line], offset: int, height: int) -> list[Line]:
    """The part of a long text that is on the screen."""
    first = max(0, min(offset, len(content) - height))
    return list(content[first : first + height])
