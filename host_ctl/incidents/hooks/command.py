# SPDX-License-Identifier: Apache-2.0
"""Runs a program that gets the JSON on its input; no shell, and an end after the time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import IO

from host_ctl.errors import printable
from host_ctl.incidents.hooks.channel import UnreachableError
from host_ctl.incidents.hooks.config import HookConfig

_SHOWN = 200
_CHUNK = 4096
# What a program needs to run; settings and secrets of the controller are none of its business.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
_LAST_WORDS_S = 1.0


class CommandChannel:
    """One program."""

    def __init__(self, config: HookConfig) -> None:
        self._config = config

    def send(self, body: str) -> None:
        """Run it. Raises UnreachableError when it fails, or OSError when there is no such program."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        process = subprocess.Popen(
            self._config.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        words = _LastWords(process.stderr)
        # Pipes of its children may outlive it, so threads do the talking and only its end is waited for.
        feeding = threading.Thread(target=_feed, args=(process.stdin, body.encode()), daemon=True)
        feeding.start()
        try:
            status = process.wait(self._config.timeout_s)
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"not ended after {self._config.timeout_s:g} s, killed") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            feeding.join(_LAST_WORDS_S)
        if status:
            ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            raise UnreachableError(f"{ended}: {words.text}".rstrip(": "))


class _LastWords:
    """Reads what a program writes, and keeps the end of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while chunk := os.read(self._stream.fileno(), _CHUNK):
                self._kept = (self._kept + chunk)[-_SHOWN:]

    @property
    def text(self) -> str:
        """One line."""
        self._thread.join(_LAST_WORDS_S)
        return printable(self._kept.decode(errors="replace"))


def _feed(stream: IO[bytes], data: bytes) -> None:
    # A program need not read what it is told.
    with contextlib.suppress(BrokenPipeError), stream:
        stream.write(data)
