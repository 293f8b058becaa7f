# SPDX-License-Identifier: Apache-2.0
"""``pulse status`` and ``pulse verdicts``: how it goes with jobs and controller, from its API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from host_ctl.cli.output import EXIT_STATUS, write
from host_ctl.cli.server import CaFile, Certificate, ServerUrl, TokenFile, client
from host_ctl.cli.times import ago, iso
from host_ctl.client import ApiClient
from host_ctl.errors import InputError, printable

_AGAIN_S = 2.0
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def status(
    as_json: AsJson = False,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Show how it goes: verdict, jobs, NICs, hooks, and the controller itself.

    Exit status: 0 nothing wrong, 3 degraded or failed, 4 not enough data to say, 2 it cannot be asked.
    """
    api = client(server, token_file, ca_file, cert_file)
    found = api.get("/status")
    jobs = api.get("/jobs")["jobs"] if found["analysed_until_ns"] is not None else []
    if as_json:
        write(json.dumps(found | {"job_states": jobs}, indent=1) + "\n")
    else:
        write("".join(f"{printable(line)}\n" for line in _lines(found, jobs)))
    raise typer.Exit(EXIT_STATUS[found["health"]])


def _lines(found: dict[str, Any], jobs: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{found['health'].upper()}  {found['summary']}"
    for job in jobs:
        lasting = "" if job["iteration_s"] is None else f", {1000 * job['iteration_s']:.1f} ms per iteration"
        size = f"{len(job['machines'])} machines, {len(job['nics'])} NICs"
        yield f"job {job['key']}: {job['health']}, {size}{lasting}"
    nics = f"{found['nics_connected']} of {found['nics']} NICs connected"
    silent = f", silent: {', '.join(found['nics_silent'])}" if found["nics_silent"] else ""
    yield f"{nics}{silent}; {found['open_incidents']} open incidents"
    if found["analysis_age_s"] is not None:
        until_ns = found["analysed_until_ns"]
        yield f"analysed until {iso(until_ns)}, {ago(time.time_ns() - until_ns)} ago"
    for problem in found["analysis_problems"]:
        yield f"analysis: {problem}"
    for name in ("problem", "incidents_problem"):
        if found[name]:
            yield f"controller: {found[name]}"
    for hook in found["hooks"]:
        if hook["problem"]:
            yield f"hook {hook['name']}: {hook['problem']}; {hook['waiting']} deliveries wait"
    yield f"controller {found['version']}, up for {ago(round(found['uptime_s'] * 1e9))}"


def verdicts(
    follow: Annotated[bool, typer.Option("--follow", help="Go on, and tell changes of incidents.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="As JSON; with --follow a line for each event.")
    ] = False,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Show the verdicts of the last look; with --follow, incidents as they open, change and end.

    Exit status: 0 nothing wrong, 3 degraded or failed, 4 not enough data to say, 2 it cannot be asked.
    """
    api = client(server, token_file, ca_file, cert_file)
    if follow:
        _follow(api, as_json=as_json)
    found = api.get("/jobs")
    if as_json:
        write(json.dumps(found, indent=1) + "\n")
    else:
        said = [(job["key"], verdict) for job in found["jobs"] for verdict in job["verdicts"]]
        for key, verdict in said:
            write(f"{printable(_verdict(key, verdict))}\n")
        if not said:
            write("no verdict\n" if found["health"] != "unsure" else "not enough data to say\n")
    raise typer.Exit(EXIT_STATUS[found["health"]])


def _verdict(job: str, verdict: dict[str, Any]) -> str:
    sure = f"confidence {verdict['confidence']:.2f}"
    since = f"since {iso(verdict['onset_ns'])}" if verdict["onset_ns"] > 0 else ""
    cost = f"{verdict['lost_gpu_seconds']:.1f} GPU seconds lost"
    details = ", ".join(part for part in (sure, since, cost) if part)
    return f"{verdict['severity']:<9}  {job}: {verdict['summary']} ({details})"


def _follow(api: ApiClient, *, as_json: bool) -> None:
    """Tell incidents until interrupted; a controller that restarts is found again."""
    last: str | None = None
    told = False
    while True:
        try:
            for event in api.events(last):
                told = False
                last = event.id or last
                if event.kind == "incident":
                    write(_event(event.data, as_json=as_json))
        except InputError as error:
            if last is None and not told:
                raise
            if not told:
                typer.echo(f"pulse: {error}; it is tried again", err=True)
            told = True
        time.sleep(_AGAIN_S)


def _event(event: dict[str, Any], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(event) + "\n"
    incident = event["incident"]
    return printable(f"{iso(event['at_ns'])} {incident['id']} {event['kind']}: {event['text']}") + "\n"
