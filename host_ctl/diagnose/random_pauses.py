# SPDX-License-Identifier: Apache-2.0
"""Long pauses that hit now this machine, now that one, as those of a garbage collector do."""

from __future__ import annotations

import numpy as np

from host_ctl.attribute.features import Features
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import machine_columns
from host_ctl.diagnose.notices import notice, usual_ns
from host_ctl.diagnose.suspects import find_suspects, gains
from host_ctl.diagnose.verdict import Evidence, Verdict
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

_LONG = 0.25
_MIN_PAUSES = 3
_ONE_SHARE = 0.7


def random_pauses(traffic: Traffic, job: Job, features: Features, replayed: Replay) -> Verdict | None:
    """A notice when long pauses come again and again on different machines.

    A pause is what an iteration would gain without one machine's lateness, so that what nobody waits for is
    none.
    """
    base = usual_ns(features)
    columns = list(machine_columns(traffic, job).values())
    hosts = [s for s in find_suspects(replayed, job, columns, _LONG * base, fewest=1) if s.feature == "host"]
    gained = gains(replayed, hosts, [])
    pauses = np.argwhere(gained[1:-1] > _LONG * base)
    if len(pauses) < _MIN_PAUSES:
        return None
    machines, counts = np.unique(pauses[:, 1], return_counts=True)
    if len(machines) < 2 or counts.max() > _ONE_SHARE * len(pauses):
        return None
    cost = float(sum(gained[1:-1][i, j] for i, j in pauses))
    return notice(
        job,
        "random_pauses",
        f"no machine is to blame: {len(pauses)} pauses hit {len(machines)} machines of "
        f"{job.id} in turn, {cost / 1e9:.1f} s in all",
        (
            Evidence("pauses", float(len(pauses)), None, "pauses"),
            Evidence("machines_hit", float(len(machines)), float(len(columns)), "machines"),
        ),
        onset=int(pauses[0, 0]) + 1,
        detected=int(pauses[_MIN_PAUSES - 1, 0]) + 1,
        cost_ns=cost,
        confidence=0.9,
    )
