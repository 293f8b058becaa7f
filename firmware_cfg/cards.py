# SPDX-License-Identifier: Apache-2.0
"""Cards and the tool that reads and writes their settings: mlxconfig or mstconfig, whichever is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("mlxconfig", "mstconfig")
_VENDOR = "0x15b3"
# BlueField, BlueField-2 and BlueField-3, as the installer of NVIDIA's images lists them.
_DEVICE_IDS = ("0xa2d2", "0xa2d6", "0xa2dc")
_COLUMNS = re.compile(r"^Configurations:\s+Default\s+Current\s+Next Boot\s*$")
_ROW = re.compile(
    r"^(?P<mark>[\s*]*(?:RO\s+)?[\s*]*)(?P<key>[A-Za-z][A-Za-z0-9_]*(?:\[\d+\])?)\s+(?P<rest>\S.*)$"
)
# Columns are 16 wide, and a longer value may touch the next one: a closing parenthesis ends it too.
_VALUE = re.compile(r"[^\s()]*\([^()]*\)|[^\s()]+")
_NUMBER = re.compile(r"\((0x[0-9a-fA-F]+|\d+)\)$|^(0x[0-9a-fA-F]+|\d+)$")
_TIMEOUT_S = 120


class CardError(Exception):
    """A card or a tool that does not do what it should; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value as the tool prints it; `number` is None where it prints none."""

    text: str
    number: int | None

    @classmethod
    def parse(cls, text: str) -> Value:
        """Read `EMBEDDED_CPU(1)`, `20`, `0x14` or `ETH`."""
        found = _NUMBER.search(text)
        return cls(text, int(found[1] or found[2], 0) if found else None)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a card: what it was made with, what is in force, and what the next power-on brings."""

    default: Value
    live: Value
    next: Value


@dataclass(frozen=True, slots=True)
class Card:
    """What one card said of itself."""

    device: str
    kind: str
    parameters: dict[str, Parameter]


def find_tool(name: str | None = None) -> str:
    """Return the path of the tool. Raises CardError when there is none."""
    for tool in (name,) if name else TOOLS:
        path = shutil.which(tool)
        if path:
            return path
    if name:
        raise CardError(f"there is no {name} on PATH; name another tool or leave --tool away")
    raise CardError(
        "there is neither mlxconfig nor mstconfig on PATH: install NVIDIA's MFT, or the package mstflint"
    )


def find_cards(root: Path = Path("/")) -> list[str]:
    """Return the PCI addresses of the BlueField cards, the first function of each."""
    found = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*.0")):
        try:
            vendor = (folder / "vendor").read_text(encoding="ascii").strip()
            device = (folder / "device").read_text(encoding="ascii").strip()
        except OSError:
            continue
        if vendor == _VENDOR and device in _DEVICE_IDS:
            found.append(folder.name)
    if not found:
        raise CardError(
            "no BlueField card is on the PCI bus of this machine; name one: --device 0000:03:00.0"
        )
    return found


def query_command(tool: str, device: str) -> list[str]:
    """Return the command that prints default, live and next values; plain `q` prints the next ones alone."""
    return [tool, "-d", device, "-e", "q"]


def set_command(tool: str, device: str, assignments: Iterable[str]) -> list[str]:
    """Return the command that sets values for the next power-on; it never resets the card."""
    return [tool, "-y", "-d", device, "set", *assignments]


def run(command: list[str]) -> str:
    """Run a command of the tool and return what it printed. Raises CardError."""
    line = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except OSError as error:
        raise CardError(f"`{line}` could not be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CardError(
            f"`{line}` did not end within {_TIMEOUT_S} s; see whether another tool holds the card"
        ) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = said[-1] if said else f"exit status {done.returncode}"
        raise CardError(f"`{line}` failed: {why}{_advice(why)}")
    return done.stdout


def _advice(why: str) -> str:
    if "open the device" in why or "No such" in why:
        return "; look at the address with `lspci -D -d 15b3:`, and be root"
    if "support" in why and "parameter" in why:
        return "; the firmware does not know it: update the firmware, or take the entry out of the settings"
    return ""


def query(tool: str, device: str) -> Card:
    """Ask a card for all its parameters. Raises CardError."""
    return parse_query(run(query_command(tool, device)), device)


def parse_query(text: str, device: str) -> Card:
    """Read what `-e q` printed. Raises CardError when it has no table of three columns."""
    kind = ""
    parameters: dict[str, Parameter] = {}
    inside = False
    for line in text.splitlines():
        if line.startswith("Device type:"):
            kind = line.partition(":")[2].strip()
        if line.startswith("Configurations:"):
            inside = bool(_COLUMNS.match(line))
            continue
        row = _ROW.match(line) if inside and not line.startswith("The '*'") else None
        if row is None:
            continue
        values = [Value.parse(part) for part in _VALUE.findall(row["rest"])]
        if len(values) == 3:
            parameters[row["key"]] = Parameter(*values)
    if not parameters:
        raise CardError(
            f"what the tool printed about {device} has no table of default, current and next values; "
            "this version of it may print otherwise: update the tool, or try --tool with the other one"
        )
    return Card(device, kind or "unknown", parameters)
