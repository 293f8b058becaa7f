# SPDX-License-Identifier: Apache-2.0
"""What was repeated because its receiver was not ready was not lost, and waited for the receiver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpu_app.wire import records
from dpu_app.wire.records import EventKind
from host_ctl.align.clock import NicClock
from host_ctl.reconstruct.repairs import LossPlace, mend
from host_ctl.reconstruct.transfers import MISSING, Traffic
from tests.host_ctl.made import series, table, traffic

US = 1_000
SENT, ANSWERED = 0, 1


def repeated(answer: EventKind) -> Traffic:
    """Three messages; the second is answered after 5 us, and sent again after 300."""
    made = traffic(2, {(0, 1): [(k * 1_000 * US, k * 1_000 * US + 20 * US) for k in range(3)]})
    begun = 1_000 * US
    events = table(
        records.EVENT,
        2,
        start_ns=[begun + 5 * US, begun + 300 * US],
        end_ns=[begun + 5 * US, begun + 300 * US],
        flow=[ANSWERED, SENT],
        psn=[1, 1],
        kind=[answer, EventKind.REPEAT],
    )
    events["count"] = 1
    seen = replace(series(0, []), events=events)
    link = replace(made.links[0], sender_flow=SENT, answered_flow=ANSWERED)
    ends = (replace(made.endpoints[0], series=0), made.endpoints[1])
    return replace(
        made,
        series=(seen,),
        clocks=(NicClock(0.0, 0.0, 0, None, None, "none", 0),),
        links=(link,),
        endpoints=ends,
    )


def test_a_refused_message_waits_for_its_receiver_until_it_is_sent_again() -> None:
    mended, repairs = mend(repeated(EventKind.RNR))
    assert mended.transfers["tx_start"].tolist() == [0, 1_300 * US, 2_000 * US]
    assert (mended.transfers["credit_rx"] != MISSING).tolist() == [False, True, False]
    assert len(repairs) == 1


def test_a_message_of_which_packets_are_missing_began_when_it_was_first_sent() -> None:
    made = repeated(EventKind.NAK_SEQUENCE)
    mended, repairs = mend(made)
    assert np.array_equal(mended.transfers["tx_start"], made.transfers["tx_start"])
    assert (mended.transfers["credit_rx"] == MISSING).all()
    assert repairs["place"].tolist() == [LossPlace.UNKNOWN]
