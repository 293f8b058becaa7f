# SPDX-License-Identifier: Apache-2.0
"""An argument for people at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from host_ctl.errors import printable
from host_ctl.present.argument.steps import Argument, Step


def print_argument(console: Console, argument: Argument) -> None:
    """Print the claim, then each question with its answers and figures."""
    name = f"{argument.verdict}  " if argument.verdict else ""
    console.print(f"[bold]{name}[/]{_safe(argument.claim)}", soft_wrap=True)
    for number, step in enumerate(argument.steps, 1):
        console.print(f"\n[bold]{number}. {_safe(step.question)}[/]")
        for answer in step.answers:
            console.print(Padding(_safe(answer), (0, 0, 0, 3)))
        if step.figures:
            console.print(Padding(_figures(step), (0, 0, 0, 3)))


def _figures(step: Step) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("norm", justify="right", no_wrap=True)
    table.add_column("what it measures, and the norm")
    for figure in step.figures:
        meaning = f"{figure.text}; norm: {figure.against}"
        table.add_row(_safe(figure.name), _safe(figure.value), _safe(figure.norm or "-"), _safe(meaning))
    return table


def _safe(text: str) -> str:
    return escape(printable(text))
