# SPDX-License-Identifier: Apache-2.0
"""Patterns that cost time and accuse nobody: pauses that hit now this rank, now that one."""

from __future__ import annotations

import numpy as np

from host_ctl.attribute.features import Features
from host_ctl.attribute.replay import Replay
from host_ctl.diagnose.cases import machine_columns
from host_ctl.diagnose.suspects import find_suspects, gains
from host_ctl.diagnose.verdict import Evidence, Verdict
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic

_LONG = 0.25
_MIN_PAUSES = 3
_ONE_SHARE = 0.7


def find_patterns(traffic: Traffic, job: Job, features: Features, replayed: Replay) -> list[Verdict]:
    """A notice when long pauses come again and again on different machines.

    A pause is what an iteration would gain without one machine's lateness, so that what nobody waits for is
    none.
    """
    base = float(np.median(features.duration_ns))
    columns = list(machine_columns(traffic, job).values())
    hosts = [s for s in find_suspects(replayed, job, columns, _LONG * base, fewest=1) if s.feature == "host"]
    gained = gains(replayed, hosts, [])
    pauses = np.argwhere(gained[1:-1] > _LONG * base)
    if len(pauses) < _MIN_PAUSES:
        return []
    machines, counts = np.unique(pauses[:, 1], return_counts=True)
    if len(machines) < 2 or counts.max() > _ONE_SHARE * len(pauses):
        return []
    cost = float(sum(gained[1:-1][i, j] for i, j in pauses))
    first = int(pauses[0, 0]) + 1
    return [
        Verdict(
            job=job.id,
            severity="notice",
            cause="random_pauses",
            scope="none",
            machine=None,
            nic=None,
            peer=None,
            candidates=(),
            onset_ns=int(job.boundaries_ns[first]),
            onset_iteration=first,
            detected_iteration=int(pauses[_MIN_PAUSES - 1, 0]) + 1,
            slowdown=None,
            lost_gpu_seconds=cost / 1e9 * len(job.members),
            confidence=0.9,
            evidence=(
                Evidence("pauses", float(len(pauses)), None, "pauses"),
                Evidence("machines_hit", float(len(machines)), float(len(columns)), "machines"),
            ),
            summary=(
                f"no machine is to blame: {len(pauses)} pauses hit {len(machines)} machines of "
                f"{job.id} in turn, {cost / 1e9:.1f} s in all"
            ),
        )
    ]
