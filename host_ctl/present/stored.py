# SPDX-License-Identifier: Apache-2.0
"""Reads reports that were kept as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from host_ctl.errors import InputError, printable

REPORT_SCHEMA = "pulse.report/1"
_MAX_REPORT_BYTES = 256 << 20
_PARTS = ("health", "inputs", "jobs", "verdicts", "data_quality")


def read_report(source: str) -> dict[str, Any]:
    """A report as ``pulse analyze --json`` wrote it, ``-`` for stdin. Raises InputError on anything else."""
    name = "stdin" if source == "-" else printable(source)
    try:
        if source == "-":
            text = sys.stdin.buffer.read(_MAX_REPORT_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                text = file.read(_MAX_REPORT_BYTES + 1)
        if len(text) > _MAX_REPORT_BYTES:
            raise InputError(f"{name} is larger than any report: make it with pulse analyze --json")
        report = json.loads(text)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise InputError(f"{name} is no JSON: make it with pulse analyze --json") from None
    if not isinstance(report, dict) or report.get("schema") != REPORT_SCHEMA:
        raise InputError(f"{name} is no report of schema {REPORT_SCHEMA}: make it with pulse analyze --json")
    for part in _PARTS:
        if part not in report:
            raise InputError(f"{name} has no {part}: make it anew with pulse analyze --json")
    return report
