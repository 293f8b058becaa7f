# SPDX-License-Identifier: Apache-2.0
"""``pulse certs``: certificates for the controller and its DPUs, where a site has no authority of its own."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated

import typer

from host_ctl import certs
from host_ctl.cli.output import write
from host_ctl.errors import UsageError

certs_app = typer.Typer(help="Make certificates for the controller and the DPUs.", no_args_is_help=False)
_FOLDER = Path("pulse-certs")
Folder = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Folder of the authority and what it issues.")
]


@certs_app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Make certificates for the controller and the DPUs."""
    if context.invoked_subcommand is None:
        raise UsageError("give pulse certs init, pulse certs issue or pulse certs list")


@certs_app.command()
def init(
    folder: Folder = _FOLDER,
    name: Annotated[str, typer.Option(help="Name of the authority.")] = "Pulse CA",
    days: Annotated[int, typer.Option(help="How long it is valid.")] = 3650,
) -> None:
    """Make an authority. Its key, ca.key, stays where it is; every side needs ca.crt."""
    write(f"{certs.init_authority(folder, name, days)}\n")


@certs_app.command()
def issue(
    machine: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A machine whose DPUs send; may be repeated.")
    ] = None,
    controller: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A name or address of the controller; repeat it for all of them."),
    ] = None,
    folder: Folder = _FOLDER,
    name: Annotated[str, typer.Option(help="Name of the controller's files.")] = "controller",
    days: Annotated[int, typer.Option(help="How long they are valid.")] = 365,
) -> None:
    """Issue certificates: one per --machine, and one for all --controller names together."""
    if not machine and not controller:
        raise UsageError("give --machine NAME or --controller HOST")
    for each in machine or []:
        write(f"{certs.issue_machine(folder, each, days)}\n")
    if controller:
        write(f"{certs.issue_server(folder, controller, days, name)}\n")


@certs_app.command("list")
def list_all(
    folder: Folder = _FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the certificates, those that expire first at the top."""
    found = certs.list_certificates(folder)
    now = datetime.datetime.now(datetime.UTC)
    if as_json:
        rows = [
            {
                "file": str(each.path),
                "role": each.role,
                "names": list(each.names),
                "expires": each.expires.isoformat(),
                "days_left": round(each.days_left(now), 2),
            }
            for each in found
        ]
        write(json.dumps(rows, indent=1) + "\n")
        return
    for each in found:
        left = each.days_left(now)
        state = f"{left:.0f} days left" if left >= 0 else f"EXPIRED {-left:.0f} days ago"
        names = ", ".join(each.names)
        write(f"{each.path.name:<24} {each.role:<10} {each.expires:%Y-%m-%d} {state:<22} {names}\n")
