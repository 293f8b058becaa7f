# SPDX-License-Identifier: Apache-2.0
"""Writing a result to a file: whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from host_ctl.errors import OutputError, printable


def check_writable(path: Path, option: str) -> None:
    """Raise OutputError now rather than after the work when a file cannot be written there."""
    if path.is_dir():
        raise OutputError(f"{option} {printable(str(path))} is a folder: name a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"{option} {printable(str(path))}: there is no folder {printable(str(folder))}")
    target = path if path.exists() else folder
    if not os.access(target, os.W_OK):
        raise OutputError(f"{option} {printable(str(path))} cannot be written: Permission denied")


def write_whole(path: Path, content: bytes, option: str) -> None:
    """Write a file that is complete whenever it is there. Raises OutputError, and leaves what was there."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a terminal takes what it gets
            return
        _replace(path, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{option} {printable(str(path))} cannot be written: {reason}") from error


def _replace(path: Path, content: bytes) -> None:
    path = path.resolve()  # what a link points to is replaced, not the link
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
