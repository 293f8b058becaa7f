# SPDX-License-Identifier: Apache-2.0
"""What a message waits for before it is sent, and how long after that it is sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.gates import NOTHING
from host_ctl.attribute.needs import Sharing
from host_ctl.attribute.program import Program
from host_ctl.ingest.series import Table

_LEAST = 0.02  # of the lags seen at one place, as for needs: single early sends must not undercut
_NORMAL = 0.25
WAITS = (("input_row", "input_lag", "transfer"), ("before_row", "before_lag", "sending"))
"""What a send waits for, the lag after it, and how long that took from its own start."""


def local(place_of: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(rows != NOTHING, place_of[rows], NOTHING)


def begin_anew(program: Program, sharing: Sharing) -> NDArray[np.bool_]:
    """Messages that begin an operator long after their lane's message before, which tells no norm.

    Since then their rank has waited for the end of what came between: the time from one iteration to the
    next is that of the slowest for everybody.
    """
    in_rounds = {lane.group for lane in program.lanes if lane.round}
    found = []
    for index, lane in enumerate(program.lanes):
        once = np.full(len(lane.rows), lane.volume == 1 and lane.group not in in_rounds)
        found.append(once | sharing.begins(index, lane))
    return np.concatenate(found)


def since(messages: Table, row: str, length: str) -> NDArray[np.float64]:
    """How long after what it waits for each message was sent (ns), NaN where it waits for nothing."""
    source = messages[row]
    done = messages["start"][source] + messages[length][source]
    return np.where(source != NOTHING, messages["start"] - done, np.nan).astype(np.float64)


def split(program: Program, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return np.split(values, np.cumsum([len(lane.rows) for lane in program.lanes])[:-1])


def least(values: NDArray[np.float64]) -> float:
    return float(np.quantile(values, _LEAST))


def mean(values: NDArray[np.float64]) -> float:
    return float(np.mean(values))


def middle(values: NDArray[np.float64]) -> float:
    return float(np.median(values))


def normal(values: NDArray[np.float64]) -> float:
    return float(np.quantile(values, _NORMAL))
