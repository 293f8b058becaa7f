# SPDX-License-Identifier: Apache-2.0
"""``pulse incidents``: what persists, and what people say about it."""

from __future__ import annotations

import getpass
import json
from typing import Annotated, Any

import typer

from host_ctl.cli.output import write
from host_ctl.cli.server import CaFile, Certificate, ServerUrl, TokenFile, client
from host_ctl.cli.times import ago, duration_s, iso
from host_ctl.errors import UsageError, printable

incidents_app = typer.Typer(
    help="List incidents, acknowledge, annotate and silence them.", no_args_is_help=False
)
Id = Annotated[str, typer.Argument(metavar="ID", help="An incident, as i7.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Author = Annotated[str | None, typer.Option("--author", help="Who says it; default: the user.")]
Text = Annotated[str, typer.Option("--text", help="Why, or what else there is to say.")]


@incidents_app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """List incidents, acknowledge, annotate and silence them."""
    if context.invoked_subcommand is None:
        raise UsageError("give pulse incidents list, show, ack, note, end, silence, silences or unsilence")


@incidents_app.command("list")
def list_all(
    ended: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    machine: Annotated[str | None, typer.Option(help="That accuse this machine.")] = None,
    job: Annotated[str | None, typer.Option(help="Of this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 50,
    as_json: AsJson = False,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """List incidents, the newest first."""
    api = client(server, token_file, ca_file, cert_file)
    query = {"state": None if ended else "open", "machine": machine, "job": job, "limit": limit}
    found = api.get("/incidents", query)
    if as_json:
        write(json.dumps(found, indent=1) + "\n")
        return
    for incident in found["incidents"]:
        write(f"{printable(_line(incident))}\n")
    if not found["incidents"]:
        write("no incidents\n")


def _line(incident: dict[str, Any]) -> str:
    state = "acknowledged" if incident["acknowledged"] else incident["state"]
    end_ns = incident["ended_ns"] or incident["last_seen_ns"]
    lasted = ago(end_ns - incident["started_ns"])
    when = f"{iso(incident['started_ns'])} for {lasted:<8}"
    cost = f"{incident['lost_gpu_seconds']:.0f} GPU s"
    what = f"{incident['job']}: {incident['summary']}"
    return f"{incident['id']:<5} {state:<12} {incident['severity']:<9} {when} {cost}  {what}"


@incidents_app.command()
def show(
    incident: Id,
    as_json: AsJson = False,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Show an incident with its steps, and with what was done about it."""
    found = client(server, token_file, ca_file, cert_file).get(f"/incidents/{_id(incident)}")
    if as_json:
        write(json.dumps(found, indent=1) + "\n")
        return
    lines = [_line(found["incident"])]
    for each in found["incident"]["evidence"]:
        peers = "" if each["peers"] is None else f" (peers {each['peers']:g})"
        lines.append(f"  {each['metric']} {each['value']:g} {each['unit']}{peers}")
    steps = [(each["at_ns"], f"{each['kind']}: {each['text']}") for each in found["updates"]]
    steps += [(each["at_ns"], f"note of {each['author']}: {each['text']}") for each in found["notes"]]
    steps += [
        (each["created_ns"], f"hook {each['hook']}, {each['kind']}: {each['state']} {each['error'] or ''}")
        for each in found["deliveries"]
    ]
    lines += [f"  {iso(at_ns)} {text}" for at_ns, text in sorted(steps)]
    write("".join(f"{printable(line).rstrip()}\n" for line in lines))


@incidents_app.command()
def ack(
    incident: Id,
    text: Text = "",
    author: Author = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Take an open incident on: hooks tell only of its end then."""
    api = client(server, token_file, ca_file, cert_file)
    api.post(f"/incidents/{_id(incident)}/ack", {"author": _author(author), "text": text})
    write(f"{incident} is acknowledged\n")


@incidents_app.command()
def note(
    incident: Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
    author: Author = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Write something about an incident."""
    api = client(server, token_file, ca_file, cert_file)
    api.post(f"/incidents/{_id(incident)}/note", {"author": _author(author), "text": text})
    write(f"{incident} has a note\n")


@incidents_app.command()
def end(
    incident: Id,
    text: Text = "",
    author: Author = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """End an open incident; it is opened again if the fault is still there."""
    api = client(server, token_file, ca_file, cert_file)
    api.post(f"/incidents/{_id(incident)}/end", {"author": _author(author), "text": text})
    write(f"{incident} has ended\n")


@incidents_app.command()
def silence(
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, as 30m, 2h or 1d.")],
    machine: Annotated[str | None, typer.Option(help="Pattern of machines, as node7 or node*.")] = None,
    job: Annotated[str | None, typer.Option(help="Pattern of jobs.")] = None,
    cause: Annotated[str | None, typer.Option(help="Pattern of causes.")] = None,
    text: Text = "",
    author: Author = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """Have hooks tell nothing of some incidents for a time."""
    api = client(server, token_file, ca_file, cert_file)
    wanted = {"machine": machine, "job": job, "cause": cause, "duration_s": duration_s(lasting, "--for")}
    made = api.post("/silences", wanted | {"author": _author(author), "text": text})
    write(f"silence {made['number']} holds until {iso(made['ends_ns'])}\n")


@incidents_app.command()
def silences(
    as_json: AsJson = False,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """List the silences that hold."""
    found = client(server, token_file, ca_file, cert_file).get("/silences")
    if as_json:
        write(json.dumps(found, indent=1) + "\n")
        return
    for each in found["silences"]:
        names = ("machine", "job", "cause")
        of = ", ".join(f"{name} {each[name]}" for name in names if each[name] is not None)
        line = f"{each['number']}: {of} until {iso(each['ends_ns'])}, by {each['author']} {each['text']}"
        write(f"{printable(line).rstrip()}\n")
    if not found["silences"]:
        write("no silences\n")


@incidents_app.command()
def unsilence(
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="A silence.")],
    server: ServerUrl = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: Certificate = None,
) -> None:
    """End a silence."""
    client(server, token_file, ca_file, cert_file).delete(f"/silences/{number}")
    write(f"silence {number} has ended\n")


def _id(text: str) -> str:
    if not text.removeprefix("i").isdecimal() or not text.isascii():
        raise UsageError(f"{text} is no incident: they are called i1, i2 and so on")
    return text


def _author(given: str | None) -> str:
    if given:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise UsageError("say who you are: --author NAME") from None
