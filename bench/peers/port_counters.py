# SPDX-License-Identifier: Apache-2.0
"""Port counters read once per second: a port below its peers, or below its own past, or silent.

Source: common practice (node and RDMA exporters, UFM, dashboards with thresholds); the comparison with peers
over time follows Minder (NSDI 2025), which does it with a learned model on per-second host counters.

Scaling. Jobs are simulated at a fraction of their real size: the compute time of an iteration, for one, is
``compute_ns`` instead of the 17 s of a 70B model. A second becomes that fraction of a second, so that an
iteration holds as many samples as the real one would (REAL_COMPUTE_S below).

Reading. Each port has a rate of sent and received bytes per sample. (a) A port whose mean rate over a window
lies below the median of its job's ports by a share and by robust Z-score, in most windows, is slow. The same
for the rate while it sends (upper decile of its samples). (b) If the whole job's bytes per window of several
iterations fall below its own past for good, something is slow, no machine known. (c) If all ports fall silent
for longer than two iterations, the job stands; the port that fell silent first, by a sample at least, is
named.

Where practice is open, what helps: ports are compared within a job and a rail; thresholds are set on healthy
runs; windows are as long as an iteration, and that a job has come to its end is known; a dashboard knows
neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.activity import Activity, activity, spread
from bench.peers.interface import ContenderVerdict

REAL_COMPUTE_S = {"dp": 17.2, "pp": 17.2, "fsdp": 2.0, "moe": 2.3, "cp": 6.1}
BELOW = 0.85  # of the peers' median
Z_LIMIT = 4.0
FELL = 0.9  # of the own past
HISTORY, WINDOWS = 4, 3  # iterations
SHARE = 0.6  # of the windows in which a port must be below its peers

Floats = NDArray[np.float64]


class PortCounters:
    """Rules on per-second counters of ports."""

    name = "port-counters"

    def judge(self, truth: dict[str, Any], frames: Sequence[Path]) -> list[ContenderVerdict]:
        """All rules, job by job."""
        seen = activity(truth, frames)
        end_ns = truth["capture"]["end_ns"]
        return [
            verdict
            for job in truth["jobs"]
            if job["workload"] in REAL_COMPUTE_S  # what is replayed has a scale of its own
            for verdict in judge(
                seen, job["id"], second_ns(job), _iteration_ns(job), None if finished(truth, job) else end_ns
            )
        ]


def finished(truth: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether the job came to its end, which the scheduler knows."""
    ends = [rank["steps"][-1:] for rank in truth["ranks"] if rank["job"] == job["id"]]
    last = int(job["params"]["steps"]) - 1
    return all(s and s[0]["step"] == last and s[0]["collective_end_ns"] is not None for s in ends)


def second_ns(job: Mapping[str, Any]) -> float:
    """How much simulated time stands for a second of this job."""
    return float(job["params"]["compute_ns"]) / REAL_COMPUTE_S[job["workload"]]


def _iteration_ns(job: Mapping[str, Any]) -> float:
    """The usual length of an iteration, for windows; a job without one finished iteration: its compute."""
    times = job["iteration_ms"][:HISTORY]
    return float(np.median(times)) * 1e6 if times else float(job["params"]["compute_ns"])


def judge(
    seen: Activity, job: int, second: float, iteration_ns: float, end_ns: int | None
) -> list[ContenderVerdict]:
    """What counters say of one job; ``end_ns`` None: it has finished, and silence means nothing."""
    ports = [number for number, port in enumerate(seen.ports) if job in port.jobs]
    mine = seen.messages[np.isin(seen.messages["port"], ports)]
    if not len(mine):
        return []
    begin = int(mine["begin_ns"].min())
    last = int(mine["end_ns"].max()) if end_ns is None else end_ns
    bins = int((last - begin) / second)
    rates = {
        port: sum(
            spread(mine[(mine["port"] == port) & (mine["sent"] == way)], begin, second, bins)
            for way in (True, False)
        )
        for port in ports
    }
    table = np.array([rates[port] for port in ports])
    machines = [seen.ports[port].machine for port in ports]
    width = max(1, round(iteration_ns / second))
    silent = None if end_ns is None else _silence(table, machines, width)
    if silent is not None:
        return [silent]
    below = _below_peers(table, machines, [seen.ports[port].nic for port in ports], width)
    return [below] if below is not None else _below_past(table.sum(axis=0), width)


def _silence(table: Floats, machines: list[str], width: int) -> ContenderVerdict | None:
    """The job stands if it ends in a silence longer than two iterations; first silent, first blamed."""
    last = np.array([np.flatnonzero(row)[-1] if row.any() else -1 for row in table])
    if table.shape[1] - 1 - last.max() < 2 * width:
        return None
    first = {machines[n] for n in np.flatnonzero(last == last.min())}
    others = last[[machines[n] not in first for n in range(len(machines))]]
    clear = len(first) == 1 and len(others) and others.min() > last.min()
    return ContenderVerdict(first.pop() if clear else None, None, "fail_stop", int(last.max() // width))


def _below_peers(table: Floats, machines: list[str], rails: list[str], width: int) -> ContenderVerdict | None:
    windows = table.shape[1] // width
    cut = table[:, : windows * width].reshape(len(table), windows, width)
    for figures in (cut.mean(axis=2), np.quantile(cut, 0.9, axis=2)):
        found: list[tuple[int, str]] = []
        for window in range(1, windows):
            found += [(window, machines[n]) for n in _low(figures[:, window], rails)]
        counts = Counter(machine for _, machine in set(found))
        for machine, count in counts.most_common(1):
            since = min(window for window, other in found if other == machine)
            if count >= max(WINDOWS, SHARE * (windows - since)):
                return ContenderVerdict(machine, "nic_slow", "fail_slow", since)
    return None


def _low(rates: Floats, rails: list[str]) -> list[int]:
    """Ports of one rail that lie below its others by share and by robust Z-score."""
    found = []
    for rail in set(rails):
        here = [n for n, other in enumerate(rails) if other == rail]
        usual = float(np.median(rates[here]))
        deviation = 1.4826 * float(np.median(np.abs(rates[here] - usual)))
        limit = min(BELOW * usual, usual - Z_LIMIT * deviation)
        found += [n for n in here if len(here) > 2 and rates[n] < limit]
    return found


def _below_past(total: Floats, width: int) -> list[ContenderVerdict]:
    """Whether the bytes of several iterations together fall for good."""
    several = WINDOWS * width
    windows = len(total) // several
    figures = total[: windows * several].reshape(windows, several).mean(axis=1)
    for first in range(2, windows):
        if figures[first:].max() < FELL * figures[1:first].min():
            return [ContenderVerdict(None, None, "fail_slow", WINDOWS * first)]
    return []
