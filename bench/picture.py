# SPDX-License-Identifier: Apache-2.0
"""A picture of simulated traffic: one row per NIC, time to the right, brightness = share of the link rate.

Sent packets are orange, received ones blue, both at once white; thin lines part the machines.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pulse_native import PacketBatch
from sim.output.records import records_of
from sim.scenarios.catalogue import Order, build
from sim.simulate import Setting, prepare, run
from sim.spec import ClockSpec

_ROW_PIXELS = 8
_BINS = 1400
_GAP_PIXELS = 4
_SENT = np.array([255, 150, 30])
_RECEIVED = np.array([40, 120, 255])
_LINE = 60

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


def draw(shares: NDArray[np.float64], nics_per_machine: int) -> Pixels:
    """The picture as (height, width, 3) bytes."""
    _, nics, bins = shares.shape
    rows: list[Pixels] = []
    for nic in range(nics):
        if nic % nics_per_machine == 0:
            rows.append(np.full((_GAP_PIXELS, bins, 3), _LINE, dtype=np.uint8))
        color = np.sqrt(shares[0, nic])[:, None] * _SENT + np.sqrt(shares[1, nic])[:, None] * _RECEIVED
        row = np.clip(color, 0, 255).astype(np.uint8)
        rows.append(np.repeat(row[None], _ROW_PIXELS - 1, axis=0))
        rows.append(np.zeros((1, bins, 3), dtype=np.uint8))
    return np.concatenate(rows)


def write_png(path: Path, pixels: Pixels) -> None:
    """Write an RGB picture as PNG (PNG specification, section 5)."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    lines = b"".join(b"\0" + pixels[y].tobytes() for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def report_picture(scenario: str, seed: int, path: Path) -> int:
    """Draw one iteration of a scenario, the one after its onset, with perfect clocks; 0 = done."""
    made = replace(build(Order(scenario, seed)), clock=ClockSpec())
    wanted = made.fault.onset_step + 1 if made.fault is not None else 1
    records = records_of(run(prepare(made), None))
    steps = [step for of_rank in records.steps.values() for step in of_rank if step.step == wanted]
    if not steps or any(step.end_ns < 0 for step in steps):
        raise ValueError(f"scenario {scenario} has no whole iteration {wanted} to draw")
    setting = prepare(made)
    begin_ns, end_ns = min(step.begin_ns for step in steps), max(step.end_ns for step in steps)
    sink = RateSink(setting, begin_ns, end_ns, _BINS)
    run(setting, sink)
    write_png(path, draw(sink.shares(), made.nics_per_machine))
    return 0
