# SPDX-License-Identifier: Apache-2.0
"""What becomes of simulated packets: capture files, or the frames of software DPUs."""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import IO

from dpu_app.meter.metering import Metering, MeteringConfig
from dpu_app.wire.frame import CaptureKind, CaptureMode, ClockInfo, Frame, NicIdentity
from dpu_app.wire.frame_file import SUFFIX, FrameFileWriter
from pulse_native import PacketBatch
from pulse_native._sim import CaptureWriter
from sim.planning.clocks import clock_pairs
from sim.planning.world import NicInfo
from sim.simulate import Setting

_PARTIAL = ".partial"


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
        """Remove what was written."""
        for path in self.partial.values():
            path.unlink(missing_ok=True)


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
        except OSError:
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


class SoftwareDpu:
    """What a DPU would make of one NIC's packets; the meter and frames are those of a real one."""

    def __init__(self, setting: Setting, nic: NicInfo, config: MeteringConfig | None = None) -> None:
        scenario = setting.world.scenario
        mode = CaptureMode(CaptureKind(scenario.capture.kind.value), scenario.capture.sample_shift)
        device = f"mlx5_{nic.rail}" if scenario.nics_per_machine > 1 else ""
        address = IPv6Address(nic.ipv6) if scenario.network.ipv6 else IPv4Address(nic.ipv4)
        identity = NicIdentity(f"node{nic.machine}", device, (str(address),))
        self._clock = setting.clocks[nic.number]
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

    def finish(self, end_ns: int) -> list[Frame]:
        """The last frames; the capture ran until ``end_ns`` of true time since the simulation began."""
        return [*self._metering.advance(self._clock.show(end_ns)), *self._metering.finish()]


class FrameSink:
    """One file of frames per captured NIC in a folder; ``names`` by the NIC's number."""

    def __init__(self, setting: Setting, out: Path, config: MeteringConfig | None = None) -> None:
        self.names = file_names(setting, SUFFIX)
        self._dpus = {
            number: SoftwareDpu(setting, setting.world.nics[number], config) for number in self.names
        }
        self._files = _Files(out, self.names)
        self._open: dict[int, IO[bytes]] = {}
        self._writers: dict[int, FrameFileWriter] = {}
        try:
            for number, path in self._files.partial.items():
                self._open[number] = path.open("wb")
                self._writers[number] = FrameFileWriter(self._open[number])
        except OSError:
            self.discard()
            raise

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of one NIC and write the frames that they complete."""
        for frame in self._dpus[nic].take(batch):
            self._writers[nic].write(frame)

    def close(self, end_ns: int) -> None:
        """Write the last frames, which tell until when the capture ran, and complete all files."""
        for number, dpu in self._dpus.items():
            for frame in dpu.finish(end_ns):
                self._writers[number].write(frame)
        for file in self._open.values():
            file.close()
        self._files.finish()

    def discard(self) -> None:
        """Remove the files of a run that failed."""
        for file in self._open.values():
            with suppress(OSError):  # what cannot be written any more is not wanted
                file.close()
        self._files.discard()
