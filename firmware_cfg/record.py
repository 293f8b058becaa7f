# SPDX-License-Identifier: Apache-2.0
"""The record of what was changed on which card, from which the change can be undone."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

SCHEMA = "pulse.firmware-record/1"
DEFAULT_FILE = Path("/var/lib/pulse-firmware/record.json")


class RecordError(Exception):
    """A record that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Change:
    """One parameter that was set; `before` is what the next power-on would have brought."""

    device: str
    key: str
    before: str
    before_number: int | None
    after: int


def read_record(file: Path) -> list[Change]:
    """Return the changes on record, none if there is no file. Raises RecordError."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"the record {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"the record {file} is no JSON: {error}; move it away") from error
    try:
        if content["schema"] != SCHEMA:
            raise RecordError(f"{file}: schema is {content['schema']!r}; this program reads {SCHEMA!r}")
        return [Change(**entry) for entry in content["changes"]]
    except (KeyError, TypeError) as error:
        raise RecordError(f"the record {file} lacks something: {error}; move it away") from error


def write_record(file: Path, changes: Iterable[Change]) -> None:
    """Write the changes so that a crash leaves the old record or the new one. Raises RecordError."""
    text = json.dumps({"schema": SCHEMA, "changes": [asdict(change) for change in changes]}, indent=2) + "\n"
    new = file.with_name(file.name + ".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with new.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise RecordError(
            f"the record {file} cannot be written: {error.strerror}; without it nothing is changed"
        ) from error


def added(changes: list[Change], more: Iterable[Change]) -> list[Change]:
    """Add changes; of a parameter that was set before, the oldest `before` stays and the newest `after`."""
    known = {(change.device, change.key): change for change in changes}
    for change in more:
        old = known.get((change.device, change.key))
        first = old or change
        known[change.device, change.key] = Change(
            change.device, change.key, first.before, first.before_number, change.after
        )
    return list(known.values())
