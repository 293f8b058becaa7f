# SPDX-License-Identifier: Apache-2.0
"""``pulse report``: verdicts, blame and data quality of a controller or a session, once, as text or JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_ctl.cli.output import EXIT_STATUS, write
from host_ctl.cli.server import CaFile, Certificate, ServerUrl, TokenFile, client
from host_ctl.client import DEFAULT_SERVER
from host_ctl.errors import InputError, printable

if TYPE_CHECKING:
    from host_ctl.top.lines import Line
    from host_ctl.top.snapshot import Snapshot

_WIDTH, _WIDEST = 120, 160
_MOST_ROWS = 72


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Captures or folders of them, or a report in JSON; without any: a controller.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON (pulse.report/1).")] = False,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Tell once what pulse top shows: the verdict, what it rests on, who waits for it, data quality.

    Exit status: 0 nothing wrong, 3 degraded or failed, 4 not enough data to say, 2 nothing to be read.
    """
    if paths:
        snapshot = _recorded(paths)
    else:
        from host_ctl.top.sources.live import LiveSource

        url = server or os.environ.get("PULSE_SERVER") or DEFAULT_SERVER
        snapshot = LiveSource(client(server, token_file, ca_file, cert_file), url).fetch()
    if as_json:
        if not snapshot.report:
            raise InputError("the controller has analysed nothing yet: try again in some seconds")
        write(json.dumps(snapshot.report, indent=1) + "\n")
    else:
        write(_text(snapshot))
    raise typer.Exit(EXIT_STATUS[snapshot.health])


def _recorded(paths: list[Path]) -> Snapshot:
    from host_ctl.top.sources.recorded import kept, session_of

    origin = printable(" ".join(map(str, paths)))
    if len(paths) == 1 and paths[0].suffix == ".json" and paths[0].is_file():
        return kept(paths[0], origin)
    from host_ctl.pipeline import analyze_paths

    return session_of(analyze_paths(paths), origin)


def _text(snapshot: Snapshot) -> str:
    """The views that need no cursor, one below the other."""
    from host_ctl.top.glyphs import glyphs
    from host_ctl.top.lines import EMPTY
    from host_ctl.top.state import UiState
    from host_ctl.top.views import argument, blame, data, operators
    from host_ctl.top.views.strip import strip

    plain = "utf" not in (sys.stdout.encoding or "").lower()
    width = min(_WIDEST, shutil.get_terminal_size((_WIDTH, 24)).columns) if sys.stdout.isatty() else _WIDTH
    chosen, state = glyphs(ascii_only=plain), UiState(ascii=plain, selected="-")
    now_s, now_ns = time.monotonic(), time.time_ns()
    lines: list[Line] = strip(snapshot, state, width, now_s, chosen)
    for verdict in snapshot.verdicts:
        lines += [EMPTY, *argument.verdict(snapshot, verdict.id, width)]
    lines += [EMPTY, *blame.blame(snapshot, state, width, _MOST_ROWS, chosen)]
    lines += [EMPTY, *operators.operators(snapshot, state, width, _MOST_ROWS, chosen)]
    lines += [EMPTY, *data.data(snapshot, state, width, _MOST_ROWS, chosen, now_ns)]
    return _written(lines)


def _written(lines: Iterable[Line]) -> str:
    from host_ctl.top.lines import SELECTED, text_of
    from host_ctl.top.theme import style_of

    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return "".join(f"{text_of(line).rstrip()}\n" for line in lines)
    from rich.color import ColorSystem

    # Weight and reversal only: the background of the terminal is not known here.
    painted = (
        "".join(
            style_of("mono", s.role.removesuffix(SELECTED)).render(s.text, color_system=ColorSystem.STANDARD)
            for s in line
        )
        for line in lines
    )
    return "".join(f"{line}\n" for line in painted)
