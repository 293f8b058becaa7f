# SPDX-License-Identifier: Apache-2.0
"""``pulse top``: the dashboard of a controller, of captures, or of a report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_ctl.cli.server import CaFile, Certificate, ServerUrl, TokenFile, client
from host_ctl.client import DEFAULT_SERVER
from host_ctl.errors import InputError, UsageError, printable

if TYPE_CHECKING:
    from host_ctl.top.sources.source import Source

_LONGEST_S, _SHORTEST_S = 60.0, 0.1


def top(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Captures or folders of them, an exported session, or a report in JSON; "
            "without any: a controller.",
        ),
    ] = None,
    theme: Annotated[
        str | None, typer.Option(metavar="NAME", help="safe-dark, safe-light, dark, mono; or PULSE_THEME.")
    ] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Acknowledge and note nothing at the controller.")
    ] = False,
    refresh: Annotated[
        float, typer.Option(metavar="SECONDS", help="The screen changes no more often than this.")
    ] = 0.25,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Show verdict, heatmaps, NICs, blame and data quality, live or recorded; ? lists the keys."""
    _check(paths or [], theme, refresh)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        instead = "pulse analyze PATH" if paths else "pulse status"
        raise UsageError(f"pulse top needs a terminal: {instead} tells the same in lines of text")
    source = _source(paths or [], (server, token_file, ca_file, cert_file))
    # Textual takes as long to load as all the rest.
    from host_ctl.top.app import Setup, TopApp, default_theme

    plain = ascii_only or "utf" not in (sys.stdout.encoding or "").lower()
    setup = Setup(theme or default_theme(), plain, read_only, refresh)
    application = TopApp(source, setup)
    application.run()
    raise typer.Exit(application.return_code or 0)


def _check(paths: list[Path], theme: str | None, refresh: float) -> None:
    from host_ctl.top.theme import NAMES

    if theme is not None and theme not in NAMES:
        raise UsageError(f"--theme {theme}: there are {', '.join(NAMES)}")
    if not _SHORTEST_S <= refresh <= _LONGEST_S:
        raise UsageError(f"--refresh {refresh}: expected {_SHORTEST_S} to {_LONGEST_S:.0f} seconds")
    for path in paths:
        if not path.exists():
            raise InputError(f"{printable(str(path))} is not there: give captures, a folder or a report")


def _source(paths: list[Path], asked: tuple[str | None, Path | None, Path | None, Path | None]) -> Source:
    if not paths:
        from host_ctl.top.sources.live import LiveSource

        url = asked[0] or os.environ.get("PULSE_SERVER") or DEFAULT_SERVER
        return LiveSource(client(*asked), url)
    from host_ctl.top.sources.recorded import CapturesSource, ReportSource

    if len(paths) == 1 and paths[0].suffix == ".json" and paths[0].is_file():
        return ReportSource(paths[0])
    return CapturesSource(paths)
