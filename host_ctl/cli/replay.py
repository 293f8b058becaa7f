# SPDX-License-Identifier: Apache-2.0
"""``pulse replay``: a recorded session through live analysis, frame after frame, as a controller does it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host_ctl.cli.output import EXIT_STATUS, write
from host_ctl.errors import InputError, UsageError

if TYPE_CHECKING:
    from host_ctl.live.findings import Findings


def replay_session(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders with files of frames: a session.")
    ],
    speed: Annotated[
        float | None, typer.Option(metavar="X", help="Times real time; default as fast as possible.")
    ] = None,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="Traffic between two looks, at least.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report of the last look (pulse.report/1).")
    ] = False,
) -> None:
    """Tell what live analysis would have said of a session, and when.

    Exit status: that of the last look, as for pulse analyze.
    """
    from host_ctl.ingest.naming import find_captures
    from host_ctl.live.analyst import Analyst
    from host_ctl.live.limits import LiveLimits
    from host_ctl.live.recorded import recorded

    if every <= 0 or (speed is not None and speed <= 0):
        raise UsageError("--every and --speed must be positive")
    captures, _ = find_captures(paths, {})
    session = recorded(captures)
    analyst = Analyst(LiveLimits(every_ns=round(every * 1e9)))
    begin_ns, begun_s = session[0].key.begin_ns, time.monotonic()
    last: Findings | None = None
    told = ""
    for arrived in (*session, None):
        now_ns = session[-1].key.end_ns + analyst.limits.deadline_ns
        if arrived is not None:
            now_ns = arrived.key.end_ns
            if speed is not None:
                time.sleep(max(0.0, (now_ns - begin_ns) / 1e9 / speed - (time.monotonic() - begun_s)))
            analyst.take(arrived)
        findings = analyst.look(now_ns)
        if findings is None:
            continue
        last = findings
        line = describe(findings)
        if not as_json and line != told:
            write(f"{(findings.end_ns - begin_ns) / 1e9:8.2f} s  {line}\n")
        told = line
    if last is None:
        raise InputError("the session holds no RDMA traffic that could be analysed")
    if as_json:
        write(json.dumps(last.report, indent=1) + "\n")
    raise typer.Exit(EXIT_STATUS[last.health])


def describe(findings: Findings) -> str:
    """Health, jobs and verdicts in a line that stays the same while nothing changes."""
    verdicts = [
        f"{v.cause.replace('_', ' ')} {v.machine or 'nobody'}{f'/{v.nic}' if v.nic else ''} ({job.key})"
        for job in findings.jobs
        for v in job.verdicts
    ]
    jobs = ", ".join(f"{job.key} on {len(job.nics)} NICs" for job in findings.jobs) or "no job"
    silent = f"; silent: {', '.join(findings.silent)}" if findings.silent else ""
    return f"{findings.health}: {'; '.join(verdicts) or jobs}{silent}"
