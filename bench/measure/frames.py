# SPDX-License-Identifier: Apache-2.0
"""Size of one NIC's frames on simulated training at 400 Gb/s, by section, and what coding a section costs.

Bytes are those of whole frames, from the first packet of the job to its last, so iterations with their
computing count. Compute times and bytes are scaled alike (sim/scenarios/preset_jobs.py): traffic per second
is that of a real job, its slots and messages too; only buckets are smaller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bench.measure.rows import Row
from dpu_app.meter.metering import MeteringConfig
from dpu_app.wire.frame import Frame, encode_frame
from dpu_app.wire.tables import SERIES, TABLE_DTYPES, Section, Tables
from pulse_native import PacketBatch
from sim.output.sinks import DpuOptions, SoftwareDpu
from sim.scenarios.catalogue import Order, build
from sim.scenarios.presets import DEFAULT_CLUSTER
from sim.simulate import Setting, prepare, run

WINDOWS_NS = (1_000, 4_000, 8_000, 32_000)
GOAL_WINDOW_NS = 8_000
GOAL_WORKLOAD = "pp"  # TP in the machine, PP and DP between machines
GOAL_MB_PER_S = 0.15
GOAL_FRAME_MB = 1.0
PUBLISHED_MB_PER_S = 0.3  # at windows of 32 us, by the system that Pulse is compared with
_WHOLE_SECOND_NS = 1_000_000_000
_MACHINE = 2  # of a middle pipeline stage: it receives and sends on both sides


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, the machines and NICs that run it, and for how many iterations."""

    workload: str
    name: str
    machines: int = 8
    nics: int = 8
    steps: int = 20


_CASES = (
    Case("pp", "3D (TP x PP x DP)"),
    Case("dp", "DP"),
    Case("fsdp", "FSDP"),
    Case("moe", "MoE", steps=4),
)
_QUICK = Case("pp", "3D (TP x PP x DP)", nics=2, steps=4)


@dataclass(frozen=True, slots=True)
class Upload:
    """The frames of one NIC and the time from its first packet to its last."""

    frames: list[Frame]
    active_ns: int

    @property
    def sizes(self) -> list[int]:
        """Bytes of each frame as sent."""
        return [len(encode_frame(frame)) for frame in self.frames]

    def section_bytes(self) -> dict[str, int]:
        """Compressed bytes of each section, all frames together, and `header` for the rest."""
        sums: dict[str, int] = {}
        for frame in self.frames:
            for name, section in frame.tables.sections().items():
                sums[name] = sums.get(name, 0) + len(section.data)
        return sums | {"header": sum(self.sizes) - sum(sums.values())}


class _OneNic:
    """Software DPUs of several window widths on one NIC."""

    def __init__(self, setting: Setting, windows_ns: tuple[int, ...]) -> None:
        nic = next(nic for nic in setting.world.nics if nic.machine == _MACHINE and nic.rail == 0)
        self._number = nic.number
        self._dpus = {
            ns: SoftwareDpu(setting, nic, DpuOptions(MeteringConfig(window_ns=ns))) for ns in windows_ns
        }
        self._frames: dict[int, list[Frame]] = {ns: [] for ns in windows_ns}

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of the one NIC."""
        if nic == self._number:
            for window_ns, dpu in self._dpus.items():
                self._frames[window_ns] += dpu.take(batch)

    def close(self, end_ns: int) -> None:
        """Make the last frames."""
        for window_ns, dpu in self._dpus.items():
            self._frames[window_ns] += dpu.finish(end_ns)

    def uploads(self) -> dict[int, Upload]:
        """Frames by window width."""
        some = next(iter(self._frames.values()))
        first = min(int(frame.tables.flows["first_ns"].min()) for frame in some if len(frame.tables.flows))
        last = max(int(frame.tables.flows["last_ns"].max()) for frame in some if len(frame.tables.flows))
        return {ns: Upload(frames, last - first) for ns, frames in self._frames.items()}


def simulate_upload(case: Case, windows_ns: tuple[int, ...]) -> dict[int, Upload]:
    """Simulate a healthy run; return one NIC's frames by window width."""
    cluster = replace(DEFAULT_CLUSTER, machines=case.machines, nics_per_machine=case.nics)
    setting = prepare(build(Order("healthy", 1, cluster, case.workload, case.steps)))
    sink = _OneNic(setting, windows_ns)
    run(setting, sink)
    return sink.uploads()


