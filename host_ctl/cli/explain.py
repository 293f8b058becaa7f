# SPDX-License-Identifier: Apache-2.0
"""``pulse explain``: the argument of one verdict, from a report or from captures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from host_ctl.cli.output import write
from host_ctl.cli.times import parse_time
from host_ctl.errors import UsageError
from host_ctl.present.stored import read_report

_ID = re.compile(r"v[0-9]+")


def explain(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID] PATH...",
            help="A verdict such as v1 (default: the gravest), and a report in JSON, - for one on stdin, "
            "or captures.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the argument as JSON (pulse.explanation/1).")
    ] = False,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="When the captures were stopped; as pulse analyze.")
    ] = None,
) -> None:
    """Tell step by step what a verdict rests on, what else could explain it, and what would settle it."""
    from host_ctl.present.argument.steps import argue
    from host_ctl.present.argument.text import print_argument

    verdict, sources = _split(what or [])
    report = _report(sources, until)
    try:
        argument = argue(report, verdict)
    except KeyError:
        raise UsageError(f"there is no verdict {verdict}: {_there_are(report)}") from None
    if as_json:
        write(json.dumps(argument.plain(), indent=1) + "\n")
        return
    console = Console(highlight=False)
    with console.capture() as capture:
        print_argument(console, argument)
    write(capture.get())


def _split(what: list[str]) -> tuple[str | None, list[str]]:
    """The verdict's id, if the first word is one, and the paths."""
    verdict = what[0] if what and _ID.fullmatch(what[0]) and not Path(what[0]).exists() else None
    sources = what[1:] if verdict else what
    if not sources:
        raise UsageError("give a report or captures: pulse explain v1 REPORT.json, or pulse explain FOLDER")
    return verdict, sources


def _report(sources: list[str], until: str | None) -> dict[str, Any]:
    if sources == ["-"] or (len(sources) == 1 and sources[0].endswith(".json")):
        return read_report(sources[0])
    from host_ctl.pipeline import analyze_paths
    from host_ctl.present.report import report_of

    end = None if until is None else parse_time(until, "--until")
    return report_of(analyze_paths([Path(source) for source in sources], until_ns=end))


def _there_are(report: dict[str, Any]) -> str:
    names = [str(v.get("id")) for v in report["verdicts"]]
    return f"the report has {', '.join(names)}" if names else "the report has none"
