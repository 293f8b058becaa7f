# SPDX-License-Identifier: Apache-2.0
"""``pulse bench``: the benchmark tables. What measures is loaded when it is asked for, never before."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from host_ctl.cli.output import write
from host_ctl.errors import OutputError, UsageError

_INTERRUPTED = 130
_BROKEN_BOUND = 1

bench_app = typer.Typer(help="Measure Pulse on runs whose truth is known.", no_args_is_help=False)


class CaseSet(str, Enum):
    """Sets of cases."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


class Seeds(str, Enum):
    """Ranges of seeds that have none in common: to work with, and to report."""

    DEVELOPMENT = "development"
    REPORTED = "reported"


@bench_app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Measure Pulse on runs whose truth is known."""
    if context.invoked_subcommand is None:
        raise UsageError("give pulse bench scenarios, pulse bench align or pulse bench measure")


@bench_app.command()
def scenarios(
    case_set: Annotated[
        CaseSet, typer.Option("--set", help="smoke: a few; quick: minutes; full: 1000 faults, 1000 controls.")
    ] = CaseSet.QUICK,
    seeds: Annotated[Seeds, typer.Option(help="Range of seeds.")] = Seeds.DEVELOPMENT,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the results; default bench-SET-SEEDS.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
    resume: Annotated[bool, typer.Option(help="Leave out what the folder already has results of.")] = True,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Change one thing at a time on fixed cases too.")
    ] = False,
    real: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of labelled captures to judge as well.")
    ] = None,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of recorded operator traces to replay as well.")
    ] = None,
) -> None:
    """Simulate faults and controls, analyse them, and say how often the verdict is right.

    Results are kept case by case, so that a run that was ended with Ctrl-C goes on when it is started again.
    """
    for option, folder in (("--real", real), ("--traces", traces)):
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{option} {folder}: is no folder")
    folder = out or Path(f"bench-{case_set.value}-{seeds.value}")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder}: is no folder")
    from bench.scenarios.report import Request, report

    request = Request(case_set.value, seeds.value, folder, jobs, resume, ablations, real, traces)
    try:
        text, data = report(request)
    except KeyboardInterrupt:
        print(f"pulse: interrupted; the same command goes on from {folder}", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: {error.strerror or error}") from error
    write(json.dumps(data, indent=1) + "\n" if as_json else text)


@bench_app.command()
def align(
    quick: Annotated[bool, typer.Option("--quick", help="Two runs of 8 NICs per clock model only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> int:
    """Compare the clocks found in simulated runs with the true ones, by how clocks are wrong.

    Exit status 1 tells that a clock was off by more than the bound that causality gives.
    """
    from bench.align import report_align

    return 0 if report_align(quick=quick, as_json=as_json, write=write) else _BROKEN_BOUND


class MeasurePart(str, Enum):
    """Parts of the measurement table."""

    PATH = "path"
    MEMORY = "memory"
    WINDOWS = "windows"
    FRAMES = "frames"
    MODES = "modes"


@bench_app.command()
def measure(
    part: Annotated[list[MeasurePart] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer cases, fewer repetitions.")] = False,
    captures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Captures for part modes, beside simulated traffic.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Measure what the core costs per packet and keeps in memory, beside goals and floor."""
    from bench.measure.report import PARTS
    from bench.measure.report import measure as run

    text, data = run(
        tuple(one.value for one in part) if part else tuple(PARTS), quick=quick, captures=captures
    )
    write(json.dumps(data, indent=1) + "\n" if as_json else text)
