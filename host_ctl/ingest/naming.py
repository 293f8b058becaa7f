# SPDX-License-Identifier: Apache-2.0
"""Finds capture files and says whose they are: by name, by ``--nic`` or by ``pulse.toml``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import tomllib

from host_ctl.errors import InputError, UsageError, printable
from host_ctl.ingest.capture_file import why_unreadable
from host_ctl.ingest.frame_series import is_frame_file, why_no_frames

CONFIG_NAME = "pulse.toml"

_EXTENSION = re.compile(r"\.((pcap|pcapng|cap)(?:\.?\d+)?(?:\.(gz|zst))?|frames)$", re.IGNORECASE)
# RDMA and network devices as Linux names them; each has a number, unlike the parts of a host name.
_DEVICE = re.compile(
    r"""(?=\D*\d)(
        mlx\d|rxe|eth|en(?=\d|[opsx])|ib|roce|bond|p\d|hns|bnxt|irdma|rdma|siw|erdma|efa|qedr|cxgb
      | hfi|mthca|ocrdma|mana|nic|hca
    )[\w-]*""",
    re.IGNORECASE | re.VERBOSE,
)
# dumpcap adds _00001_20250102030405 (or the two swapped), users of tcpdump -G a time of their own making.
_ROTATION = re.compile(
    r"""[-_.](
        \d{5,}_\d{14} | \d{14}_\d{5,}             # dumpcap, editcap
      | \d{8}[-_T.]?\d{4,6}Z?                     # 20250102-030405
      | \d{4}-\d\d-\d\d[-_T.]\d\d[-_:.]?\d\d([-_:.]?\d\d)?Z?
      | 1\d{9}                                   # seconds since 1970
      | part[-_]?\d+
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
# Results that lie beside captures; nobody takes them for one.
_PLAINLY_OTHER = frozenset((".json", ".npz"))
_MODES = ("all", "steered")
_KEYS = ("machine", "nic", "files", "addresses", "mode")


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """All capture files of one NIC. ``addresses`` and ``mode`` are what a ``pulse.toml`` says, if it does."""

    machine: str
    nic: str
    paths: tuple[Path, ...]
    addresses: tuple[str, ...] = ()
    mode: str | None = None


def find_captures(paths: Sequence[Path], named: Mapping[str, Path]) -> tuple[list[CaptureFiles], list[str]]:
    """Readable capture files by NIC, and remarks on what was left aside.

    ``paths`` are files, folders or ``pulse.toml`` files; ``named`` maps ``MACHINE/NIC`` (or ``MACHINE``) to
    one file each. Raises InputError when a path does not exist or no file can be read as a capture,
    UsageError for a bad ``pulse.toml``.
    """
    captures: list[CaptureFiles] = []
    remarks: list[str] = []
    for name, path in named.items():
        _require(path, f"--nic {name}={path}")
        machine, _, nic = name.partition("/")
        captures.append(CaptureFiles(machine, nic, (path,)))
    for path in paths:
        _require(path, str(path))
        if path.name == CONFIG_NAME:
            captures.extend(read_config(path))
        elif not path.is_dir():
            captures.append(CaptureFiles(*identify(path.name), (path,)))
        elif (path / CONFIG_NAME).is_file():
            captures.extend(read_config(path / CONFIG_NAME))
        else:
            captures.extend(CaptureFiles(*identify(f.name), (f,)) for f in _captures_in(path, remarks))
    if not captures:
        where = ", ".join(str(p) for p in paths)
        raise InputError(
            f"no capture in {where}: expected files such as node0.mlx5_0.pcap or node0.pcapng.gz"
        )
    return _readable(_by_nic(captures), remarks), remarks


def _require(path: Path, given_as: str) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        raise InputError(f"{given_as} does not exist: give a capture file or a folder of captures") from None
    except OSError as error:
        raise InputError(f"{given_as} cannot be opened: {error.strerror}") from error


def _by_nic(captures: Sequence[CaptureFiles]) -> list[CaptureFiles]:
    """One entry per NIC; a file belongs to whoever names it first, by whatever path it is given again."""
    joined: dict[tuple[str, str], CaptureFiles] = {}
    taken: set[Path] = set()
    for one in captures:
        fresh = tuple(p for p in one.paths if p.resolve() not in taken)
        taken.update(p.resolve() for p in fresh)
        known = joined.get((one.machine, one.nic))
        if known is not None:
            one = replace(
                one,
                paths=known.paths + fresh,
                addresses=known.addresses or one.addresses,
                mode=known.mode or one.mode,
            )
        else:
            one = replace(one, paths=fresh)
        if one.paths:
            joined[one.machine, one.nic] = one
    return [joined[key] for key in sorted(joined)]


def _readable(captures: Sequence[CaptureFiles], remarks: list[str]) -> list[CaptureFiles]:
    """The captures without the files that cannot be read at all; these are told in ``remarks``."""
    useless = {path: _why_useless(path) for one in captures for path in one.paths}
    problems = [text for text in useless.values() if text]
    kept = [replace(one, paths=tuple(p for p in one.paths if not useless[p])) for one in captures]
    kept = [one for one in kept if one.paths]
    if not kept:
        also = f" (and {len(problems) - 1} more like it)" if len(problems) > 1 else ""
        raise InputError(
            f"{problems[0]}{also}: give pcap or pcapng files, plain or compressed by gzip or zstd"
        )
    remarks.extend(f"{text}: left aside" for text in problems)
    return kept


def _why_useless(path: Path) -> str | None:
    return why_no_frames(path) if is_frame_file(path) else why_unreadable(path)


def _captures_in(folder: Path, remarks: list[str]) -> Iterable[Path]:
    try:
        entries = sorted(p for p in folder.iterdir() if not p.is_dir())
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}") from error
    captures = [f for f in entries if _EXTENSION.search(f.name) and not f.name.startswith(".")]
    aside = sum(f not in captures and f.suffix.lower() not in _PLAINLY_OTHER for f in entries)
    if aside:
        were = (
            "file of {} is no capture by its name and was"
            if aside == 1
            else "files of {} are no captures by name and were"
        )
        remarks.append(f"{aside} {were.format(printable(folder.name))} left aside")
    return captures


