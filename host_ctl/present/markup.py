# SPDX-License-Identifier: Apache-2.0
"""HTML and SVG as text in which nothing that comes from a capture can be anything but text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from host_ctl.errors import printable

_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is markup already. Everything else is escaped where it is put in."""

    __slots__ = ()


Part = str | Markup | int | float | None


def text(content: Part) -> Markup:
    """Text as markup: escaped, and without characters that are not visible or turn the direction of text."""
    if isinstance(content, Markup):
        return content
    return Markup("" if content is None else escape(printable(str(content)), quote=True))


def join(parts: Iterable[Part]) -> Markup:
    """Parts one after the other."""
    return Markup("".join(text(part) for part in parts))


def tag(name: str, *children: Part, **attributes: str | float | bool | None) -> Markup:
    """An element. ``class_`` is class, other underscores are hyphens; None and False leave one out."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = _attribute(key)
        written.append(f" {label}" if value is True else f' {label}="{_value(value)}"')
    opened = f"<{name}{''.join(written)}>"
    return Markup(opened if name in _VOID else f"{opened}{join(children)}</{name}>")


def _attribute(key: str) -> str:
    if key in ("viewBox", "patternUnits", "patternTransform"):
        return key
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    if isinstance(value, float):
        return number(value)
    return text(value)


def number(value: float) -> str:
    """A coordinate as short as it is exact enough: tenths of a unit."""
    return f"{value:.1f}".removesuffix(".0")
