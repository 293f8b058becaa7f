# SPDX-License-Identifier: Apache-2.0
"""Pieces that pages are made of: tables with headers, figures with a text alternative, lists of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from host_ctl.present.markup import Markup, Part, join, tag


def scroll(content: Part, name: str) -> Markup:
    """What may be wider than a phone scrolls by itself, with the keyboard as well."""
    return tag("div", content, class_="scroll", role="region", aria_label=name, tabindex="0")


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[Part]], numbers: Sequence[int] = ()
) -> Markup:
    """A table whose first column names its rows; ``numbers`` are the columns of figures."""

    def kind(column: int) -> str | None:
        return "n" if column in numbers else None

    top = tag("tr", *(tag("th", text, scope="col", class_=kind(k)) for k, text in enumerate(head)))
    body = [
        tag(
            "tr",
            *(
                tag("td", part, class_=kind(k)) if k else tag("th", part, scope="row")
                for k, part in enumerate(row)
            ),
        )
        for row in rows
    ]
    content = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))
    return scroll(content, caption)


def figure(title: str, caption: Part, content: Part, *more: Part) -> Markup:
    """A picture below what it shows and how it is to be read, and figures in words behind it."""
    head = tag("figcaption", tag("strong", title), tag("span", caption, class_="soft"))
    return tag("figure", head, content, *more)


def details(summary: str, *content: Part) -> Markup:
    """Something that only who wants it has to see."""
    return tag("details", tag("summary", summary), *content)


def facts(items: Iterable[tuple[str, str, str]]) -> Markup:
    """Boxes of (name, value, remark)."""
    boxes = [
        tag("div", tag("dt", name), tag("dd", value, tag("small", remark) if remark else None))
        for name, value, remark in items
    ]
    return tag("dl", *boxes, class_="facts")


def bullets(items: Iterable[Part]) -> Markup:
    """A list of remarks."""
    return tag("ul", *(tag("li", item) for item in items))


def section(name: str, heading: str, *content: Part) -> Markup:
    """A part of the page under a heading of the second level."""
    return tag(
        "section", tag("h2", heading, id=f"{name}-h"), join(content), aria_labelledby=f"{name}-h", id=name
    )
