# SPDX-License-Identifier: Apache-2.0
"""The table of what can be asked; routes and their documentation are both made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from host_ctl.api.context import Asked, Context

Handler = Callable[[Context, Asked], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked. ``answer`` is a dataclass, or None where a handler answers by itself.

    ``media`` is of such an answer. ``failures`` are statuses beside those that every operation may have.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    summary: str
    handler: Handler
    answer: type | None = None
    query: type | None = None
    body: type | None = None
    media: str = "application/json"
    failures: tuple[int, ...] = ()
