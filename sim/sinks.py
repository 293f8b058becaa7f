# SPDX-License-Identifier: Apache-2.0
"""What becomes of simulated packets: capture files, or the frames of software DPUs."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from dpu_app.meter.metering import Metering, MeteringConfig
from dpu_app.wire.frame import CaptureKind, CaptureMode, ClockInfo, Frame, NicIdentity
from dpu_app.wire.frame_file import SUFFIX, FrameFileWriter
from pulse_native import PacketBatch
from pulse_native._sim import CaptureWriter
from sim.clocks import clock_pairs
from sim.simulate import Setting
from sim.world import NicInfo


def file_names(setting: Setting, suffix: str) -> dict[int, str]:
    """The file of every captured NIC, by its number; machines with one NIC need no device in the name."""
    several = setting.world.scenario.nics_per_machine > 1
    return {
        nic.number: f"node{nic.machine}" + (f".mlx5_{nic.rail}" if several else "") + suffix
        for nic in setting.world.nics
        if not nic.external
    }


class PcapSink:
    """One pcap file per captured NIC in a folder; ``names`` by the NIC's number."""

    def __init__(self, setting: Setting, out: Path) -> None:
        self.names = file_names(setting, ".pcap")
        snap = setting.world.scenario.capture.snap_bytes
        self._writers = {number: CaptureWriter(str(out / name), snap) for number, name in self.names.items()}

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Append packets to the NIC's file."""
        if len(batch):
            self._writers[nic].append(batch)

    def close(self) -> None:
        """Complete all files."""
        for writer in self._writers.values():
            writer.close()


class SoftwareDpu:
    """What a DPU would make of one NIC's packets; the meter and frames are those of a real one."""

    def __init__(self, setting: Setting, nic: NicInfo, config: MeteringConfig | None = None) -> None:
        scenario = setting.world.scenario
        mode = CaptureMode(CaptureKind(scenario.capture.kind.value), scenario.capture.sample_shift)
        device = f"mlx5_{nic.rail}" if scenario.nics_per_machine > 1 else ""
        identity = NicIdentity(f"node{nic.machine}", device)
        self._metering = Metering(identity, f"sim-{scenario.seed}", mode, ClockInfo("free"), config)
        pairs = clock_pairs(
            setting.clocks[nic.number],
            scenario.clock,
            scenario.seed,
            nic.machine,
            nic.rail,
            setting.expected_ns,
        )
        for nic_ns, system_ns in pairs:
            self._metering.note_clock_pair(nic_ns, system_ns)

    def take(self, batch: PacketBatch) -> list[Frame]:
        """Packets in the order of capture; gives the frames that they complete."""
        return list(self._metering.feed(batch))

    def finish(self) -> list[Frame]:
        """The last frame."""
        return list(self._metering.finish())


class FrameSink:
    """One file of frames per captured NIC in a folder; ``names`` by the NIC's number."""

    def __init__(self, setting: Setting, out: Path, config: MeteringConfig | None = None) -> None:
        self.names = file_names(setting, SUFFIX)
        self._dpus = {
            number: SoftwareDpu(setting, setting.world.nics[number], config) for number in self.names
        }
        self._files: dict[int, IO[bytes]] = {}
        self._writers: dict[int, FrameFileWriter] = {}
        try:
            for number, name in self.names.items():
                self._files[number] = (out / name).open("wb")
                self._writers[number] = FrameFileWriter(self._files[number])
        except OSError:
            self._close_files()
            raise

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of one NIC and write the frames that they complete."""
        for frame in self._dpus[nic].take(batch):
            self._writers[nic].write(frame)

    def close(self) -> None:
        """Write the last frames and complete all files."""
        try:
            for number, dpu in self._dpus.items():
                for frame in dpu.finish():
                    self._writers[number].write(frame)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
