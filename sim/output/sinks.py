# SPDX-License-Identifier: Apache-2.0
"""What becomes of simulated packets: capture files, or the frames of software DPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import IO, ClassVar, Literal

import numpy as np

from dpu_app.meter.metering import Metering, MeteringConfig
from dpu_app.wire.frame import CaptureKind, CaptureMode, ClockInfo, Frame, NicIdentity, encode_frame
from dpu_app.wire.frame_file import SUFFIX, FrameFileWriter
from pulse_native import PacketBatch
from pulse_native._sim import CaptureWriter
from sim.planning.clocks import ClockReadings
from sim.planning.world import NicInfo
from sim.simulate import Setting

_PARTIAL = ".partial"
_READING_NS = 250_000_000  # between readings of both clocks, as in a DPU's service
_LEAST_FLOWS, _SPARE_FLOWS = 256, 4
_SETTLE_NS = 20_000_000  # packets may come this much later than they were captured


def file_names(setting: Setting, suffix: str) -> dict[int, str]:
    """The file of every captured NIC, by its number; machines with one NIC need no device in the name."""
    several = setting.world.scenario.nics_per_machine > 1
    return {
        nic.number: f"node{nic.machine}" + (f".mlx5_{nic.rail}" if several else "") + suffix
        for nic in setting.world.nics
        if not nic.external
    }


class _Files:
    """Files that bear other names until they are whole, so that nobody takes a torn one for a capture."""

    def __init__(self, out: Path, names: dict[int, str]) -> None:
        self.partial = {number: out / f"{name}{_PARTIAL}" for number, name in names.items()}

    def finish(self) -> None:
        """Give all files their names."""
        for path in self.partial.values():
            path.rename(path.with_name(path.name.removesuffix(_PARTIAL)))

    def discard(self) -> None:
        """Remove what was written, whole or not."""
        for path in self.partial.values():
            path.unlink(missing_ok=True)
            path.with_name(path.name.removesuffix(_PARTIAL)).unlink(missing_ok=True)


class PcapSink:
    """One pcap file per captured NIC in a folder; ``names`` by the NIC's number."""

    def __init__(self, setting: Setting, out: Path) -> None:
        self.names = file_names(setting, ".pcap")
        self._files = _Files(out, self.names)
        snap = setting.world.scenario.capture.snap_bytes
        self._writers: dict[int, CaptureWriter] = {}
        try:
            for number, path in self._files.partial.items():
                self._writers[number] = CaptureWriter(os.fsencode(path), snap)
        except BaseException:
            self.discard()
            raise

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Append packets to the NIC's file."""
        if len(batch):
            self._writers[nic].append(batch)

    def close(self, end_ns: int) -> None:
        """Complete all files."""
        for writer in self._writers.values():
            writer.close()
        self._files.finish()

    def discard(self) -> None:
        """Remove the files of a run that failed."""
        self._writers.clear()
        self._files.discard()


def identity_of(setting: Setting, nic: NicInfo) -> NicIdentity:
    """What a DPU calls itself: machine, device, address."""
    address = IPv6Address(nic.ipv6) if setting.world.scenario.network.ipv6 else IPv4Address(nic.ipv4)
    return NicIdentity(f"node{nic.machine}", f"mlx5_{nic.rail}", (str(address),))


@dataclass(frozen=True, slots=True)
class DpuOptions:
    """What software DPUs are told, apart from the scenario.

    ``boot_id`` tells this life of the DPUs from others, ``told`` gets every frame with the number of its NIC.
    """

    metering: MeteringConfig = field(default_factory=MeteringConfig)
    boot_id: str | None = None
    told: Callable[[int, Frame, bytes], None] | None = None


def _room_for_flows(setting: Setting, nic: NicInfo, most: int) -> int:
    """A meter's room for flows, as far as the NIC has any: thousands of meters have to fit into memory."""
    ends = setting.tables["ends"]
    flows = int(np.count_nonzero((ends["nic"] == nic.number) | (ends["peer_nic"] == nic.number)))
    return min(most, max(_LEAST_FLOWS, _SPARE_FLOWS * flows))


