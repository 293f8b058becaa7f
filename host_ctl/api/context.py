# SPDX-License-Identifier: Apache-2.0
"""What handlers work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from host_ctl.api.events import Broadcaster
from host_ctl.api.snapshot import Snapshot
from host_ctl.incidents.desk import Desk
from host_ctl.incidents.queries import IncidentReader


@dataclass(frozen=True, slots=True)
class Context:
    """The controller as the API sees it; `snapshot` may be called from any thread."""

    snapshot: Callable[[], Snapshot]
    desk: Desk
    reader: IncidentReader
    events: Broadcaster
    document: dict[str, Any]
    refused: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose query and body have been read; those are None where an operation has none."""

    request: Request
    query: Any
    body: Any

    def number(self, name: str) -> int | None:
        """The number of an incident or silence in the path; None when it is none."""
        text = str(self.request.path_params[name]).removeprefix("i")
        return int(text) if text.isdecimal() and len(text) < 19 else None
