# SPDX-License-Identifier: Apache-2.0
"""What the controller itself does with the results of live analysis: a file, and lines in the log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from host_ctl.live.findings import Findings
from host_ctl.live.state_file import write_atomically

LATEST_NAME = "latest.json"
_LOG = logging.getLogger(__name__)


class LatestReport:
    """Keeps the latest report in a file, for whoever wants to read it meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def take(self, findings: Findings) -> None:
        """Replace the file. A disk that takes nothing is told once."""
        try:
            write_atomically(self._path, json.dumps(findings.report, indent=1) + "\n")
        except OSError as error:
            if not self._failed:
                _LOG.warning("%s cannot be written: %s", self._path, error.strerror or error)
            self._failed = True
        else:
            self._failed = False


class ChangeLog:
    """Tells in the log when health, verdicts, silent NICs or what limits the analysis change."""

    def __init__(self) -> None:
        self._health: str | None = None
        self._verdicts: dict[tuple[str, str, str | None, str | None], str] = {}
        self._silent: tuple[str, ...] = ()
        self._limited = False

    def take(self, findings: Findings) -> None:
        """Compare with what was told before."""
        verdicts: dict[tuple[str, str, str | None, str | None], str] = {
            (v.job, v.cause, v.machine, v.nic): v.summary for job in findings.jobs for v in job.verdicts
        }
        if findings.health != self._health:
            _LOG.info("health: %s%s", findings.health, f", was {self._health}" if self._health else "")
        for key, summary in verdicts.items():
            if key not in self._verdicts:
                _LOG.warning("verdict: %s", summary)
        for key, summary in self._verdicts.items():
            if key not in verdicts:
                _LOG.info("no longer: %s", summary)
        if findings.silent != self._silent and findings.silent:
            _LOG.warning("nothing comes from %s", ", ".join(findings.silent))
        if bool(findings.problems) != self._limited:
            _LOG.info("analysis: %s", "; ".join(findings.problems) or "whole again")
        self._health, self._verdicts = findings.health, verdicts
        self._silent, self._limited = findings.silent, bool(findings.problems)
