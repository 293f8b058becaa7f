#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Set, verify and undo the firmware settings that Pulse needs on BlueField cards.

Nothing is changed without --apply. A card is never reset: new values are in force after the machine was
without power for about 30 s, a reboot is not enough.

exit status:
  0  nothing to do, or done as asked
  1  something differs: `set` would change it, `verify` found a live value wrong, `undo` could not restore it
  2  wrong usage, or a settings file or record that cannot be used
  3  no tool, no card, a card that lacks a needed parameter, or a tool that failed
  4  the next power-on brings what is wanted, but it is not in force yet: power cycle needed
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # started as a script
    _HOME = Path(__file__).resolve().parents[1]
    # On a card the package's own folder has tomli, which the system's Python may lack.
    sys.path[0:1] = [str(_HOME)]
    sys.path.append(str(_HOME / "site-packages"))

from firmware_cfg.cards import CardError, find_cards, find_tool, query, run, set_command
from firmware_cfg.difference import PENDING, REVERTING, UNKNOWN, WRONG, CardReport, compare, table
from firmware_cfg.record import DEFAULT_FILE as DEFAULT_RECORD
from firmware_cfg.record import Change, RecordError, added, read_record, write_record
from firmware_cfg.undo import plan_undo
from firmware_cfg.wanted import DEFAULT_FILE, SettingsError, load_wanted

SCHEMA = "pulse.firmware-report/1"
DONE, DIFFERS, USAGE, FAILED, POWER_CYCLE = range(5)
_POWER = (
    "New values are in force after the machine was off, without power, for about 30 s; "
    "a reboot is not enough."
)
Ask = Callable[[str], str]


def main(arguments: Sequence[str] | None = None, ask: Ask = input) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        tool = find_tool(options.tool)
        if options.action == "undo":
            return _undo(tool, options, ask)
        wanted = load_wanted(options.settings)
        settings = wanted.chosen(options.features)
        reports = [
            compare(query(tool, device), settings, wanted.watched)
            for device in options.device or find_cards(options.root)
        ]
        if options.action == "verify":
            return _verify(reports, options.json)
        return _set(tool, reports, options, ask)
    except (SettingsError, RecordError) as error:
        print(f"mlxcfg: {error}", file=sys.stderr)
        return USAGE
    except CardError as error:
        print(f"mlxcfg: {error}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="mlxcfg", description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("set", "verify", "undo"),
        default="set",
        help="set (default): bring cards to what is wanted; verify: look at the live values; "
        "undo: bring back what the record says was there before",
    )
    parser.add_argument("--apply", action="store_true", help="change the cards; else show how")
    parser.add_argument("--yes", action="store_true", help="do not ask before changing")
    parser.add_argument("--device", action="append", metavar="PCI", help="a card; default: all")
    parser.add_argument("--tool", help="mlxconfig or mstconfig; default: whichever is there, in this order")
    parser.add_argument(
        "--with",
        action="append",
        dest="features",
        default=[],
        metavar="FEATURE",
        help="optional settings too",
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT_FILE, metavar="FILE", help="what is wanted")
    parser.add_argument(
        "--record", type=Path, default=DEFAULT_RECORD, metavar="FILE", help=f"default: {DEFAULT_RECORD}"
    )
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="look in DIR/sys, not in /sys",
    )
    return parser


def _verify(reports: list[CardReport], as_json: bool) -> int:
    if any(report.having(UNKNOWN) for report in reports):
        status = FAILED
    elif any(report.having(WRONG, REVERTING) for report in reports):
        status = DIFFERS
    elif any(report.having(PENDING) for report in reports):
        status = POWER_CYCLE
    else:
        status = DONE
    if as_json:
        _print_json("verify", reports, [], status)
        return status
    for report in reports:
        print("\n".join(table(report)))
    print(
        {
            DONE: "All live values are as wanted.",
            DIFFERS: "Live or coming values differ: run `mlxcfg.py set`.",
            POWER_CYCLE: _POWER,
            FAILED: "A card does not know a parameter that is needed: update its firmware.",
        }[status]
    )
    return status


