# SPDX-License-Identifier: Apache-2.0
"""Files that travel inside a bf.cfg: where they go, their mode, and that they fit."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PUBLIC, SECRET = 0o644, 0o600
_SAFE_PATH = re.compile(r"/[A-Za-z0-9._@:+/-]+")
_MARK = "PULSE_END_OF_FILE"


class EmbeddingError(Exception):
    """A file that cannot travel in a bf.cfg; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class EmbeddedFile:
    """One file of the new system."""

    target: str
    content: bytes
    mode: int

    @property
    def sha256(self) -> str:
        """Sum of the content, as hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    def command(self) -> str:
        """Return the call of `pulse_put` with the content behind it."""
        text = base64.encodebytes(self.content).decode("ascii")
        return (
            f"    pulse_put {self.target} {self.mode:04o} {len(self.content)} {self.sha256} "
            f"<<'{_MARK}' || return 1\n{text}{_MARK}\n"
        )


def embed(source: Path, target: str, mode: int) -> EmbeddedFile:
    """Read a file that is to become `target`. Raises EmbeddingError."""
    try:
        content = source.read_bytes()
    except OSError as error:
        raise EmbeddingError(f"{source} cannot be read: {error.strerror}") from error
    if not content:
        raise EmbeddingError(f"{source}, to become {target}, is empty")
    path = PurePosixPath(target)
    if not _SAFE_PATH.fullmatch(target) or ".." in path.parts:
        raise EmbeddingError(f"{target} is no path that a shell takes as it is; rename {source}")
    return EmbeddedFile(target, content, mode)


def check_sizes(files: Iterable[EmbeddedFile], limit_bytes: int) -> None:
    """See that the files fit together. Raises EmbeddingError naming the largest."""
    listed = list(files)
    total = sum(len(file.content) for file in listed) * 4 // 3
    if total > limit_bytes:
        largest = max(listed, key=lambda file: len(file.content))
        raise EmbeddingError(
            f"the files take {total >> 20} MiB in bf.cfg, more than the limit of {limit_bytes >> 20} MiB; "
            f"{largest.target} alone has {len(largest.content) >> 20} MiB: build it into the image, "
            "or raise --limit-mib if your way to the card takes more"
        )


def check_pem(file: EmbeddedFile, private: bool) -> None:
    """See that a certificate is one, and that a private key is not taken for one. Raises EmbeddingError."""
    has_key = b"PRIVATE KEY-----" in file.content
    if private and not has_key:
        raise EmbeddingError(f"what is to become {file.target} holds no private key in PEM")
    if not private and has_key:
        raise EmbeddingError(
            f"what is to become {file.target}, readable to all, holds a private key; give it as --key"
        )
    if not private and b"-----BEGIN CERTIFICATE-----" not in file.content:
        raise EmbeddingError(f"what is to become {file.target} holds no certificate in PEM")


def unpack_function(name: str, files: Iterable[EmbeddedFile]) -> str:
    """Return a bash function that unpacks the files in order."""
    body = "".join(file.command() for file in files)
    return f"{name}() {{\n{body or '    :' + chr(10)}}}\n"
