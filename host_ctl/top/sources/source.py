# SPDX-License-Identifier: Apache-2.0
"""Where snapshots come from. A source works in threads of its own and never waits for the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from host_ctl.present.details import Curve
from host_ctl.top.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Wanted:
    """A curve that somebody looks at."""

    job: str
    nic: str
    iteration: int


@dataclass(frozen=True, slots=True)
class Listener:
    """Whom a source tells; each may be called from any thread."""

    snapshot: Callable[[Snapshot], None]
    curve: Callable[[Wanted, Curve | None], None]
    said: Callable[[str], None]


class Source(Protocol):
    """A live controller, captures, or a report."""

    def first(self) -> Snapshot:
        """What there is to show before anything has come."""

    def start(self, listener: Listener) -> None:
        """Begin to work."""

    def want(self, wanted: Wanted) -> None:
        """Ask for a curve; it comes to the listener, None where there is none."""

    def look_into(self, incident: str) -> None:
        """Ask for the steps of an incident; they come with a snapshot."""

    def acknowledge(self, incident: str, text: str) -> None:
        """Take an incident on."""

    def note(self, incident: str, text: str) -> None:
        """Write something about an incident."""

    def evidence(self, folder: Path, snapshot: Snapshot) -> None:
        """Write what there is into a folder; what came of it is said."""

    def stop(self) -> None:
        """End; threads may take a moment longer."""
