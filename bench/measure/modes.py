# SPDX-License-Identifier: Apache-2.0
"""How far what a steered or a sampled capture says is from what a full one does, on the same packets.

Each mode is what the meter makes of the packets that a capture in that mode would hold; what readers derive
(dpu_app/wire/estimates.py) is derived. Errors are shares of the full capture's: 0 is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.measure.mode_errors import ERRORS, View
from bench.measure.rows import Row
from dpu_app.wire.frame import CaptureKind, CaptureMode
from host_ctl.ingest.capture_file import CaptureFile
from host_ctl.ingest.naming import find_captures
from pulse_native import Meter, PacketBatch
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import prepare, run

WINDOW_NS = 8_000
_MODES = (
    CaptureMode(),
    CaptureMode(CaptureKind.STEERED),
    *(CaptureMode(CaptureKind.SAMPLED, shift) for shift in range(1, 7)),
)
_MIDDLES = (0x01, 0x07, 0x0E, 0x21, 0x27)  # RC and UC
_ROCE = 0
_SIMULATED = (("healthy", "dp"), ("link_loss", "dp"), ("congestion", "fsdp"), ("healthy", "pp"))
_NIC = 2  # takes part in what goes wrong, or lies beside it


@dataclass(frozen=True, slots=True)
class Source:
    """Traffic of one NIC: a name, and what gives its packets."""

    name: str
    packets: Callable[[], NDArray[np.void]]


def mode_rows(*, quick: bool, captures: Path | None = None) -> Iterator[Row]:
    """Yield a row for each traffic and output: the error of every mode."""
    for source in _sources(quick=quick, captures=captures):
        packets = source.packets()
        packets = packets[packets["outcome"] == _ROCE]
        views = [view_of(packets, mode) for mode in _MODES]
        full = views[0]
        for output, error in ERRORS.items():
            figures = {str(view.mode): error(view, full) for view in views[1:]}
            steered, *sampled = figures.values()
            told = " ".join("-" if figure is None else f"{figure:.2g}" for figure in sampled)
            yield Row(
                part=f"steered beside full capture, {source.name}, {len(packets)} packets",
                case=output,
                goal="",
                measured=float("nan") if steered is None else steered,
                unit="",
                reference=f"sampled 1/2 .. 1/64: {told}",
                met=None,
                details={"source": source.name, "packets": len(packets), "errors": figures},
            )


def taken_by(mode: CaptureMode, packets: NDArray[np.void], seed: int = 1) -> NDArray[np.void]:
    """Return the packets that a capture of that mode holds."""
    if mode.kind is CaptureKind.STEERED:
        return packets[~np.isin(packets["opcode"], _MIDDLES)]
    if mode.kind is CaptureKind.SAMPLED:
        drawn = np.random.default_rng(seed).random(len(packets))
        return packets[drawn < 0.5**mode.sample_shift]
    return packets


def view_of(packets: NDArray[np.void], mode: CaptureMode, seed: int = 1) -> View:
    """Meter what a capture of that mode holds of `packets`."""
    taken = taken_by(mode, packets, seed)
    meter = Meter(
        window_ns=WINDOW_NS,
        steered=mode.kind is CaptureKind.STEERED,
        sample_shift=mode.sample_shift,
        window_budget_bytes=256 << 20,
        max_records=1 << 22,
        record_budget_bytes=1 << 30,
        max_bursts=1 << 22,
        max_data_markers=1 << 22,
    )
    meter.update_records(taken)
    begin_ns, end_ns = int(packets["ns"].min()), int(packets["ns"].max()) + 1
    return View(mode, len(taken), meter.finish(begin_ns, end_ns))


def _sources(*, quick: bool, captures: Path | None) -> Iterator[Source]:
    for scenario, workload in _SIMULATED[:1] if quick else _SIMULATED:
        yield Source(f"simulated {workload}, {scenario}", partial(simulated, scenario, workload))
    for files in find_captures([captures], {})[0] if captures is not None else ():
        yield Source(f"captured {files.machine}", partial(captured, tuple(files.paths)))


class _OneNic:
    """Keeps the parsed packets of one NIC."""

    def __init__(self) -> None:
        self.parsed: list[NDArray[np.void]] = []

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Keep packets of the one NIC."""
        if nic == _NIC and len(batch):
            self.parsed.append(batch.parse())

    def close(self, end_ns: int) -> None:
        """Nothing is open."""


def simulated(scenario: str, workload: str, steps: int = 6) -> NDArray[np.void]:
    """Return PACKET records of one NIC of four machines, each packet with a time of its own."""
    cluster = replace(DEFAULT_CLUSTER, machines=4, nics_per_machine=1, train_packets=1)
    sink = _OneNic()
    run(prepare(build(Order(scenario, 1, cluster, workload, steps))), sink)
    return np.concatenate(sink.parsed)


def captured(paths: tuple[Path, ...]) -> NDArray[np.void]:
    """Return PACKET records of capture files."""
    files = (CaptureFile(path, CaptureMode()) for path in paths)
    return np.concatenate([batch.parse() for file in files for batch in file.batches()])
