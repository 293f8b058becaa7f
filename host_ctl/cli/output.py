# SPDX-License-Identifier: Apache-2.0
"""Writing results to stdout."""

from __future__ import annotations

import os
import sys

from host_ctl.errors import OutputError

EXIT_STATUS = {"ok": 0, "degraded": 3, "failed": 3, "unsure": 4}
"""What a health is to whoever called."""


def write(text: str) -> None:
    """Write to stdout. A reader that has gone is no error: it has read what it wanted."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
    except OSError as error:
        _discard_stdout()
        raise OutputError(f"the report cannot be written to stdout: {error.strerror}") from error


def _discard_stdout() -> None:
    """Keep the interpreter from flushing once more at its end, and failing once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
