# SPDX-License-Identifier: Apache-2.0
"""Turns the capture files of one NIC into its series, through the same frames that a DPU would send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dpu_app.meter.metering import Metering
from dpu_app.wire.frame import CaptureKind, CaptureMode, ClockInfo, Frame, NicIdentity
from host_ctl.ingest.capture_file import CaptureFile, detect_mode
from host_ctl.ingest.frame_series import is_frame_file, series_of_frames
from host_ctl.ingest.naming import CaptureFiles
from host_ctl.ingest.series import NicSeries, join_frames

_DISORDER_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadCapture:
    """What became of one NIC's files: its series unless nothing in them was RDMA, and remarks."""

    files: CaptureFiles
    series: NicSeries | None
    packets: int
    remarks: tuple[str, ...]


def read_capture(files: CaptureFiles) -> ReadCapture:
    """Read all files of one NIC, captures or frames, in order of time, into one series."""
    captures = tuple(path for path in files.paths if not is_frame_file(path))
    if not captures:
        series, remarks = series_of_frames(files.machine, files.nic, files.addresses, files.paths)
        return ReadCapture(files, series, series.packets if series else 0, tuple(remarks))
    if len(captures) == len(files.paths):
        return _read_packets(files)
    read = _read_packets(replace(files, paths=captures))
    name = f"{files.machine}/{files.nic}" if files.nic else files.machine
    twice = f"{name} has captures and frames: the frames would count twice and were left aside"
    return replace(read, remarks=(*read.remarks, twice))


def _read_packets(files: CaptureFiles) -> ReadCapture:
    mode = CaptureMode(CaptureKind(files.mode)) if files.mode else detect_mode(files.paths)
    identity = NicIdentity(files.machine, files.nic, files.addresses)
    name = f"{files.machine}/{files.nic}" if files.nic else files.machine
    metering = Metering(identity, "offline", mode, ClockInfo("capture"))
    sources = [CaptureFile(path, mode) for path in files.paths]
    remarks: list[str] = []
    frames = list(_frames(sources, metering, remarks))
    outcomes: Counter[str] = Counter()
    for frame in frames:
        outcomes.update(frame.packets)
    for source in sources:
        remarks.extend(f"{name}: {problem}" for problem in source.problems)
    remarks.extend(_foreign(name, outcomes))
    packets = sum(s.packets for s in sources)
    if not any(len(f.tables.flows) for f in frames):
        if packets:
            remarks.append(f"{name}: none of {packets} packets is RoCEv2 (UDP port 4791)")
        return ReadCapture(files, None, packets, tuple(remarks))
    witness = max((s.witness_ns for s in sources if s.witness_ns is not None), default=None)
    series = join_frames(frames, witness_ns=witness, packets=outcomes["roce"])
    return ReadCapture(files, series, packets, tuple(remarks))


def _frames(sources: list[CaptureFile], metering: Metering, remarks: list[str]) -> Iterator[Frame]:
    """Frames of all parts. A part that lies inside another one's time is left out: it would count twice."""
    reached: int | None = None
    lost: Counter[str] = Counter()
    for source in sorted(sources, key=_first_ns):
        last: int | None = None
        for batch in source.batches():
            if last is None and reached is not None and int(batch.ns.min()) < reached - _DISORDER_NS:
                remarks.append(
                    f"{source.name} overlaps in time with another capture of the same NIC: left out"
                )
                break
            metering.note_losses(lost + Counter(source.losses()))
            yield from metering.feed(batch)
            last = int(batch.ns.max()) if last is None else max(last, int(batch.ns.max()))
        if last is not None:
            reached = last if reached is None else max(reached, last)
            lost += Counter(source.losses())
            metering.note_losses(lost)
    yield from metering.finish()


def _first_ns(source: CaptureFile) -> int:
    probe = CaptureFile(source.path, source.mode)
    return next((int(batch.ns.min()) for batch in probe.batches()), 0)


def _foreign(name: str, outcomes: Counter[str]) -> Iterator[str]:
    odd = {k: v for k, v in outcomes.items() if k != "roce" and v}
    for outcome, count in sorted(odd.items(), key=lambda item: -item[1]):
        yield f"{name}: {count} packets counted as {outcome.replace('_', ' ')}"