class SoftwareDpu:
    """What a DPU would make of one NIC's packets; the meter and frames are those of a real one."""

    def __init__(self, setting: Setting, nic: NicInfo, options: DpuOptions | None = None) -> None:
        scenario, options = setting.world.scenario, options or DpuOptions()
        mode = CaptureMode(CaptureKind(scenario.capture.kind.value), scenario.capture.sample_shift)
        boot_id = options.boot_id or f"sim-{scenario.seed}"
        self._clock = setting.clocks[nic.number]
        config = replace(
            options.metering, max_flows=_room_for_flows(setting, nic, options.metering.max_flows)
        )
        self._metering = Metering(identity_of(setting, nic), boot_id, mode, ClockInfo("free"), config)
        every_ns = min(_READING_NS, options.metering.interval_ns // 4)
        self._readings = ClockReadings(self._clock, scenario.seed, nic.machine, nic.rail, every_ns)

    def take(self, batch: PacketBatch) -> list[Frame]:
        """Packets in the order of capture; gives the frames that they complete."""
        return [self._with_readings(frame) for frame in self._metering.feed(batch)]

    def reach(self, true_ns: int) -> list[Frame]:
        """The frames that are complete because so much of true time is over since the simulation began."""
        return [self._with_readings(frame) for frame in self._metering.advance(self._clock.show(true_ns))]

    def finish(self, end_ns: int) -> list[Frame]:
        """The last frames; the capture ran until ``end_ns`` of true time since the simulation began."""
        frames = self.reach(end_ns)
        for frame in map(self._with_readings, self._metering.finish()):
            frames.append(replace(frame, clock_pairs=(*frame.clock_pairs, self._readings.at(end_ns))))
        return frames

    def _with_readings(self, frame: Frame) -> Frame:
        # By the time that the frame covers: where batches begin is the simulation's affair.
        return replace(frame, clock_pairs=tuple(self._readings.until(frame.end_ns)))


class FrameSink:
    """One file of frames per captured NIC in a folder; ``names`` by the NIC's number."""

    headers_only: ClassVar[Literal[True]] = True

    def __init__(self, setting: Setting, out: Path, options: DpuOptions | None = None) -> None:
        self.names = file_names(setting, SUFFIX)
        self._told = None if options is None else options.told
        self._dpus = {
            number: SoftwareDpu(setting, setting.world.nics[number], options) for number in self.names
        }
        self._files = _Files(out, self.names)
        self._open: dict[int, IO[bytes]] = {}
        self._writers: dict[int, FrameFileWriter] = {}
        try:
            for number, path in self._files.partial.items():
                self._open[number] = path.open("wb")
                self._writers[number] = FrameFileWriter(self._open[number])
        except BaseException:
            self.discard()
            raise

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of one NIC and write the frames that they complete."""
        self._keep(nic, self._dpus[nic].take(batch))

    def reach(self, now_ns: int) -> None:
        """Write what is complete without a later packet, if anybody waits for it."""
        if self._told is not None:
            for number, dpu in self._dpus.items():
                self._keep(number, dpu.reach(now_ns - _SETTLE_NS))

    def close(self, end_ns: int) -> None:
        """Write the last frames, which tell until when the capture ran, and complete all files."""
        for number, dpu in self._dpus.items():
            self._keep(number, dpu.finish(end_ns))
        for file in self._open.values():
            file.close()
        self._files.finish()

    def discard(self) -> None:
        """Remove the files of a run that failed."""
        for file in self._open.values():
            with suppress(OSError):  # what cannot be written any more is not wanted
                file.close()
        self._files.discard()

    def _keep(self, nic: int, frames: list[Frame]) -> None:
        for frame in frames:
            data = encode_frame(frame)
            self._writers[nic].write_encoded(data)
            if self._told is not None:
                self._told(nic, frame, data)
