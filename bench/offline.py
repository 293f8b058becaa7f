# SPDX-License-Identifier: Apache-2.0
"""The offline path in packets per second: each step of the front on its own, then every stage to the verdict.

Times are those of one core (process time), the quickest of several runs, files in the page cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

from bench.inputs import BenchInput
from bench.tshark import TsharkResult
from dpu_app.meter.metering import Metering
from dpu_app.wire.frame import Frame, NicIdentity, decode_frame, encode_frame
from dpu_app.wire.tables import TABLE_DTYPES
from host_ctl.ingest.naming import CaptureFiles
from host_ctl.pipeline import analyze_captures
from pulse_native import CaptureReader, PacketBatch

_CHUNK_BYTES = 1 << 20
FRONT = ("read", "parse", "parse and meter", "frame encode", "frame decode")
"""Steps of the front, each measured by itself."""


@dataclass(frozen=True, slots=True)
class FrontCounts:
    """What the front made of the files; a sum over all NICs."""

    packets: int
    roce: int
    messages: int
    frames: int
    frame_bytes: int


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """Seconds per step and stage, what was counted on the way, and tshark's time on the first file."""

    source: str
    packets: int
    bytes: int
    counts: FrontCounts
    front: dict[str, float]
    stages: dict[str, float]
    wall_s: float
    health: str
    tshark: TsharkResult | None

    @property
    def total_s(self) -> float:
        """Processor time from files to verdict."""
        return self.stages["total"]

    def rate(self, seconds: float) -> float:
        """Packets per second of something that handled all packets in ``seconds``."""
        return self.packets / max(seconds, 1e-9)

    def ratio(self) -> float | None:
        """How many times as fast as tshark's field extraction the whole analysis is, per packet."""
        if self.tshark is None or not self.tshark.packets:
            return None
        return self.rate(self.total_s) * self.tshark.seconds / self.tshark.packets

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; seconds and packets per second."""
        steps = {
            name: {"seconds": round(s, 6), "packets_per_s": round(self.rate(s))}
            for name, s in (self.front | self.stages).items()
        }
        tshark = None
        if self.tshark is not None:
            tshark = {
                "version": self.tshark.version,
                "packets": self.tshark.packets,
                "seconds": round(self.tshark.seconds, 6),
                "packets_per_s": round(self.tshark.packets / self.tshark.seconds),
                "ratio": round(self.ratio() or 0.0, 2),
            }
        return {
            "benchmark": "offline",
            "source": self.source,
            "packets": self.packets,
            "bytes": self.bytes,
            "roce_packets": self.counts.roce,
            "messages": self.counts.messages,
            "frames": self.counts.frames,
            "frame_bytes": self.counts.frame_bytes,
            "health": self.health,
            "wall_s": round(self.wall_s, 6),
            "steps": steps,
            "tshark": tshark,
        }

    def as_text(self) -> str:
        """The same as a table."""
        lines = [
            f"{self.source}: {self.packets:,} packets, {self.bytes / 1e6:.1f} MB, health {self.health}",
            f"{self.counts.messages:,} messages and credits, {self.counts.frames} frames",
            "",
            f"{'step':<24}{'ms':>10}{'ns/packet':>12}{'packets/s':>14}",
        ]
        for title, table in (("the front, step by step", self.front), ("files to verdict", self.stages)):
            lines.append(title)
            lines += [_line(name, s, self.packets) for name, s in table.items()]
        if self.tshark is None:
            lines.append("tshark: not measured")
        else:
            lines.append(f"{self.tshark.version}, field extraction of the first file")
            lines.append(_line("tshark", self.tshark.seconds, self.tshark.packets))
            lines.append(f"files to verdict is {self.ratio():.1f} times as fast as that")
        return "\n".join(lines)


def _line(name: str, seconds: float, packets: int) -> str:
    rate = packets / max(seconds, 1e-9)
    return f"  {name:<22}{seconds * 1e3:>10.1f}{seconds / max(1, packets) * 1e9:>12.1f}{rate:>14,.0f}"


def measure_offline(source: BenchInput, runs: int, tshark: TsharkResult | None) -> OfflineResult:
    """Measure the front and the whole path ``runs`` times each; the quickest run counts.

    Raises PulseError when the captures cannot be analysed.
    """
    fronts = [_measure_front(source.files) for _ in range(runs)]
    front, counts = min(fronts, key=lambda one: sum(one[0].values()))
    wholes = [_measure_whole(source) for _ in range(runs)]
    stages, wall_s, health = min(wholes, key=lambda one: one[0]["total"])
    return OfflineResult(
        source.source, source.packets, source.bytes, counts, front, stages, wall_s, health, tshark
    )


def _measure_whole(source: BenchInput) -> tuple[dict[str, float], float, str]:
    """Seconds of one core per stage, wall seconds, health.

    The analysis times its stages by the wall clock; their shares are those of the processor time.
    """
    began, wall = process_time(), perf_counter()
    analysis = analyze_captures(source.files)
    total, wall_s = process_time() - began, perf_counter() - wall
    share = total / max(sum(analysis.seconds.values()), 1e-9)
    stages = {name: seconds * share for name, seconds in analysis.seconds.items()}
    return stages | {"total": total}, wall_s, analysis.health


def _measure_front(captures: tuple[CaptureFiles, ...]) -> tuple[dict[str, float], FrontCounts]:
    """Seconds per step of the front over all files, and what came out.

    ``parse`` hands every packet's record to Python, which the analysis never does: it parses inside
    ``parse and meter``.
    """
    watch = _Stopwatch()
    packets = roce = messages = frames = frame_bytes = 0
    for files in captures:
        metering = Metering(NicIdentity(files.machine, files.nic), "bench")
        produced: list[Frame] = []
        for batch in _read(files, watch):
            packets += len(batch)
            with watch("parse"):
                records = batch.parse()
            roce += int((records["outcome"] == 0).sum())
            with watch("parse and meter"):
                produced.extend(metering.feed(batch))
        with watch("parse and meter"):
            produced.extend(metering.finish())
        for frame in produced:
            with watch("frame encode"):
                data = encode_frame(frame)
            with watch("frame decode"):
                _decode(data)
            frame_bytes += len(data)
            messages += len(frame.tables.messages) + len(frame.tables.controls)
        frames += len(produced)
    return watch.seconds, FrontCounts(packets, roce, messages, frames, frame_bytes)


def _read(files: CaptureFiles, watch: _Stopwatch) -> Iterator[PacketBatch]:
    for path in files.paths:
        reader = CaptureReader()
        with path.open("rb") as file:
            while True:
                with watch("read"):
                    chunk = file.read(_CHUNK_BYTES)
                    batch = reader.feed(chunk)
                if not chunk:
                    break
                yield batch


def _decode(data: bytes) -> None:
    """Decode a frame with all tables that an analysis reads (windows stay compressed)."""
    tables = decode_frame(data).tables
    for name in TABLE_DTYPES:
        getattr(tables, name)


class _Stopwatch:
    """Processor seconds per step of the front."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(FRONT, 0.0)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a step."""
        began = process_time()
        yield
        self.seconds[step] += process_time() - began
