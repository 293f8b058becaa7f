# SPDX-License-Identifier: Apache-2.0
"""The command `pulse-dpu`.

Exit status: 0 ended as asked, 1 the service failed or cannot be reached, 2 wrong usage or settings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pulse_native
from dpu_app.service import device
from dpu_app.service.agent import Agent
from dpu_app.service.config import SETTINGS, ServiceConfig, load_config
from dpu_app.service.doctor import examine
from dpu_app.service.segments import SpoolError
from dpu_app.service.status import ask_status, status_text
from dpu_app.settings import SettingsError

DEFAULT_FILE = Path("/etc/pulse/dpu.toml")
FAILED, WRONG = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "device":
        return _set_device(options)
    try:
        config = _config_of(options)
        if options.command == "status":
            return _show_status(config, options)
        if options.command == "doctor":
            return _examine(config, options)
        return _run(config, options)
    except SettingsError as error:
        print(f"pulse-dpu: {error}", file=sys.stderr)
        return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pulse-dpu", description="Measures the RDMA traffic of one NIC.")
    parser.add_argument("--version", action="version", version=f"pulse-dpu {pulse_native.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="capture, measure, and send frames to the controller")
    status = commands.add_parser("status", help="show how the running service is")
    status.add_argument("--json", action="store_true", help="everything, as JSON")
    status.add_argument("--metrics", action="store_true", help="in Prometheus' text format")
    doctor = commands.add_parser(
        "doctor", help="check whether the service can work here, and what to do if not"
    )
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    settings = commands.add_parser("device", help="switch hardware time stamps on, or back to what they were")
    settings.add_argument("action", choices=("apply", "undo"))
    settings.add_argument("--interface", required=True)
    settings.add_argument("--record", type=Path, required=True, help="file that holds what was there before")
    for command in (run, status, doctor):
        command.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help=f"settings, TOML; default: {DEFAULT_FILE} if it exists",
        )
        for setting in SETTINGS:
            command.add_argument(
                setting.flag, dest=setting.key, metavar=setting.kind.__name__.upper(), help=setting.help
            )
    return parser


def _config_of(options: argparse.Namespace) -> ServiceConfig:
    named = options.config or (
        Path(os.environ["PULSE_DPU_CONFIG"]) if "PULSE_DPU_CONFIG" in os.environ else None
    )
    file = named or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    given = vars(options)
    flags = {setting.key: given[setting.key] for setting in SETTINGS if given[setting.key] is not None}
    return load_config(file, os.environ, flags)


def _run(config: ServiceConfig, options: argparse.Namespace) -> int:
    # The journal has the time already.
    logging.basicConfig(
        level=config.log_level.upper(), format="%(levelname)s: %(message)s", stream=sys.stderr
    )

    async def work() -> None:
        await Agent(config, lambda: _config_of(options)).run()

    try:
        asyncio.run(work())
    except SpoolError as error:
        print(f"pulse-dpu: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"pulse-dpu: {error.strerror or error}", file=sys.stderr)
        return FAILED
    return 0


def _set_device(options: argparse.Namespace) -> int:
    action = device.apply if options.action == "apply" else device.undo
    try:
        print(action(options.interface, options.record))
    except device.DeviceError as error:
        print(f"pulse-dpu: {error}", file=sys.stderr)
        return FAILED
    return 0


def _examine(config: ServiceConfig, options: argparse.Namespace) -> int:
    findings = examine(config)
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            print(finding)
    return FAILED if any(finding.level == "wrong" for finding in findings) else 0


def _show_status(config: ServiceConfig, options: argparse.Namespace) -> int:
    if not config.status_socket:
        raise SettingsError("there is no socket to ask: set status.socket")
    path = Path(config.status_socket)
    try:
        answer = ask_status(path, "/metrics" if options.metrics else "/status")
    except OSError as error:
        print(f"pulse-dpu: no service answers at {path}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    sys.stdout.write(answer if options.metrics or options.json else status_text(json.loads(answer)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
