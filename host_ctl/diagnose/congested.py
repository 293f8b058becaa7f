# SPDX-License-Identifier: Apache-2.0
"""Congestion that no single NIC's messages tell: iterations and marked slow messages grow at once.

Where every step sends other messages, as a mixture of experts does, no message can be held against the same
one of other iterations, and what the job gains without a slow one is not known. But when iterations become
longer for good, and from then on messages are slow for about as long while switches mark them, the network
is busy. That accuses no machine.
"""

from __future__ import annotations

import numpy as np

from host_ctl.attribute.charges import Charge
from host_ctl.attribute.features import Features, time_covered
from host_ctl.diagnose.cases import SlowCase, usable_iterations
from host_ctl.diagnose.decide import Shift
from host_ctl.diagnose.queues import Queue
from host_ctl.diagnose.unexplained import lasting_rise
from host_ctl.ingest.series import Table
from host_ctl.reconstruct.jobs import Job

_SURE_Z = 4.0  # of two signs that have to come together
_MOST = 0.5
_APART = 0.8
_FEWEST_NICS = 2
_FEWEST_ITERATIONS = 6


def congested_case(job: Job, features: Features, charges: Table, least: float) -> SlowCase | None:
    """The case against the network, if marked messages alone account for most of a lasting slowdown.

    ``least`` is the smallest rise of the iteration time that counts, as a share.
    """
    usable = np.flatnonzero(usable_iterations(features))
    durations = features.duration_ns[usable].astype(np.float64)
    rise = lasting_rise(durations, least, _SURE_Z)
    if rise is None:
        return None
    at, before_ns, after_ns = rise
    if min(at, len(durations) - at) < _FEWEST_ITERATIONS:
        return None  # a few that carry more than others come in a row by chance
    marked = charges[
        (charges["kind"] == Charge.TRANSFER) & (charges["paced"] == 1) & (charges["iteration"] >= 0)
    ]
    slow = time_covered(marked, job.iterations)[usable]
    grown = float(np.median(slow[at:]) - np.median(slow[:at]))
    apart = float(np.mean(slow[at:] > np.quantile(slow[:at], 0.9)))
    if grown < _MOST * (after_ns - before_ns) or apart < _APART:
        return None
    own = [time_covered(marked[marked["src"] == m], job.iterations)[usable] for m in job.members]
    more = [float(np.median(one[at:]) - np.median(one[:at])) for one in own]
    if sum(x > 0 for x in more) < _FEWEST_NICS:
        return None  # one NIC's messages alone: where the queue stands would have to be found
    excess_ns = after_ns - before_ns
    onset, end = int(usable[at]), int(usable[-1]) + 1
    shift = Shift(
        member=int(np.argmax(more)),
        onset=onset,
        end=end,
        excess_ns=excess_ns,
        value_ns=float(np.median(slow[at:])),
        usual_ns=float(np.median(slow[:at])),
        share_worst=apart,
        p_value=0.0,
        detected=min(onset + 2, end - 1),
        over_past=apart,
        past=at,
        lasts=True,
    )
    return SlowCase("path", (shift.member,), shift, queue=Queue(None), worth_ns=excess_ns)
