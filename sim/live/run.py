# SPDX-License-Identifier: Apache-2.0
"""Live output: simulated packets on real network devices, in scaled real time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sim.live.network import LiveDevice, LiveNetwork, remove_leftovers
from sim.live.sink import LiveSink, SendReport
from sim.output.records import records_of
from sim.output.truth import Truth, collect
from sim.simulate import Outcome, Progress, prepare, run
from sim.spec import ClockSpec, Scenario

__all__ = ["LiveDevice", "LiveRun", "in_true_time", "live_truth", "run_live"]

Told = Callable[[Sequence[LiveDevice]], None]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A finished live run. The packet stamped ``first_ns`` was due at ``begin_unix_ns`` of this machine.

    ``end_unix_ns`` is when the simulation ended: after a fault that stops the job, long after its packets.
    ``missing`` packets were sent and did not arrive at their device.
    """

    outcome: Outcome
    speed: float
    first_ns: int
    begin_unix_ns: int
    end_unix_ns: int
    sent: SendReport
    missing: int


def in_true_time(scenario: Scenario) -> Scenario:
    """The scenario as it is sent: whole packets, no clock errors.

    Whoever captures stamps packets with a clock of this machine, whose errors are real.
    """
    clock = scenario.clock
    true_clock = ClockSpec(
        tx_stamp=clock.tx_stamp, copy_delay_ns=clock.copy_delay_ns, copy_jitter_ns=clock.copy_jitter_ns
    )
    return replace(scenario, clock=true_clock, capture=replace(scenario.capture, snap_bytes=0))


def run_live(
    scenario: Scenario,
    speed: float,
    *,
    ready: Told | None = None,
    sent: Told | None = None,
    groups: int | None = None,
    progress: Progress | None = None,
) -> LiveRun:
    """Simulate ``in_true_time(scenario)`` and send its packets, ``speed`` simulated seconds per second.

    ``ready`` is told the devices before packets flow, ``sent`` when the simulated time is over and before the
    devices vanish. ``groups`` is the number of sender processes, by default one for every two processors.
    Raises SimulationError when the scenario is impossible, without root, or when a sender stops.
    """
    setting = prepare(in_true_time(scenario))
    remove_leftovers()
    with LiveNetwork(setting.world.nics) as network:
        if ready is not None:
            ready(network.devices)
        sink = LiveSink(network.devices, speed, groups or max(1, (os.cpu_count() or 1) // 2))
        network.at_stop.append(sink.abort)
        with sink:
            outcome = run(setting, sink, _stopping(sink, progress))
        report = sink.report
        missing = sum(report.sent.values()) - sum(network.received_packets().values())
        first_ns = sink.first_ns or setting.epoch_ns
        begin_ns = sink.begin_ns or time.monotonic_ns()
        end_ns = begin_ns + int((setting.epoch_ns + outcome.end_ns - first_ns) / speed)
        # That a job stopped shows only in the silence after its last packet.
        time.sleep(max(0, end_ns - time.monotonic_ns()) / 1e9)
        if sent is not None:
            sent(network.devices)
    unix_ns = time.time_ns() - time.monotonic_ns()
    return LiveRun(outcome, speed, first_ns, begin_ns + unix_ns, end_ns + unix_ns, report, missing)


def _stopping(sink: LiveSink, progress: Progress | None) -> Progress | None:
    """A failing callback stops the senders first, because the run waits for what it has handed over."""
    if progress is None:
        return None

    def tell(share: float) -> None:
        try:
            progress(share)
        except BaseException:
            sink.abort()
            raise

    return tell


def live_truth(live: LiveRun) -> Truth:
    """What really happened, in simulated time, and how that maps to the time of the capture."""
    truth = collect(live.outcome, records_of(live.outcome), {})
    truth.data["live"] = {
        "formula": "captured at begin_unix_ns + (true ns - first_ns) / speed",
        "speed": live.speed,
        "first_ns": live.first_ns,
        "begin_unix_ns": live.begin_unix_ns,
        "end_unix_ns": live.end_unix_ns,
        "packets": sum(live.sent.sent.values()),
        "late": live.sent.late,
        "missing": live.missing,
    }
    return truth
