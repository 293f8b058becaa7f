# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of ``pulse`` and their exit statuses."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from host_ctl.cli.engine import Analysis, analyze_paths
from host_ctl.errors import PulseError, UsageError
from host_ctl.present.report import build_report
from host_ctl.present.text import print_report

EXIT_STATUS = {"ok": 0, "degraded": 3, "failed": 3, "unsure": 4}

app = typer.Typer(
    help="Find the slow or dead machine of a distributed training job from its RDMA traffic alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


@app.callback()
def _root() -> None:
    """Find the slow or dead machine of a distributed training job from its RDMA traffic alone."""


@app.command()
def analyze(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATH...", help="Captures or folders of them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (pulse.report/1).")] = False,
    nic: Annotated[
        list[str] | None,
        typer.Option("--nic", metavar="MACHINE/NIC=PATH", help="Say whose capture a file is; may be repeated."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Until when the captures ran: ISO 8601 or ns of their clock. Lets silence count as evidence.",
        ),
    ] = None,
) -> None:
    """Analyse captures: who slows or stops the job, since when, at what cost, on which evidence.

    Exit status: 0 nothing wrong, 3 degraded or failed, 4 not enough data to say, 2 wrong usage or input.
    """
    named = dict(_named(item) for item in nic or [])
    if not paths and not named:
        raise UsageError("give at least one capture file or folder, or --nic MACHINE/NIC=PATH")
    analysis = analyze_paths(paths or [], named, _until(until))
    raise typer.Exit(show(analysis, as_json=as_json))


def show(analysis: Analysis, *, as_json: bool) -> int:
    """Print an analysis and return the exit status."""
    content: dict[str, Any] = {
        "health": analysis.health,
        "series": analysis.series,
        "alignment": analysis.alignment,
        "traffic": analysis.traffic,
        "jobs": [one.job for one in analysis.jobs],
        "verdicts": analysis.verdicts,
        "missing": analysis.missing,
        "warnings": analysis.warnings,
    }
    if as_json:
        print(json.dumps(build_report(**content), indent=1))
    else:
        print_report(Console(highlight=False), **content)
    return EXIT_STATUS[analysis.health]


@app.command()
def demo(
    fault: Annotated[str, typer.Option(help="Scenario to simulate, see `python -m sim list`.")] = "dp-slow-compute",
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Folder in which to keep the captures.")] = None,
) -> None:
    """Simulate a small training job with one fault, write its captures, and analyse them."""
    from sim.run import run_scenario
    from sim.scenarios import build

    with tempfile.TemporaryDirectory(prefix="pulse-demo-") as scratch:
        out = keep or Path(scratch)
        truth = run_scenario(build(fault, seed), out)
        analysis = analyze_paths([out], until_ns=truth.end_ns)
        show(analysis, as_json=False)


def _named(item: str) -> tuple[str, Path]:
    name, equals, path = item.partition("=")
    if not equals or not name or not path:
        raise UsageError(f"--nic {item}: expected MACHINE/NIC=PATH")
    return name, Path(path)


def _until(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until {text}: expected ISO 8601 or integer nanoseconds") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp()) * 1_000_000_000 + when.microsecond * 1000


def run() -> None:
    """Run the command line; errors of the user take one line on stderr."""
    try:
        app(standalone_mode=True)
    except PulseError as error:
        print(f"pulse: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
