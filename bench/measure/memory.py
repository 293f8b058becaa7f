# SPDX-License-Identifier: Apache-2.0
"""Memory of a meter through a second of traffic at line rate, its cut and its frame.

Each row is measured in a process of its own, as the growth of its resident memory: the peak includes flow
state, records, windows, what the cut hands out and the frame that is made of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure.rows import Row
from dpu_app.meter.metering import tables_of
from dpu_app.wire.frame import Frame, NicIdentity, encode_frame
from pulse_native import Meter
from pulse_native._bench import Traffic

MIB = 1 << 20
# glibc raises the size from which freed memory goes back to the system to that of the largest block freed,
# and would keep most of what an interval took. A service on a DPU has to fix it.
_GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072"}
_BATCH = 4096
_CASES: tuple[tuple[str, float, dict[str, Any], dict[str, int]], ...] = (
    ("2000 flows, MTU 4096, message by message", 32, {"train_packets": 256}, {}),
    ("2000 flows, MTU 4096, trains of 32", 32, {"train_packets": 32}, {}),
    ("2000 flows, MTU 4096, packet by packet", 32, {"train_packets": 1}, {}),
    ("2000 flows, MTU 1024, trains of 32", 32, {"train_packets": 32, "mtu": 1024}, {}),
    ("2000 flows, MTU 1024, packet by packet", 32, {"train_packets": 1, "mtu": 1024}, {}),
    (
        "2000 flows, MTU 1024, trains of 32, budget raised",
        96,
        {"train_packets": 32, "mtu": 1024},
        {"window_budget_bytes": 24 * MIB, "max_data_markers": 1 << 21, "record_budget_bytes": 64 * MIB},
    ),
    ("16384 flows, MTU 4096, trains of 32", 96, {"train_packets": 32, "flows": 16_384}, {}),
)


def memory_rows(*, quick: bool) -> Iterator[Row]:
    """Yield a row for each case, or for the first two."""
    for name, goal_mib, traffic, settings in _CASES[:2] if quick else _CASES:
        request = json.dumps({"traffic": traffic, "settings": settings})
        result = subprocess.run(
            [sys.executable, "-m", "bench.measure.memory", request],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | _GIVES_BACK,
        )
        figures = json.loads(result.stdout)
        degraded = ", ".join(f"{key} {value}" for key, value in figures["degraded"].items()) or "exact"
        meter, frame = _mib(figures["meter_bytes"]), _mib(figures["frame_bytes"])
        yield Row(
            part="memory, one second of 400 Gb/s both ways, 8 us windows, 1 MiB messages",
            case=name,
            goal=f"<= {goal_mib:.0f} MiB",
            measured=figures["peak_bytes"] / MIB,
            unit="MiB",
            reference=f"meter {meter}, frame {frame} MiB; {degraded}",
            met=figures["peak_bytes"] <= goal_mib * MIB and figures["flows"] == figures["flows_made"],
            details={"traffic": traffic, "settings": settings} | figures,
        )


def measure_memory(traffic_config: dict[str, Any], settings: dict[str, int]) -> dict[str, Any]:
    """Meter a second of traffic; give bytes at the end of it, and at the peak of all."""
    config = {"flows": 2000} | traffic_config
    _encode_something()
    traffic = Traffic(config)
    traffic.next_batch(_BATCH)
    before = _status_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    meter = Meter(**settings)  # type: ignore[arg-type]  # integers, none of them `steered`
    begin_ns = traffic.now_ns
    packets = 0
    while traffic.now_ns < begin_ns + 1_000_000_000:
        batch = traffic.next_batch(_BATCH)
        packets += len(batch)
        meter.update(batch)
    meter_bytes = meter.memory_bytes
    interval = meter.cut(begin_ns, traffic.now_ns)
    frame = encode_frame(_frame(begin_ns, traffic.now_ns, interval))
    peak = _status_kib("VmHWM")
    names = ("flows_lost", "packets_lost", "records_lost", "windows_lost", "windows_averaged",
             "burst_gap_doublings", "marker_halvings")  # fmt: skip
    return {
        "packets": packets,
        "packets_counted": int(interval.flows["packets"].sum()),
        "flows_made": config["flows"],
        "flows": len(interval.flows),
        "meter_bytes": meter_bytes,
        "frame_bytes": len(frame),
        "peak_bytes": (peak - before) * 1024,
        "degraded": {name: interval.counters[name] for name in names if interval.counters[name]},
    }


def _mib(size: int) -> str:
    return f"{size / MIB:.1f}"


def _frame(begin_ns: int, end_ns: int, interval: Any) -> Frame:
    return Frame(NicIdentity("m", "n"), "boot", 0, begin_ns, end_ns, tables_of(interval))


def _encode_something() -> None:
    meter = Meter()
    meter.update(Traffic({"flows": 2}).next_batch(100))
    encode_frame(_frame(0, 1, meter.cut(0, 1)))


def _status_kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(measure_memory(asked["traffic"], asked["settings"])))
