# SPDX-License-Identifier: Apache-2.0
"""Lost time per NIC and iteration, and where there is nothing that could tell it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from host_ctl.attribute.features import Features
from host_ctl.present.analysed import AnalysedJob
from host_ctl.reconstruct.transfers import Traffic


class Known(IntEnum):
    """Whether a figure is known: stale where the NIC's capture did not run, missing where there is none."""

    YES = 0
    STALE = 1
    MISSING = 2


@dataclass(frozen=True, slots=True)
class LostTime:
    """``ns[iteration, member]`` in the order of ``members`` (endpoints), with ``known`` beside it.

    ``by_kind`` holds the members' totals (ns): what their hosts held up, messages that they sent, messages
    that they got, repeats.
    """

    members: tuple[int, ...]
    ns: NDArray[np.float64]
    known: NDArray[np.int64]
    by_kind: NDArray[np.float64]


def lost_time(analysed: AnalysedJob, traffic: Traffic) -> LostTime:
    """What is charged to every NIC of a job. A slow message shows at both of its ends."""
    f: Features = analysed.features
    known = np.full(f.host.shape, int(Known.YES))
    begins, ends = analysed.job.boundaries_ns[:-1], analysed.job.boundaries_ns[1:]
    for column, member in enumerate(f.members):
        index = traffic.endpoints[member].series
        if index is None:
            known[:, column] = Known.MISSING
            continue
        series, clock = traffic.series[index], traffic.clocks[index]
        ran = clock.to_common(np.array([series.first_ns, max(series.last_ns, series.witness_ns)]))
        known[(ends <= ran[0]) | (begins > ran[1]), column] = Known.STALE
    kinds = np.stack([part.sum(axis=0) for part in (f.host, f.egress, f.ingress, f.repair)])
    return LostTime(f.members, f.host + np.maximum(f.egress, f.ingress) + f.repair, known, kinds)


def in_columns(lost: LostTime, most: int) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """Means over as few neighbouring iterations as leave at most ``most``: values, known, how many each."""
    count = len(lost.ns)
    each = -(-count // most)
    starts = np.arange(0, count, each)
    sizes = np.diff(np.r_[starts, count])[:, None]
    values = np.add.reduceat(lost.ns, starts, axis=0) / sizes
    # A stretch is as little known as the least known of its iterations is not: any known one tells.
    return values, np.minimum.reduceat(lost.known, starts, axis=0), each
