# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of ``pulse`` and their exit statuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from host_ctl.cli.bench import bench_app
from host_ctl.cli.certs import certs_app
from host_ctl.cli.controller import controller, export
from host_ctl.cli.demo.command import demo
from host_ctl.cli.explain import explain
from host_ctl.cli.extra import Extra
from host_ctl.cli.incidents import incidents_app
from host_ctl.cli.output import EXIT_STATUS, write
from host_ctl.cli.replay import replay_session
from host_ctl.cli.report import report
from host_ctl.cli.sim import sim_app
from host_ctl.cli.sim_more import live, replay
from host_ctl.cli.status import status, verdicts
from host_ctl.cli.times import parse_time
from host_ctl.cli.top import top
from host_ctl.errors import PulseError, UsageError, printable

if TYPE_CHECKING:
    from host_ctl.pipeline import Analysis

_INTERRUPTED = 130
# By version typer brings its own click or uses the package; errors of the command line share this base.
_CommandLineError: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)

app = typer.Typer(
    help="Find the slow or dead machine of a distributed training job from its RDMA traffic alone.",
    pretty_exceptions_enable=False,
    add_completion=True,
)
sim_app.command("replay")(replay)
sim_app.command("live")(live)
app.add_typer(sim_app, name="sim")
app.add_typer(bench_app, name="bench")
app.add_typer(certs_app, name="certs")
app.command("controller")(controller)
app.command("export")(export)
app.command("status")(status)
app.command("verdicts")(verdicts)
app.add_typer(incidents_app, name="incidents")
app.command("demo")(demo)
app.command("replay")(replay_session)
app.command("explain")(explain)
app.command("report")(report)
app.command("top")(top)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Find the slow or dead machine of a distributed training job from its RDMA traffic alone."""
    if context.invoked_subcommand is None:
        raise UsageError("give a command, for example pulse analyze FOLDER; pulse --help lists them all")


@app.command()
def analyze(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Captures or folders of them.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON (pulse.report/1).")
    ] = False,
    nic: Annotated[
        list[str] | None,
        typer.Option(
            "--nic", metavar="MACHINE/NIC=PATH", help="Say whose capture a file is; may be repeated."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the captures were stopped, ISO 8601 or ns of their clock: silence then counts.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the report with pictures as one HTML page as well."),
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace around the onset as well.")
    ] = None,
    perfetto_window: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How much of the time the trace holds.", show_default=False),
    ] = None,
) -> None:
    """Analyse captures: who slows or stops the job, since when, at what cost, on which evidence.

    Exit status: 0 nothing wrong, 3 degraded or failed, 4 not enough data to say, 2 wrong usage or input.
    """
    # The analysis takes most of the time of starting; a service that comes back need not wait for it.
    from host_ctl.pipeline import analyze_paths

    named = _named(nic or [])
    extra = Extra(html, perfetto, perfetto_window)
    extra.check()
    if not paths and not named:
        raise UsageError("give at least one capture file or folder, or --nic MACHINE/NIC=PATH")
    analysis = analyze_paths(paths or [], named, None if until is None else parse_time(until, "--until"))
    extra.write(analysis, sys.argv)
    raise typer.Exit(show(analysis, as_json=as_json))


def show(analysis: Analysis, *, as_json: bool) -> int:
    """Print an analysis and return the exit status, which is the same whoever reads the report."""
    from host_ctl.present.report import build_report
    from host_ctl.present.text import print_report

    content: dict[str, Any] = {
        "health": analysis.health,
        "series": analysis.series,
        "alignment": analysis.alignment,
        "traffic": analysis.traffic,
        "jobs": [one.job for one in analysis.jobs],
        "kinds": [one.kinds for one in analysis.jobs],
        "dimensions": [one.dimensions for one in analysis.jobs],
        "verdicts": analysis.verdicts,
        "missing": analysis.missing,
        "warnings": analysis.warnings,
    }
    if as_json:
        text = json.dumps(build_report(**content), indent=1) + "\n"
    else:
        console = Console(highlight=False)
        with console.capture() as capture:
            print_report(console, **content)
        text = capture.get()
    write(text)
    return EXIT_STATUS[analysis.health]


def _named(items: list[str]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for item in items:
        name, equals, path = item.partition("=")
        machine, slash, nic = name.partition("/")
        if not equals or not machine or not path or (slash and not nic):
            raise UsageError(f"--nic {item}: expected MACHINE/NIC=PATH")
        if name in named:
            raise UsageError(f"--nic {name} is given twice: name rotated parts in a pulse.toml instead")
        named[name] = Path(path)
    return named


def run() -> None:
    """Run the command line; errors of the user take one line on stderr."""
    try:
        status = app(standalone_mode=False)
    except PulseError as error:
        _fail(str(error), error.exit_code)
    except _CommandLineError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        _fail(f"{message} (pulse --help tells how to use it)", UsageError.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", _INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> NoReturn:
    print(f"pulse: {printable(message)}", file=sys.stderr)
    sys.exit(status)
