# SPDX-License-Identifier: Apache-2.0
"""A picture of simulated traffic: one row per NIC, time to the right, brightness = share of the link rate.

Sent packets are orange, received ones blue, both at once white. Above is a whole iteration, below the part of
it in which links are full.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.figures.style import TEXT, panels, save
from pulse_native import PacketBatch
from sim.output.records import records_of
from sim.scenarios.catalogue import Order, build
from sim.simulate import Setting, prepare, run
from sim.spec import ClockSpec, Scenario

_BINS = 700
_SENT = np.array([255, 150, 30])
_RECEIVED = np.array([40, 120, 255])
_BUSY = 0.5  # share of all links from which on an iteration communicates in earnest
_HEIGHT_IN = 6.0

Pixels = NDArray[np.uint8]


class RateSink:
    """Adds up sent and received bytes per NIC and time bin by the packets' stamps; clocks must be perfect."""

    def __init__(self, setting: Setting, begin_ns: int, end_ns: int, bins: int) -> None:
        self._addresses = {nic.number: nic.ipv4 for nic in setting.world.nics if not nic.external}
        self._edges = np.linspace(begin_ns, end_ns, bins + 1) + setting.epoch_ns
        self._link = 1 / (8 / setting.world.scenario.network.rate_gbps * bins / (end_ns - begin_ns))
        self.bytes = np.zeros((2, len(self._addresses), bins))

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Count packets of one NIC."""
        ns = batch.ns
        if not len(ns) or ns[-1] < self._edges[0] or ns[0] > self._edges[-1]:
            return
        packets = batch.parse()
        source = packets["src"][:, 12:].astype(np.int64) @ [1 << 24, 1 << 16, 1 << 8, 1]
        sent = source == self._addresses[nic]
        for way, chosen in enumerate((sent, ~sent)):
            weights = packets["wire_bytes"][chosen]
            self.bytes[way, nic] += np.histogram(ns[chosen], self._edges, weights=weights)[0]

    def close(self, end_ns: int) -> None:
        """Nothing is left to do."""

    def shares(self) -> NDArray[np.float64]:
        """Share of the link rate, (sent or received, NIC, bin)."""
        return np.clip(self.bytes / self._link, 0.0, 1.0)


def colours(shares: NDArray[np.float64]) -> Pixels:
    """The picture as (NIC, bin, 3) bytes."""
    mixed = np.sqrt(shares[0])[..., None] * _SENT + np.sqrt(shares[1])[..., None] * _RECEIVED
    return np.asarray(np.clip(mixed, 0, 255), dtype=np.uint8)


def report_picture(scenario: str, seed: int, path: Path) -> int:
    """Draw one iteration of a scenario, the one after its onset, with perfect clocks; 0 = done."""
    made = replace(build(Order(scenario, seed)), clock=ClockSpec())
    wanted = made.fault.onset_step + 1 if made.fault is not None else 1
    records = records_of(run(prepare(made), None))
    steps = [step for of_rank in records.steps.values() for step in of_rank if step.step == wanted]
    if not steps or any(step.end_ns < 0 for step in steps):
        raise ValueError(f"scenario {scenario} has no whole iteration {wanted} to draw")
    begin_ns, end_ns = min(step.begin_ns for step in steps), max(step.end_ns for step in steps)
    whole = _measured(made, begin_ns, end_ns)
    busy = np.flatnonzero(whole.mean(axis=(0, 1)) > _BUSY)
    busy_ns = begin_ns + (end_ns - begin_ns) * (int(busy[0]) if len(busy) else 0) // _BINS
    figure, axes = panels(height_in=_HEIGHT_IN, nrows=2)
    title = f"iteration {wanted} of {scenario}: "
    _show(axes[0], whole, made, (begin_ns, begin_ns, end_ns), title + "all of it")
    _show(
        axes[1], _measured(made, busy_ns, end_ns), made, (begin_ns, busy_ns, end_ns), "where links are full"
    )
    save(figure, path)
    return 0


def _measured(scenario: Scenario, begin_ns: int, end_ns: int) -> NDArray[np.float64]:
    setting = prepare(scenario)
    sink = RateSink(setting, begin_ns, end_ns, _BINS)
    run(setting, sink)
    return sink.shares()


def _show(
    axes: Any, shares: NDArray[np.float64], scenario: Scenario, times_ns: tuple[int, int, int], title: str
) -> None:
    """A panel; times are those of the iteration's begin, the panel's begin and its end."""
    zero_ns, begin_ns, end_ns = times_ns
    nics = scenario.nics_per_machine
    machines = np.arange(scenario.machines)
    extent = ((begin_ns - zero_ns) / 1e6, (end_ns - zero_ns) / 1e6, scenario.machines * nics, 0)
    axes.imshow(colours(shares), aspect="auto", interpolation="nearest", extent=extent)
    axes.set_yticks((machines + 0.5) * nics, [f"node{machine}" for machine in machines])
    axes.tick_params(axis="y", length=0)
    for edge in machines[1:] * nics:
        axes.axhline(edge, color=TEXT, linewidth=0.6)
    axes.set_title(title, loc="left")
    axes.set_xlabel("ms since its begin; sent orange, received blue, both white")
