# SPDX-License-Identifier: Apache-2.0
"""The first line of everything: the whole result in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Stated(Protocol):
    """What the sentence needs of a verdict, in whatever form it is at hand."""

    @property
    def severity(self) -> str:
        """``fail_stop``, ``fail_slow`` or ``notice``."""

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""


def headline(health: str, verdicts: Sequence[Stated], missing: Sequence[str], jobs: int) -> str:
    """The whole result in one sentence; ``verdicts`` begin with the gravest."""
    if verdicts and verdicts[0].severity != "notice":
        return verdicts[0].summary
    if health == "unsure":
        return missing[0] if missing else "there is not enough data to say"
    if verdicts:
        return verdicts[0].summary
    return f"no machine is to blame in {jobs} job{'s' if jobs != 1 else ''}"