def identify(file_name: str) -> tuple[str, str]:
    """Machine and NIC of a capture file's name; the NIC is empty when the name has none."""
    stem = _EXTENSION.sub("", file_name)
    stem = _ROTATION.sub("", stem) or stem
    machine, dot, last = stem.rpartition(".")
    if dot and machine and _DEVICE.fullmatch(last):
        return printable(machine), last
    return printable(stem), ""


def read_config(path: Path) -> list[CaptureFiles]:
    """The captures that a ``pulse.toml`` names, paths relative to its folder.

    Each ``[[capture]]`` has ``machine``, ``files`` and perhaps ``nic``, ``addresses``, ``mode``.
    Raises UsageError when the file cannot be understood, InputError when a named file is missing.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    entries = data.get("capture")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} names no capture: add [[capture]] with machine = and files =")
    captures = [_entry(path, number, entry) for number, entry in enumerate(entries, 1)]
    names = Counter((one.machine, one.nic) for one in captures)
    (machine, nic), count = names.most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"{path} has {count} captures of machine {machine}, nic {nic!r}: list their files in one"
        )
    return captures


def _entry(path: Path, number: int, entry: Any) -> CaptureFiles:
    where = f"{path}, capture {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: must be a table with machine = and files =")
    unknown = sorted(set(entry) - set(_KEYS))
    if unknown:
        raise UsageError(f"{where}: {unknown[0]} is not known; keys are {', '.join(_KEYS)}")
    machine, nic = _text(entry, "machine", where), _text(entry, "nic", where, default="")
    files, addresses = _texts(entry, "files", where), _texts(entry, "addresses", where)
    if not machine or not files:
        raise UsageError(f"{where}: machine and files must not be empty")
    try:
        for address in addresses:
            ip_address(address)
    except ValueError as error:
        raise UsageError(f"{where}: addresses: {error}") from None
    mode = entry.get("mode")
    if mode is not None and mode not in _MODES:
        raise UsageError(f"{where}: mode is {mode!r}, must be one of {', '.join(_MODES)}")
    paths = tuple(path.parent / f for f in files)
    for file in paths:
        _require(file, f"{where}: file {file}")
    return CaptureFiles(machine, nic, paths, addresses, mode)


def _text(entry: dict[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"{where}: {key} must be given as text")
    return printable(value)


def _texts(entry: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = entry.get(key, [])
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise UsageError(f"{where}: {key} must be a list of texts")
    return tuple(values)
