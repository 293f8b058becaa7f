# SPDX-License-Identifier: Apache-2.0
"""A simulated job on real network devices, measured by the service on each of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import pulse_native
from dpu_app.meter.metering import tables_of
from dpu_app.service.spool import Spool, SpoolConfig
from dpu_app.wire.frame import CaptureKind, CaptureMode, Frame, NicIdentity, decode_frame
from tests.dpu.devices import needs_root
from tests.dpu.packets import MIDDLES
from tests.dpu.service import COMMAND, ROOT

if sys.version_info < (3, 11):
    pytest.skip("the simulator needs Python 3.11", allow_module_level=True)

from sim.live.network import LiveDevice
from sim.live.run import in_true_time, run_live
from sim.output.run import run_scenario
from sim.spec import JobSpec, Scenario

pytestmark = needs_root


class Services:
    """One service per device, without a controller: frames stay in their spools."""

    def __init__(self, folder: Path, mode: str) -> None:
        self._folder, self._mode = folder, mode
        self._running: dict[int, subprocess.Popen[str]] = {}

    def begin(self, devices: Sequence[LiveDevice]) -> None:
        """Start them and wait until all capture."""
        for device in devices:
            settings = {
                "interface": device.name, "machine": f"node{device.machine}", "meter-interval-s": "0.1",
                "capture-mode": self._mode, "spool-directory": str(self._folder / str(device.nic)),
            }  # fmt: skip
            flags = [part for key, value in settings.items() for part in (f"--{key}", value)]
            self._running[device.nic] = subprocess.Popen(
                ["ip", "netns", "exec", device.namespace, *COMMAND, "run", *flags],
                cwd=ROOT, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        for process in self._running.values():
            assert process.stderr is not None
            assert "capturing" in process.stderr.readline()

    def end(self, _devices: Sequence[LiveDevice] = ()) -> None:
        """End them as systemd does."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            _, errors = process.communicate(timeout=30)
            assert process.returncode == 0, errors

    def frames(self) -> dict[int, list[Frame]]:
        """What each has measured."""
        found: dict[int, list[Frame]] = {}
        for nic in self._running:
            spool = Spool(SpoolConfig(self._folder / str(nic)))
            number, found[nic] = 0, []
            while (entry := spool.next_after(number)) is not None:
                number = entry.number
                data = spool.load(entry)
                assert data is not None
                found[nic].append(decode_frame(data))
            spool.close()
        return found


def job() -> Scenario:
    """Four machines in a ring."""
    work = JobSpec((0, 1, 2, 3), steps=10, collective_bytes=1 << 18, compute_ns=8_000_000)
    return Scenario("live", 5, 4, (work,), watch_ns=60_000_000)


def offline(capture: Path, mode: CaptureMode) -> list[Frame]:
    """What the meter makes of a capture file, of which a steered capture would have taken a part."""
    reader = pulse_native.CaptureReader()
    batch = reader.feed(capture.read_bytes())
    records = batch.parse()
    if mode.kind is CaptureKind.STEERED:
        records = records[~np.isin(records["opcode"], MIDDLES)]
    meter = pulse_native.Meter(steered=mode.kind is CaptureKind.STEERED)
    meter.update_records(records)
    interval = meter.finish(int(batch.ns[0]), int(batch.ns[-1]) + 1)
    packets = {"roce": len(records)}
    return [Frame(NicIdentity("", ""), "", 0, 0, 1, tables_of(interval), packets=packets)]


def flows(frames: list[Frame]) -> dict[tuple[bytes, bytes, int], list[int]]:
    """Packets, bytes, data and messages of each flow, over all frames."""
    totals: dict[tuple[bytes, bytes, int], list[int]] = {}
    for frame in frames:
        keys = {}
        for row in frame.tables.flows:
            key = (row["src"].tobytes(), row["dst"].tobytes(), int(row["dest_qpn"]))
            keys[int(row["flow"])] = key
            total = totals.setdefault(key, [0, 0, 0, 0])
            for place, name in enumerate(("packets", "wire_bytes", "data_bytes")):
                total[place] += int(row[name])
        for message in frame.tables.messages:
            totals[keys[int(message["flow"])]][3] += 1
    return totals


@pytest.mark.parametrize("kind", [CaptureKind.ALL, CaptureKind.STEERED], ids=["all", "steered"])
def test_services_on_live_devices_measure_what_the_job_sent(tmp_path: Path, kind: CaptureKind) -> None:
    services = Services(tmp_path / "spools", kind.value)
    live = run_live(job(), 0.1, ready=services.begin, sent=services.end, groups=2)
    assert live.missing == 0
    run_scenario(in_true_time(job()), tmp_path)
    measured = services.frames()
    assert len(measured) == 4
    for nic, frames in measured.items():
        expected = offline(tmp_path / f"node{nic}.pcap", CaptureMode(kind))
        assert len(frames) > 5
        assert [frame.sequence for frame in frames] == list(range(len(frames)))
        assert {str(frame.mode) for frame in frames} == {kind.value}
        assert not any(name.startswith("capture_") for frame in frames for name in frame.losses)
        taken = sum(frame.packets.get("roce", 0) for frame in frames)
        assert taken == expected[0].packets["roce"]
        if kind is CaptureKind.ALL:
            assert taken == live.sent.sent[nic]
        assert flows(frames) == flows(expected)
