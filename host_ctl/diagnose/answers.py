# SPDX-License-Identifier: Apache-2.0
"""Who acknowledges late: a NIC that is slow to take what has passed its tap, or slow to send anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from host_ctl.diagnose.verdict import Evidence
from host_ctl.ingest.local import packed_address
from host_ctl.reconstruct.jobs import Job
from host_ctl.reconstruct.transfers import Traffic
from pulse_native import histogram_lower_bound

_UPPER = 0.8
_FAR_LATER = 2.5


def latest_to_answer(
    traffic: Traffic, job: Job, suspects: Sequence[int]
) -> tuple[int | None, Evidence | None]:
    """Which of some NICs acknowledges later than all others of the job, and by how much, if one does.

    It must be later by far: acknowledgements that are put off until more packets have come wait longer
    where these come slowly, whoever slows them, and all wait behind what a NIC sends itself.
    """
    answers = {m: v for m in job.members if (v := answer_ns(traffic, m)) is not None}
    others = np.array([v for m, v in answers.items() if m not in suspects])
    known = [m for m in suspects if m in answers]
    if not len(others) or not known:
        return None, None
    end = max(known, key=answers.__getitem__)
    usual = max(float(np.median(others)), 1.0)
    if answers[end] <= others.max() or answers[end] < _FAR_LATER * usual:
        return None, None
    return end, Evidence("time_to_acknowledge", answers[end] / 1e3, usual / 1e3, "us")


def answer_ns(traffic: Traffic, endpoint: int) -> float | None:
    """How long a NIC takes to acknowledge, at its own tap: an upper quantile (ns), None if unseen."""
    index = traffic.endpoints[endpoint].series
    if index is None:
        return None
    series = traffic.series[index]
    own = {packed_address(a) for a in series.addresses}
    flows = [int(r["flow"]) for r in series.flows if r["dst"].tobytes() in own]
    cells = series.ack_histogram[np.isin(series.ack_histogram["flow"], flows)]
    if not len(cells):
        return None
    counts = np.bincount(cells["cell"], weights=cells["count"])
    reached, wanted = np.cumsum(counts), _UPPER * counts.sum()
    cell = int(np.searchsorted(reached, wanted))
    # Cells are wide: within one its counts lie anywhere.
    share = 1.0 - (reached[cell] - wanted) / counts[cell]
    low, high = histogram_lower_bound(cell), histogram_lower_bound(cell + 1)
    return float(low + share * (high - low))
