# SPDX-License-Identifier: Apache-2.0
"""How much a planned run will capture, told before it begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pulse_native._sim import CommandKind
from sim.planning.plan import Table
from sim.simulate import prepare
from sim.spec import CaptureKind, DataStyle, Scenario, TxStamp

RECORD_BYTES = 16
_PLANNED_STEPS = 2
_CONTROL_PACKETS = 2  # per slot: its credit and its acknowledgement


def packet_views(scenario: Scenario) -> int:
    """About how many packets all taps will record; each is seen where it is sent and where it arrives.

    A healthy run of few iterations is planned and counted, so that even an absurdly long run is told at once.
    """
    most = max(job.steps for job in scenario.jobs)
    few = min(most, _PLANNED_STEPS)
    jobs = tuple(replace(job, steps=min(job.steps, few)) for job in scenario.jobs)
    planned = replace(scenario, jobs=jobs, fault=None, second_fault=None, storage=False)
    views = _sent_packets(planned) * most / few
    if scenario.clock.tx_stamp is not TxStamp.NONE:
        views *= 2
    if scenario.capture.kind is CaptureKind.SAMPLED:
        views /= 1 << scenario.capture.sample_shift
    return int(views)


def _sent_packets(scenario: Scenario) -> float:
    tables = prepare(scenario).tables
    steps = tables["steps"]
    packets = np.ceil(steps["bytes"] / scenario.transport.mtu)
    if scenario.capture.kind is CaptureKind.STEERED:
        packets = np.minimum(packets, 2)
    packets += _CONTROL_PACKETS + (scenario.stack.data_style is DataStyle.WRITE_THEN_IMM)
    per_step = packets * steps["sends"]
    per_template = _sums(_sums(per_step, tables["threads"], "steps"), tables["templates"], "threads")
    commands = tables["commands"]
    started = commands["value"][commands["kind"] == int(CommandKind.START)]
    return float(per_template[tables["operations"]["form"][started]].sum())


def _sums(values: Table, spans: Table, of: str) -> Table:
    """Sums over spans (first, count) of ``values``."""
    running = np.concatenate(([0.0], np.cumsum(values)))
    first = spans[f"first_{of.removesuffix('s')}"].astype(np.int64)
    return np.asarray(running[first + spans[of]] - running[first])


def capture_bytes(scenario: Scenario, views: int) -> int:
    """About how large the pcap files of so many packet views will be."""
    return views * (RECORD_BYTES + (scenario.capture.snap_bytes or scenario.transport.mtu))