def _set(tool: str, reports: list[CardReport], options: argparse.Namespace, ask: Ask) -> int:
    commands = [
        set_command(tool, report.card.device, report.assignments) for report in reports if report.assignments
    ]
    unknown = [
        (report.card.device, each.setting.key) for report in reports for each in report.having(UNKNOWN)
    ]
    if not options.json:
        for report in reports:
            print("\n".join(table(report)))
    for device, key in unknown:
        print(f"mlxcfg: {device} does not know {key}, which is needed: update its firmware", file=sys.stderr)
    if unknown:
        status = FAILED
    elif not commands:
        status = POWER_CYCLE if any(report.having(PENDING) for report in reports) else DONE
    else:
        status = DIFFERS
    if not commands or not options.apply or unknown:
        if options.json:
            _print_json("set", reports, commands, status)
        else:
            _print_plan(commands, status, "set")
        return status
    if not _agreed(commands, options, ask):
        return DIFFERS
    _apply(tool, reports, options.record)
    if options.json:
        _print_json("set", reports, commands, DONE)
    else:
        print(f"Set. What was there before is in {options.record}.\n{_POWER}")
    return DONE


def _apply(tool: str, reports: list[CardReport], record: Path) -> None:
    for report in reports:
        changes = [
            Change(report.card.device, e.setting.key, e.found.next.text, e.found.next.number, e.setting.value)
            for e in report.differences
            if e.to_set and e.found is not None
        ]
        if not changes:
            continue
        # On record before it is done: a crash in between then leaves more to undo than needed, never less.
        write_record(record, added(read_record(record), changes))
        run(set_command(tool, report.card.device, report.assignments))
        _confirm(tool, report.card.device, {change.key: change.after for change in changes})


def _confirm(tool: str, device: str, values: dict[str, int]) -> None:
    parameters = query(tool, device).parameters
    for key, value in values.items():
        now = parameters[key].next if key in parameters else None
        if now is None or (now.number is not None and now.number != value):
            raise CardError(
                f"{device} took {key}={value} without an error, yet its next value is "
                f"{now.text if now else 'gone'}; other settings may forbid it"
            )


def _undo(tool: str, options: argparse.Namespace, ask: Ask) -> int:
    record = read_record(options.record)
    changes = [change for change in record if not options.device or change.device in options.device]
    cards = {device: query(tool, device) for device in dict.fromkeys(c.device for c in changes)}
    plan = plan_undo(tool, changes, cards)
    commands = list(plan.commands)
    for change, why in plan.left:
        print(f"mlxcfg: {change.device} {change.key} stays: {why}", file=sys.stderr)
    if not options.apply:
        status = DIFFERS if commands or plan.left else DONE
    else:
        if commands and not _agreed(commands, options, ask):
            return DIFFERS
        for command in commands:
            run(command)
        if plan.undone:
            write_record(options.record, [change for change in record if change not in plan.undone])
        status = DIFFERS if plan.left else DONE
    if options.json:
        _print_json("undo", [], commands, status)
    elif not changes:
        print(f"{options.record} has nothing to undo.")
    else:
        _print_plan(commands, status, "undo", done=options.apply)
    return status


def _agreed(commands: list[list[str]], options: argparse.Namespace, ask: Ask) -> bool:
    if options.yes:
        return True
    for command in commands:
        print(shlex.join(command), file=sys.stderr)
    try:
        answer = ask("Run this? The machine then needs a power cycle. [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("mlxcfg: nothing was changed", file=sys.stderr)
    return False


def _print_plan(commands: list[list[str]], status: int, action: str, done: bool = False) -> None:
    if commands:
        print("Done:" if done else "Would run:")
        for command in commands:
            print(f"  {shlex.join(command)}")
        print(_POWER if done else f"Nothing was changed; `mlxcfg.py {action} --apply` runs it. {_POWER}")
    elif status == POWER_CYCLE:
        print(_POWER)
    elif action == "set" and status == DONE:
        print("All live values are as wanted.")


def _print_json(action: str, reports: list[CardReport], commands: list[list[str]], status: int) -> None:
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "action": action,
        "status": status,
        "commands": commands,
        "power_cycle_needed": bool(commands) or any(each.having(PENDING) for each in reports),
        "cards": [
            {
                "device": each.card.device,
                "kind": each.card.kind,
                "settings": [difference.as_json() for difference in each.differences],
                "watched": [
                    {"key": entry.key, "live": found.live.text if found else None}
                    for entry, found in each.watched
                ],
            }
            for each in reports
        ],
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(DIFFERS)
