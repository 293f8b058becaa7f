# SPDX-License-Identifier: Apache-2.0
"""One bad and one good iteration, chosen so that they tell what the fault does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from host_ctl.diagnose.verdict import Verdict
from host_ctl.present.analysed import AnalysedJob


@dataclass(frozen=True, slots=True)
class Chosen:
    """Two iterations: which ones, and in what respect."""

    bad: int
    bad_is: str
    good: int
    good_is: str


def choose(analysed: AnalysedJob, verdict: Verdict | None, columns: list[int]) -> Chosen | None:
    """The iterations to show side by side; None when there are not two. ``columns``: who is accused."""
    duration = analysed.features.duration_ns.astype(np.float64)
    if len(duration) < 2:
        return None
    whole = np.arange(len(duration)) if len(duration) < 4 else np.arange(1, len(duration) - 1)
    if verdict is None or not 0 <= verdict.onset_iteration < len(duration):
        longest = int(whole[np.argmax(duration[whole])])
        return Chosen(longest, "the longest", _middle(duration, whole[whole != longest]), "a usual one")
    if verdict.severity == "fail_stop":
        last = min(verdict.onset_iteration, len(duration) - 1)
        before = whole[whole < last]
        good = _middle(duration, before) if len(before) else (0 if last else 1)
        return Chosen(last, "where it stopped", good, "a usual one before")
    f = analysed.features
    lost = (f.host + np.maximum(f.egress, f.ingress) + f.repair)[:, columns].sum(axis=1)
    before, since = whole[whole < verdict.onset_iteration], whole[whole >= verdict.onset_iteration]
    since = since if len(since) else whole
    bad = _middle(duration, since[lost[since] >= np.median(lost[since])])
    if len(before):
        return Chosen(bad, "a usual one since the onset", _middle(duration, before), "a usual one before")
    others = whole[whole != bad]
    if not len(others):
        return None
    best = int(others[np.argmin(lost[others])])
    return Chosen(bad, "a usual one", best, "the one in which the accused lost least")


def _middle(duration: NDArray[np.float64], among: NDArray[np.int64]) -> int:
    """The iteration whose time is nearest to the median of some."""
    own = duration[among]
    return int(among[np.argmin(np.abs(own - np.median(own)))])
