# SPDX-License-Identifier: Apache-2.0
"""The file of results: one line of JSON per case, appended as cases end, so that a run can be taken up."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.scenarios.outcome import Outcome, outcome_from

FILE_NAME = "results.jsonl"


@dataclass(frozen=True, slots=True)
class Result:
    """A case that has ended: with an outcome, or with the reason why there is none."""

    case: str
    outcome: Outcome | None
    failure: str | None = None

    def line(self) -> str:
        """The result as one line."""
        outcome = None if self.outcome is None else self.outcome.as_dict()
        return json.dumps({"case": self.case, "failure": self.failure, "outcome": outcome}) + "\n"


class ResultFile:
    """Results on disk. A last line that was cut off is dropped when the file is opened."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.earlier: dict[str, Result] = {}
        whole = 0
        if resume and path.exists():
            content = path.read_bytes()
            for line in content.splitlines(keepends=True):
                result = _parsed(line)
                if result is None:
                    break
                self.earlier[result.case] = result
                whole += len(line)
        self._file: IO[bytes] = path.open("ab")
        self._file.truncate(whole)

    def append(self, result: Result) -> None:
        """Write a result so that it survives the end of this process."""
        self._file.write(result.line().encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def of(self, cases: Iterable[str]) -> list[Result]:
        """The earlier results of these cases."""
        return [self.earlier[case] for case in cases if case in self.earlier]


def _parsed(line: bytes) -> Result | None:
    """A result, or None when the line is not whole."""
    if not line.endswith(b"\n"):
        return None
    try:
        data: dict[str, Any] = json.loads(line)
        outcome = data["outcome"]
        return Result(data["case"], None if outcome is None else outcome_from(outcome), data["failure"])
    except (ValueError, KeyError, TypeError):
        return None
