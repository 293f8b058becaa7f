# SPDX-License-Identifier: Apache-2.0
"""``pulse controller``: the live service, and ``pulse export``: a session out of its history."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from host_ctl.cli.output import write
from host_ctl.cli.times import iso, parse_time
from host_ctl.errors import UsageError

_DEFAULT_FILE = Path("/etc/pulse/controller.toml")
_FAILED = 1
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help=f"Settings, TOML; default {_DEFAULT_FILE} if it exists."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting that wins over the file; may be repeated."),
]


def controller(
    config: Config = None,
    changes: Changes = None,
    check: Annotated[bool, typer.Option("--check", help="Look at the settings only.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Write a settings file with every key.")] = False,
) -> None:
    """Take frames from DPUs and keep them, until SIGTERM.

    Exit status: 0 ended as asked, 1 it failed, 2 wrong settings.
    """
    from dpu_app.service.notify import Notifier
    from host_ctl.service.controller import Controller
    from host_ctl.service.example import example_text
    from host_ctl.service.settings import load_settings

    if example:
        write(example_text())
        return
    settings = load_settings(_file(config), os.environ, changes or [])
    if check:
        write("the settings are right\n")
        return
    _log_to_stderr(settings.log_level, as_json=settings.log_json)

    async def work() -> None:
        await Controller(settings, Notifier()).run()

    try:
        asyncio.run(work())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"pulse: {where}{error.strerror or error}", file=sys.stderr)
        raise typer.Exit(_FAILED) from None


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make, for pulse analyze.")],
    begin: Annotated[str | None, typer.Option("--from", metavar="TIME", help="ISO 8601 or ns.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="ISO 8601 or ns.")] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The history; default: the settings' one.")
    ] = None,
    config: Config = None,
    changes: Changes = None,
) -> None:
    """Write the frames of a time out of a controller's history, which may be running meanwhile.

    Times are those of the controller's clock, UTC where no zone is given.
    """
    from host_ctl.history.export import export_session
    from host_ctl.service.settings import load_settings

    from_ns = None if begin is None else parse_time(begin, "--from")
    to_ns = None if end is None else parse_time(end, "--to")
    if from_ns is not None and to_ns is not None and to_ns <= from_ns:
        raise UsageError("--to must lie after --from")
    directory = history or Path(load_settings(_file(config), os.environ, changes or []).history)
    done = export_session(directory, folder, from_ns, to_ns)
    aside = f"; {done.damaged} damaged places were left out" if done.damaged else ""
    span = f"{iso(done.begin_ns)} to {iso(done.end_ns)}"
    write(f"{folder}: {done.frames} frames of {done.nics} NICs, {span}{aside}\n")


def _file(named: Path | None) -> Path | None:
    if named is None and "PULSE_CONTROLLER_CONFIG" in os.environ:
        return Path(os.environ["PULSE_CONTROLLER_CONFIG"])
    return named or (_DEFAULT_FILE if _DEFAULT_FILE.exists() else None)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _log_to_stderr(level: str, *, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    # The journal has the time already.
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s.%(msecs)03dZ "
    plain = logging.Formatter(f"{stamp}%(levelname)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    plain.converter = time.gmtime
    handler.setFormatter(_JsonLines() if as_json else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # What a peer does wrong in its handshake is told once, by the server.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
