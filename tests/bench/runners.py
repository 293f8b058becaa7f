# SPDX-License-Identifier: Apache-2.0
"""What processes of a campaign run in place of a simulation; loads little, since each process loads it."""

from __future__ import annotations

import os
from pathlib import Path

from bench.scenarios.cases import Case
from bench.scenarios.results import Result
from tests.bench.facts import ended


def leave_mark(one: Case) -> Result:
    """Show on disk how often a case ran."""
    with Path(os.environ["PULSE_TEST_MARKS"]).open("a") as file:
        file.write(f"{one.seed}\n")
    return ended(one)


def die_of_one(one: Case) -> Result:
    """Die of one case."""
    if one.seed == 1:
        os._exit(9)
    return ended(one)
