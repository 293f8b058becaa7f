# SPDX-License-Identifier: Apache-2.0
"""A process that shows a desk the same looks whenever it runs, going on where the file says it was.

`python -m tests.incidents.writer FOLDER LOOKS`; a line is written for each look and acknowledgement that is
durable. What a look shows depends on its number alone.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from host_ctl.incidents.desk import Desk, DeskConfig
from host_ctl.incidents.store import Store
from host_ctl.live.findings import JobState
from tests.incidents.made import BEGIN_NS, QUICK, SECOND, URL, findings, job, verdict


def seen(number: int) -> JobState:
    """What a look shows: two faults that come and go at different times, one of them with two causes."""
    there = []
    if number % 17 < 9:
        there.append(verdict("node1", "nic_slow" if number % 5 == 4 else "compute_slow", cost=1.0))
    if number % 41 < 6:
        there.append(verdict("node2", "hang", "fail_stop"))
    return job(*there)


def show(folder: Path, looks: int, *, aloud: bool) -> None:
    """Show all looks from where the file is."""
    store = Store(folder)
    state = store.tracker_state()
    store.close()
    begin = 0 if state is None else (state.last_ns - BEGIN_NS) // SECOND
    desk = Desk(DeskConfig(folder, QUICK, 1e5, (), URL))
    for number in range(begin + 1, looks + 1):
        desk.take(findings(number, seen(number)))
        while desk.status.looks < number - begin:
            time.sleep(0.0002)
        if aloud:
            print("look", number, flush=True)
        opened = [each for each in desk.status.open if each.number not in desk.status.acknowledged]
        if number % 3 == 0 and opened:
            desk.acknowledge(opened[0].number, "ann", "").result()
            if aloud:
                print("acknowledged", opened[0].number, flush=True)
    desk.stop()


if __name__ == "__main__":
    show(Path(sys.argv[1]), int(sys.argv[2]), aloud=True)
