# SPDX-License-Identifier: Apache-2.0
"""Ways to tell somebody something, each bounded in time."""

from __future__ import annotations

from typing import Protocol


class RefusedError(Exception):
    """The receiver does not want this one; telling it again would change nothing."""


class UnreachableError(Exception):
    """It could not be told now; ``retry_s`` is when the receiver wants to be asked again, if it said so."""

    def __init__(self, text: str, retry_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_s = retry_s


class Channel(Protocol):
    """One way."""

    def send(self, body: str) -> None:
        """Tell it. Raises RefusedError, UnreachableError or OSError."""
