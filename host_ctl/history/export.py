# SPDX-License-Identifier: Apache-2.0
"""Writes a time range of a history as a session: a folder that `pulse analyze` reads."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dpu_app.wire.frame_file import SUFFIX, FrameFileWriter
from host_ctl.errors import InputError, OutputError
from host_ctl.history.reader import ReadCounts, read_range

_CONFIG_NAME = "pulse.toml"


@dataclass(frozen=True, slots=True)
class Exported:
    """What a session holds, and what had to be left out."""

    frames: int
    nics: int
    damaged: int
    begin_ns: int
    end_ns: int


class _Session:
    """Files of a folder, one per NIC; few are open at a time."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._writers: dict[tuple[str, str], FrameFileWriter] = {}

    @property
    def nics(self) -> list[tuple[str, str]]:
        return sorted(self._writers)

    def writer(self, machine: str, nic: str) -> FrameFileWriter:
        writer = self._writers.get((machine, nic))
        if writer is None:
            path = self._folder / _file_name(machine, nic)
            file = self._stack.enter_context(path.open("xb"))
            writer = self._writers[machine, nic] = FrameFileWriter(file)
        return writer


def export_session(
    directory: Path, folder: Path, from_ns: int | None = None, to_ns: int | None = None
) -> Exported:
    """Write the frames of [from, to) into a new folder.

    Raises InputError when there are none, OutputError when the folder cannot be written.
    """
    counts = ReadCounts()
    begin_ns, end_ns = 2**63 - 1, -(2**63)
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    if folder.exists():
        raise OutputError(f"{folder} exists: give a folder that does not")
    try:
        partial.mkdir(parents=True)
        with ExitStack() as stack:
            session = _Session(partial, stack)
            for stored in read_range(directory, from_ns, to_ns, counts):
                session.writer(stored.key.machine, stored.key.nic).write_encoded(stored.data)
                begin_ns, end_ns = min(begin_ns, stored.key.begin_ns), max(end_ns, stored.key.end_ns)
        if not session.nics:
            raise InputError(f"{directory} has no frame of that time; without --from and --to all are taken")
        (partial / _CONFIG_NAME).write_text(_config(session.nics), encoding="utf-8")
        partial.rename(folder)
    except OSError as error:
        raise OutputError(f"the session {folder} cannot be written: {error.strerror or error}") from error
    finally:
        _remove(partial)
    return Exported(counts.frames, len(session.nics), counts.damaged, begin_ns, end_ns)


def _file_name(machine: str, nic: str) -> str:
    safe = ["".join(c if c.isalnum() or c in "-_" else "_" for c in text) for text in (machine, nic)]
    # Names that differ only in what is replaced must not meet.
    return (
        f"{safe[0]}.{safe[1]}{SUFFIX}"
        if [machine, nic] == safe
        else f"{'.'.join(safe)}~{_tag(machine, nic)}{SUFFIX}"
    )


def _tag(machine: str, nic: str) -> str:
    return hashlib.sha256(f"{machine}\0{nic}".encode()).hexdigest()[:12]


def _config(nics: list[tuple[str, str]]) -> str:
    entries = [
        f"[[capture]]\nmachine = {json.dumps(machine)}\nnic = {json.dumps(nic)}\n"
        f"files = [{json.dumps(_file_name(machine, nic))}]\n"
        for machine, nic in nics
    ]
    return "\n".join(entries)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
