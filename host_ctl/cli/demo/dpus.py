# SPDX-License-Identifier: Apache-2.0
"""The process that simulates the job of the demo: packets to meters, frames to the processes that publish.

It says on standard output, as a line of JSON, what really happened, and ends when the frames are delivered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Any

from dpu_app.meter.metering import Metering, MeteringConfig
from dpu_app.wire.frame import CaptureMode, ClockInfo, Frame, NicIdentity, encode_frame
from host_ctl.cli.demo.publishing import Due
from host_ctl.cli.demo.scenario import demo_scenario
from pulse_native import PacketBatch
from sim.output.records import records_of
from sim.output.truth import collect
from sim.planning.world import START_NS, NicInfo
from sim.simulate import Setting, prepare, run

_INTERVAL_NS = 500_000_000
_READING_NS = 250_000_000
_BEHIND_NS = 250_000_000
_NICE = 10  # it has the whole time of the job, others wait for the controller
_LEAD_S = 1.0  # simulated before the first frame is due


class PacedDpu:
    """One NIC's meter, with readings that relate its simulated clock to this machine's."""

    def __init__(self, setting: Setting, nic: NicInfo, begin_unix_s: float) -> None:
        address = str(IPv4Address(nic.ipv4))
        self.identity = NicIdentity(f"node{nic.machine}", f"mlx5_{nic.rail}", (address,))
        self._clock = setting.clocks[nic.number]
        self._begin_unix_s = begin_unix_s
        self._read_ns = 0
        config = MeteringConfig(interval_ns=_INTERVAL_NS, silent_frames=True)
        self._metering = Metering(self.identity, "demo", CaptureMode(), ClockInfo("free"), config)

    def take(self, batch: PacketBatch, now_ns: int) -> list[tuple[Due, Frame]]:
        """Frames that packets complete, or silence up to a time of the simulation, and when they are due."""
        if not len(batch):
            return self._due(self._metering.advance(self._clock.show(now_ns)))
        self._read_clocks(int(batch.ns[-1]))
        return self._due(self._metering.feed(batch))

    def finish(self, end_ns: int) -> list[tuple[Due, Frame]]:
        """The last frames; the job was watched until a time of the simulation."""
        shown_ns = self._clock.show(end_ns)
        self._read_clocks(shown_ns)
        return self._due([*self._metering.advance(shown_ns), *self._metering.finish()])

    def _read_clocks(self, until_ns: int) -> None:
        while (nic_ns := self._clock.show(self._read_ns)) <= until_ns:
            system_ns = round(self._begin_unix_s * 1e9) + self._read_ns
            self._metering.note_clock_pair(nic_ns, system_ns)
            self._read_ns += _READING_NS

    def _due(self, frames: Iterable[Frame]) -> list[tuple[Due, Frame]]:
        shown_ns = self._clock.show(0)
        return [
            (
                Due(
                    self.identity.machine,
                    self.identity.nic,
                    frame.boot_id,
                    frame.sequence,
                    self._begin_unix_s + (frame.end_ns - shown_ns) / 1e9,
                ),
                frame,
            )
            for frame in frames
        ]


class PublishingSink:
    """Hands the frames of every machine to the process that publishes them; a full pipe makes it wait."""

    def __init__(self, setting: Setting, order: dict[str, Any], begin_unix_s: float) -> None:
        nics = [nic for nic in setting.world.nics if not nic.external]
        self._dpus = {nic.number: PacedDpu(setting, nic, begin_unix_s) for nic in nics}
        machines = sorted({nic.machine for nic in nics})
        count = order["processes"]
        self._of_machine = {machine: place % count for place, machine in enumerate(machines)}
        self._processes = []
        for number in range(count):
            mine = [
                (dpu.identity.machine, dpu.identity.nic)
                for nic, dpu in self._dpus.items()
                if self._of_machine[setting.world.nics[nic].machine] == number
            ]
            self._processes.append(_publishing(order | {"nics": mine, "boot_id": "demo"}))
        self._machine_of = {nic.number: nic.machine for nic in nics}
        self._expected_ns = setting.expected_ns
        self._now_ns = 0

    def note_progress(self, share: float) -> None:
        """Know how far the simulation is; what the taps have seen is behind it."""
        self._now_ns = max(0, round(share * self._expected_ns) - _BEHIND_NS)

    def take(self, nic: int, batch: PacketBatch) -> None:
        """Measure packets of one NIC."""
        self._hand_over(nic, self._dpus[nic].take(batch, self._now_ns))

    def close(self, end_ns: int) -> None:
        """Hand over the last frames, and wait until everything is acknowledged."""
        for nic, dpu in self._dpus.items():
            self._hand_over(nic, dpu.finish(end_ns))
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()

    def wait(self) -> None:
        """Wait until everything is acknowledged."""
        for process in self._processes:
            process.wait()

    def _hand_over(self, nic: int, due: list[tuple[Due, Frame]]) -> None:
        stdin = self._processes[self._of_machine[self._machine_of[nic]]].stdin
        assert stdin is not None
        for each, frame in due:
            stdin.write(each.pack(encode_frame(frame)))
        stdin.flush()


def _publishing(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-m", "host_ctl.cli.demo.publishing"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Simulate what the order on standard input asks for; end when standard input does."""
    order = json.loads(sys.stdin.readline())
    os.nice(_NICE)
    threading.Thread(target=_end_with_input, daemon=True).start()
    setting = prepare(demo_scenario(order["fault"], order["seed"]))
    begin_unix_s = time.time() + _LEAD_S
    sink = PublishingSink(setting, order, begin_unix_s)
    outcome = run(setting, sink, sink.note_progress)
    truth = collect(outcome, records_of(outcome), {}).data
    fault, times = truth["fault"], truth["jobs"][0]["iteration_ms"]
    onset = None if fault is None or not fault["params"] else fault["onset_step"]
    said = {
        "end_unix_s": begin_unix_s + outcome.end_ns / 1e9,
        "culprit": None if fault is None else fault["culprit_node"],
        "onset_unix_s": None if onset is None else begin_unix_s + (START_NS / 1e6 + sum(times[:onset])) / 1e3,
    }
    print(json.dumps(said), flush=True)
    sink.wait()


if __name__ == "__main__":
    main()
