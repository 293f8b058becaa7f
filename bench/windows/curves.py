# SPDX-License-Identifier: Apache-2.0
"""Rate curves to keep: of simulated training jobs, and of random bursts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.windows.wavesketch import REPORT_WINDOWS
from dpu_app.meter.metering import MeteringConfig
from dpu_app.wire.frame import Frame
from pulse_native import PacketBatch
from sim.output.sinks import DpuOptions, SoftwareDpu
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import Setting, prepare, run

WINDOW_NS = 8192
MTU = 4096
_NIC = 0
_REPORTS = 4
_DATA_BYTES = 1000  # of a packet, on average
_CLUSTER = replace(DEFAULT_CLUSTER, machines=4, nics_per_machine=2)


@dataclass(frozen=True, slots=True)
class Curves:
    """Bytes and packets of every flow (row) in every window (column); whole reports of windows."""

    name: str
    bytes: NDArray[np.int64]
    packets: NDArray[np.int64]


class _OneNic:
    """A software DPU on one NIC with windows of the given width; the rest is not measured."""

    def __init__(self, setting: Setting) -> None:
        config = MeteringConfig(window_ns=WINDOW_NS, window_budget_bytes=64 << 20)
        self._dpu = SoftwareDpu(setting, setting.world.nics[_NIC], DpuOptions(config))
        self.frames: list[Frame] = []

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of the one NIC."""
        if nic == _NIC:
            self.frames += self._dpu.take(batch)

    def close(self, end_ns: int) -> None:
        """Make the last frames."""
        self.frames += self._dpu.finish(end_ns)


def training(workload: str) -> Curves:
    """Return the flows of one NIC of a simulated healthy job."""
    setting = prepare(build(Order("healthy", 1, _CLUSTER, workload)))
    sink = _OneNic(setting)
    run(setting, sink)
    rows = np.concatenate([frame.tables.windows() for frame in sink.frames])
    windows = rows["start_ns"] // WINDOW_NS
    # From where the NIC is busy, not the silence before a job.
    start = int(windows.min())
    inside = windows - start < _REPORTS * REPORT_WINDOWS
    rows, windows = rows[inside], windows[inside] - start
    numbers, flow = np.unique(rows["flow"], return_inverse=True)
    sums = np.zeros((2, len(numbers), _REPORTS * REPORT_WINDOWS), np.int64)
    np.add.at(sums[0], (flow, windows), rows["bytes"].astype(np.int64))
    np.add.at(sums[1], (flow, windows), rows["packets"].astype(np.int64))
    # What carries data: the sketch counts in units of 1000 bytes, in which credits are nothing.
    data = sums[0].sum(axis=1) >= _DATA_BYTES * sums[1].sum(axis=1)
    return Curves(f"training, {workload}", sums[0][data], sums[1][data])


def bursty(flows: int = 100, seed: int = 1) -> Curves:
    """Return flows of random bursts: Pareto sizes, exponential silences, rates that wander."""
    rng = np.random.default_rng(seed)
    length = REPORT_WINDOWS
    packets = np.zeros((flows, length), np.int64)
    for flow in packets:
        at = int(rng.exponential(60))
        while at < length:
            windows = 1 + int(rng.pareto(1.2) * 4)
            rate = rng.lognormal(2.0, 1.0) * np.exp(np.cumsum(rng.normal(0, 0.15, windows)))
            drawn = rng.poisson(np.minimum(rate, 400))[: length - at]
            flow[at : at + len(drawn)] = drawn
            at += windows + 1 + int(rng.exponential(80))
    last = np.where(packets > 0, rng.integers(1, MTU, packets.shape), 0)
    whole = rng.random(packets.shape) < 0.7
    return Curves("random bursts", packets * MTU - np.where(whole, 0, MTU * (packets > 0) - last), packets)


def all_curves(*, quick: bool) -> Iterator[Curves]:
    """Yield the curves to compare on."""
    workloads = ("dp",) if quick else ("dp", "fsdp", "pp", "moe")
    for workload in workloads:
        yield training(workload)
    yield bursty()
