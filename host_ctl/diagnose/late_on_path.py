# SPDX-License-Identifier: Apache-2.0
"""Late hosts on the critical path, where replaying without anybody gains nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features, under_way
from host_ctl.attribute.program import Program
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import SlowCase, excess_of, machine_columns, path_excess, rise_inside
from host_ctl.diagnose.decide import FROM_START, find_shifts
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.transfers import Traffic

_UNREPLAYED_FROM_START = 2 * FROM_START
_COSTS, _ON_PATH = 0.5, 0.3
_MOST_OFTEN = 0.8
_FEWEST_PEERS = 3


def late_on_path(
    traffic: Traffic,
    program: Program,
    features: Features,
    replayed: Replay,
    paths: Table,
    usable: NDArray[np.bool_],
    least_ns: float,
) -> list[SlowCase]:
    """The machine that is latest and on the critical path, where replaying without anybody gains nothing.

    Some waits are not seen, as those for a GPU of the own machine. What waits unseen stays as late in the
    replay as it was, and hides what it waited for.
    """
    job = program.job
    ways = under_way(traffic, program)
    columns = list(machine_columns(traffic, job).values())
    table = np.stack([features.host[:, c].mean(axis=1) for c in columns], axis=1)
    # Without a before only members that play the same part can be told apart, and what was late once may be
    # counted again in every operator after it.
    compared = replayed.compared.all() and len(columns) >= _FEWEST_PEERS
    from_start = _UNREPLAYED_FROM_START if compared else np.inf
    for shift in find_shifts(table, least_ns=least_ns, usable=usable, from_start=from_start):
        if max(shift.share_worst, shift.over_past) < _MOST_OFTEN:
            continue
        case = SlowCase("host", tuple(columns[shift.member]), shift, worth_ns=shift.excess_ns)
        rise = rise_inside(features, usable, (shift.onset, shift.end))
        if rise is not None and rise < max(least_ns, _COSTS * shift.excess_ns):
            continue
        # Messages that are slow make hosts late, and where waits are unseen nothing else tells that.
        slow = max(excess_of(way, case, features) for way in ways) >= shift.excess_ns
        if not slow and path_excess(case, job, paths) >= _ON_PATH * shift.excess_ns:
            return [case]
    return []