def frame_rows(*, quick: bool) -> Iterator[Row]:
    """Yield sizes for each workload and window width, then what coding each section costs."""
    for case in (_QUICK,) if quick else _CASES:
        uploads = simulate_upload(case, (GOAL_WINDOW_NS,) if quick else WINDOWS_NS)
        for window_ns, upload in uploads.items():
            yield _size_row(case, window_ns, upload)
        yield from _cost_rows(case, uploads[GOAL_WINDOW_NS])


def _size_row(case: Case, window_ns: int, upload: Upload) -> Row:
    sizes = upload.sizes
    rate = sum(sizes) / upload.active_ns * 1e3  # bytes per ns are 1000 MB/s
    is_whole = upload.active_ns >= _WHOLE_SECOND_NS
    largest = max(sizes) / 1e6
    judged = case.workload == GOAL_WORKLOAD and window_ns == GOAL_WINDOW_NS
    sections = upload.section_bytes()
    shares = sorted(sections.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {size / sum(sizes):.0%}" for name, size in shares if size >= 0.01 * sum(sizes))
    frame = f"largest frame {largest:.3f} MB; " if is_whole else "run shorter than a frame; "
    return Row(
        part="frames of one NIC at 400 Gb/s, whole iterations",
        case=f"{case.name}, {window_ns // 1000} us",
        goal=f"<= {GOAL_MB_PER_S} MB/s, frame <= {GOAL_FRAME_MB:.0f} MB" if judged else "",
        measured=rate,
        unit="MB/s",
        reference=frame + parts,
        met=rate <= GOAL_MB_PER_S and largest <= GOAL_FRAME_MB if judged else None,
        details={
            "workload": case.workload,
            "window_ns": window_ns,
            "active_ns": upload.active_ns,
            "frame_bytes": sizes,
            "section_bytes": sections,
            "packets": sum(int(frame.tables.flows["packets"].sum()) for frame in upload.frames),
            "losses": {name: count for frame in upload.frames for name, count in frame.losses.items()},
            "published_mb_per_s_at_32_us": PUBLISHED_MB_PER_S,
        },
    )


def _cost_rows(case: Case, upload: Upload) -> Iterator[Row]:
    frame = max(upload.frames, key=lambda one: len(encode_frame(one)))
    sections = frame.tables.sections()
    for name in (*TABLE_DTYPES, SERIES):
        if name not in sections or sections[name].raw_bytes == 0:
            continue
        encode_us, decode_us = section_costs(frame.tables, name)
        raw_bytes = sections[name].raw_bytes
        yield Row(
            part=f"coding the largest of these frames, {GOAL_WINDOW_NS // 1000} us",
            case=f"{case.name}, {name}",
            goal="",
            measured=encode_us,
            unit="us",
            reference=(
                f"{raw_bytes} -> {len(sections[name].data)} bytes; encode {raw_bytes / encode_us:.0f} MB/s, "
                f"decode {decode_us:.0f} us, {raw_bytes / decode_us:.0f} MB/s"
            ),
            met=None,
            details={"workload": case.workload, "section": name, "raw_bytes": raw_bytes,
                     "bytes": len(sections[name].data), "encode_us": encode_us, "decode_us": decode_us},
        )  # fmt: skip


def section_costs(tables: Tables, name: str, repetitions: int = 9) -> tuple[float, float]:
    """Return microseconds to encode and to decode one section, the quickest of several repetitions."""
    if name == SERIES:
        windows = tables.window_blob

        def make() -> Tables:
            return Tables.of({}, windows)

        def read(coded: Tables) -> object:
            return coded.pieces()
    else:
        array = getattr(tables, name)

        def make() -> Tables:
            return Tables.of({name: array})

        def read(coded: Tables) -> object:
            return getattr(coded, name)

    section: dict[str, Section] = make().sections()
    encode = _quickest(repetitions, lambda: make().sections())
    decode = _quickest(repetitions, lambda: read(Tables(section)))
    return encode, decode


def _quickest(repetitions: int, action: Callable[[], object]) -> float:
    times = []
    for _ in range(repetitions):
        begin = time.thread_time_ns()
        action()
        times.append(time.thread_time_ns() - begin)
    return max(min(times), 1) / 1e3
