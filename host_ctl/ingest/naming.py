# SPDX-License-Identifier: Apache-2.0
"""Finds capture files and says whose they are: by name, by ``--nic`` or by ``pulse.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from host_ctl.errors import InputError, UsageError

CONFIG_NAME = "pulse.toml"

_EXTENSION = re.compile(r"\.(pcap|pcapng|cap)(?:\.?\d+)?(?:\.(gz|zst))?$", re.IGNORECASE)
_DEVICE = re.compile(r"^(mlx\d|rxe|eth|en|ib|roce|bond|p\d|hns|bnxt|irdma|siw|erdma|efa)", re.IGNORECASE)
# dumpcap appends _00001_20250102030405, tcpdump -G users a time of their own making.
_ROTATION = re.compile(r"[-_.]\d{5}_\d{14}$|[-_.]\d{8}[-_T]?\d{4,6}$|[-_.]part\d+$", re.IGNORECASE)
_MODES = ("all", "steered")


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """All capture files of one NIC. ``addresses`` and ``mode`` are what a ``pulse.toml`` says, if anything."""

    machine: str
    nic: str
    paths: tuple[Path, ...]
    addresses: tuple[str, ...] = ()
    mode: str | None = None


def find_captures(paths: Sequence[Path], named: Mapping[str, Path]) -> tuple[list[CaptureFiles], list[str]]:
    """Capture files by NIC, and remarks on what was left aside.

    ``paths`` are files or folders; ``named`` maps ``MACHINE/NIC`` (or ``MACHINE``) to one file each.
    Raises InputError when a path does not exist or no capture is found, UsageError for a bad ``pulse.toml``.
    """
    found: dict[tuple[str, str], list[Path]] = {}
    configured: list[CaptureFiles] = []
    remarks: list[str] = []
    for path in paths:
        if path.is_dir():
            config = path / CONFIG_NAME
            if config.is_file():
                configured.extend(read_config(config))
            else:
                for file in _captures_in(path, remarks):
                    found.setdefault(identify(file.name), []).append(file)
        elif path.exists():
            found.setdefault(identify(path.name), []).append(path)
        else:
            raise InputError(f"{path} does not exist: give a capture file or a folder of captures")
    for name, path in named.items():
        if not path.is_file():
            raise InputError(f"--nic {name}={path}: there is no such file")
        machine, _, nic = name.partition("/")
        found.setdefault((machine, nic), []).append(path)
    captures = configured + [
        CaptureFiles(machine, nic, tuple(dict.fromkeys(files)))
        for (machine, nic), files in sorted(found.items())
    ]
    if not captures:
        where = ", ".join(str(p) for p in paths)
        raise InputError(f"no capture in {where}: expected files such as node0.mlx5_0.pcap or node0.pcapng.gz")
    return captures, remarks


def _captures_in(folder: Path, remarks: list[str]) -> Iterable[Path]:
    try:
        files = sorted(p for p in folder.iterdir() if p.is_file())
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}") from error
    captures = [f for f in files if _EXTENSION.search(f.name)]
    aside = len(files) - len(captures)
    if aside:
        remarks.append(f"{aside} files of {folder.name} are no captures by name and were left aside")
    return captures


def identify(file_name: str) -> tuple[str, str]:
    """Machine and NIC of a capture file's name; the NIC is empty when the name has none."""
    stem = _EXTENSION.sub("", file_name)
    stem = _ROTATION.sub("", stem) or stem
    machine, dot, last = stem.rpartition(".")
    if dot and machine and _DEVICE.match(last):
        return machine, last
    return stem, ""


def read_config(path: Path) -> list[CaptureFiles]:
    """The captures that a ``pulse.toml`` names, paths relative to its folder.

    Each ``[[capture]]`` has ``machine``, ``files`` and perhaps ``nic``, ``addresses``, ``mode``.
    Raises UsageError when the file cannot be understood, InputError when a named file is missing.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    entries = data.get("capture")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} names no capture: add [[capture]] with machine = and files =")
    return [_entry(path, number, entry) for number, entry in enumerate(entries, 1)]


def _entry(path: Path, number: int, entry: Any) -> CaptureFiles:
    where = f"{path}, capture {number}"
    if not isinstance(entry, dict) or not isinstance(entry.get("machine"), str):
        raise UsageError(f"{where}: machine must be given as text")
    files, addresses = entry.get("files"), entry.get("addresses", [])
    for name, value in (("files", files), ("addresses", addresses)):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{where}: {name} must be a list of texts")
    mode = entry.get("mode")
    if mode is not None and mode not in _MODES:
        raise UsageError(f"{where}: mode is {mode!r}, must be one of {', '.join(_MODES)}")
    assert isinstance(files, list)
    paths = tuple(path.parent / f for f in files)
    for file in paths:
        if not file.is_file():
            raise InputError(f"{where}: there is no file {file}")
    return CaptureFiles(entry["machine"], str(entry.get("nic", "")), paths, tuple(addresses), mode)
