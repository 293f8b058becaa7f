# SPDX-License-Identifier: Apache-2.0
"""Live output: simulated packets on real network devices, in namespaces made for the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pulse_native
from host_ctl.pipeline import analyze_paths
from pulse_native import PacketBatch
from sim.live.messages import HEADER, Chunk, packet_messages
from sim.live.network import LiveNetwork, remove_leftovers
from sim.live.run import LiveRun, in_true_time, live_truth, run_live
from sim.live.sink import LiveSink
from sim.output.run import run_scenario
from sim.scenarios.lab import build
from sim.simulate import prepare, run
from sim.spec import (
    CaptureSpec,
    ClockSpec,
    FaultKind,
    FaultSpec,
    JobSpec,
    NetworkSpec,
    Scenario,
    SimulationError,
)
from tests.sim.live_capture import Capture

_ETHERNET_BYTES = 14
_NAMESPACES = Path("/run/netns")

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`"
)

# Prints a line when the devices are there, and sends for a minute.
_LONG_RUN = """
import sys
from sim.live.run import run_live
from tests.sim.test_live import job
run_live(job(), 0.002, ready=lambda devices: print(*{d.namespace for d in devices}, flush=True))
"""


def job(steps: int = 14, fault: FaultSpec | None = None) -> Scenario:
    """Four machines, short iterations."""
    work = JobSpec((0, 1, 2, 3), steps=steps, collective_bytes=1 << 18, compute_ns=8_000_000)
    return Scenario("live", 5, 4, (work,), fault=fault, watch_ns=60_000_000)


def captured_run(scenario: Scenario, speed: float, groups: int = 2) -> tuple[LiveRun, Capture]:
    """A live run and what a capture on its devices got."""
    capture = Capture()
    try:
        live = run_live(scenario, speed, ready=capture.begin, sent=capture.end, groups=groups)
    finally:
        capture.end()
    return live, capture


def batch_of(path: Path) -> PacketBatch:
    """All whole packets of a capture file."""
    return pulse_native.CaptureReader(keep_bytes=1 << 16).feed(path.read_bytes())


def culprits(folder: Path) -> list[tuple[str, str, str | None]]:
    """What the analysis of a folder of captures blames."""
    return [(v.severity, v.cause, v.machine) for v in analyze_paths([folder]).verdicts]


def assert_same_packets(live: Path, simulated: Path) -> None:
    """Same bytes in the same order, which parse, and whose ICRC is right."""
    seen, expected = batch_of(live), batch_of(simulated)
    assert len(seen) == len(expected) > 500
    assert all(seen.data(index) == expected.data(index) for index in range(len(seen)))
    records, wanted = seen.parse(), expected.parse()
    fields = [name for name in records.dtype.names or () if name != "ns"]
    assert all((records[name] == wanted[name]).all() for name in fields)
    assert {pulse_native.OUTCOME_NAMES[value] for value in set(records["outcome"].tolist())} == {"roce"}
    for index in range(0, len(seen), 7):
        packet = seen.data(index)[_ETHERNET_BYTES:]
        assert pulse_native.icrc(packet[:-4]) == int.from_bytes(packet[-4:], "little")


@pytest.fixture(autouse=True)
def no_namespace_is_left() -> Iterator[None]:
    """Whatever a test does, its namespaces are gone."""
    before = set(_NAMESPACES.glob("pulse-sim-*"))
    yield
    assert set(_NAMESPACES.glob("pulse-sim-*")) <= before


@needs_root
def test_a_capture_of_a_live_run_holds_the_packets_of_a_pcap_run_and_names_the_same_machine(
    tmp_path: Path,
) -> None:
    scenario = job(16, FaultSpec(FaultKind.SLOW_COMPUTE, 2, onset_step=8, factor=1.6))
    for name in ("live", "pcap"):
        (tmp_path / name).mkdir()
    run_scenario(in_true_time(scenario), tmp_path / "pcap")
    live, capture = captured_run(scenario, 0.05)
    assert (capture.dropped, live.missing) == (0, 0)
    capture.write(tmp_path / "live")
    for device in capture.devices:
        assert_same_packets(*(tmp_path / name / f"node{device.machine}.pcap" for name in ("live", "pcap")))
        simulated_ns = np.ptp(batch_of(tmp_path / "pcap" / f"node{device.machine}.pcap").ns)
        stamps = [ns for ns, _ in capture.packets[device.nic]]
        assert (stamps[-1] - stamps[0]) * live.speed == pytest.approx(simulated_ns, rel=0.05)
        assert live.sent.sent[device.nic] == len(stamps)
    assert culprits(tmp_path / "live") == culprits(tmp_path / "pcap")
    assert culprits(tmp_path / "live") == [("fail_slow", "compute_slow", "node2")]


@needs_root
def test_truth_of_a_live_run_says_when_its_packets_were_captured() -> None:
    live, capture = captured_run(job(4), 0.05)
    told = live_truth(live).data["live"]
    first_ns = min(packets[0][0] for packets in capture.packets.values())
    assert abs(first_ns - told["begin_unix_ns"]) < 100_000_000
    assert told["packets"] == sum(len(packets) for packets in capture.packets.values())


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("name", ["slow_compute-dp-on_entry", "slow_nic-dp-on_entry"])
def test_a_named_scenario_gives_the_same_packets_live(tmp_path: Path, name: str) -> None:
    scenario = build(name, 2)
    for folder in ("live", "pcap"):
        (tmp_path / folder).mkdir()
    run_scenario(in_true_time(scenario), tmp_path / "pcap")
    live, capture = captured_run(scenario, 0.05)
    assert (capture.dropped, live.missing) == (0, 0)
    capture.write(tmp_path / "live")
    for device in capture.devices:
        assert_same_packets(*(tmp_path / n / f"node{device.machine}.pcap" for n in ("live", "pcap")))
    # Senders run late by milliseconds now and then, which is just what a slow NIC looks like.
    if "compute" in name:
        assert culprits(tmp_path / "live") == culprits(tmp_path / "pcap") != []


@needs_root
@pytest.mark.slow
def test_a_job_that_stops_shows_by_the_silence_at_the_end_of_a_live_run(tmp_path: Path) -> None:
    live, capture = captured_run(job(24, FaultSpec(FaultKind.HANG, 1, onset_step=14)), 0.1)
    assert abs(time.time_ns() - live.end_unix_ns) < 1_000_000_000
    last_ns = max(packets[-1][0] for packets in capture.packets.values())
    assert (live.end_unix_ns - last_ns) * live.speed > 50_000_000
    capture.write(tmp_path)
    verdicts = analyze_paths([tmp_path], until_ns=live.end_unix_ns).verdicts
    assert [(v.severity, v.cause, v.machine) for v in verdicts] == [("fail_stop", "hang", "node1")]


@needs_root
@pytest.mark.slow
def test_several_nics_are_several_devices_of_one_namespace() -> None:
    work = JobSpec((0, 1), steps=2, collective_bytes=1 << 18, compute_ns=2_000_000)
    scenario = replace(job(), machines=2, jobs=(work,), nics_per_machine=2, network=NetworkSpec(ipv6=True))
    live, capture = captured_run(scenario, 0.05)
    names = [(device.namespace.rpartition("-")[2], device.name) for device in capture.devices]
    assert names == [(f"node{machine}", f"mlx5_{rail}") for machine in range(2) for rail in range(2)]
    for device in capture.devices:
        own = bytes.fromhex(device.mac.replace(":", ""))
        assert len(capture.packets[device.nic]) == live.sent.sent[device.nic] > 100
        assert all(own in (frame[:6], frame[6:12]) for _, frame in capture.packets[device.nic])


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_leaves_no_namespace(number: signal.Signals) -> None:
    process, namespaces = _start_long_run()
    time.sleep(1.0)
    assert all((_NAMESPACES / name).exists() for name in namespaces)
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode in (128 + number, -number), errors
    assert not any((_NAMESPACES / name).exists() for name in namespaces)


@needs_root
@pytest.mark.slow
def test_a_stopped_sender_ends_the_run_with_a_reason() -> None:
    process, namespaces = _start_long_run()
    time.sleep(1.0)
    os.kill(_senders_of(process.pid)[0], signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "sender process 0 ended too early" in errors
    assert not any((_NAMESPACES / name).exists() for name in namespaces)


@needs_root
@pytest.mark.slow
def test_what_a_killed_run_leaves_is_removed_later() -> None:
    process, namespaces = _start_long_run()
    time.sleep(1.0)
    senders = _senders_of(process.pid)
    process.kill()
    process.communicate(timeout=20)
    assert sorted(set(remove_leftovers()) & namespaces) == sorted(namespaces)
    deadline = time.monotonic() + 5
    while any(_is_alive(sender) for sender in senders) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_is_alive(sender) for sender in senders)


@needs_root
@pytest.mark.slow
def test_a_failing_callback_ends_the_run_at_once() -> None:
    def fail(_share: float) -> None:
        if threading.active_count() > 1:
            raise RuntimeError("no more")

    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="no more"):
        run_live(job(), 0.002, progress=fail)
    assert time.monotonic() - begin < 10


@needs_root
@pytest.mark.slow
def test_the_simulation_runs_ahead_of_the_senders_by_a_bounded_amount() -> None:
    setting = prepare(in_true_time(job(500)))
    shares: list[tuple[float, float]] = []
    with (
        LiveNetwork(setting.world.nics) as network,
        LiveSink(network.devices, 0.6, 1, room_bytes=1 << 14) as sink,
    ):
        run(setting, sink, lambda share: shares.append((time.monotonic(), share)))
        seconds = time.monotonic() - shares[0][0]
    simulated_by_half = max(share for at, share in shares if at - shares[0][0] < seconds / 2)
    assert simulated_by_half < 0.8 * shares[-1][1]
    assert sum(sink.report.sent.values()) > 400_000


def test_without_root_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SimulationError, match="needs root"):
        run_live(job(), 1.0)


def test_without_the_tool_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SimulationError, match="iproute2"):
        run_live(job(), 1.0)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_an_impossible_speed_is_refused(speed: float) -> None:
    with pytest.raises(SimulationError, match="speed"):
        LiveSink(LiveNetwork(prepare(job()).world.nics).devices, speed, 1)


def test_live_packets_are_whole_and_without_clock_errors() -> None:
    wrong = replace(job(), clock=ClockSpec(offset_ns=50, poll_ns=1_000), capture=CaptureSpec(snap_bytes=64))
    assert in_true_time(wrong).clock == ClockSpec()
    assert in_true_time(wrong).capture.snap_bytes == 0


def test_messages_give_back_the_packets_at_scaled_times(tmp_path: Path) -> None:
    run_scenario(in_true_time(job(2)), tmp_path)
    batch = batch_of(tmp_path / "node0.pcap")
    frames, dues = [], []
    for content in packet_messages(3, batch):
        _, nic, packets, size = HEADER.unpack_from(content)
        assert (nic, size) == (3, len(content) - HEADER.size)
        chunk = Chunk(packets, content[HEADER.size :], int(batch.ns[0]), 1_000, 0.5)
        due: int | None = chunk.dues_ns[0]
        while due is not None:
            dues.append(due)
            frames.append(bytes(chunk.frame()))
            due = chunk.pass_on()
    assert frames == [batch.data(index) for index in range(len(batch))]
    assert dues == (1_000 + 2 * (batch.ns - batch.ns[0])).tolist()


def _start_long_run() -> tuple[subprocess.Popen[str], set[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _LONG_RUN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    namespaces = set(process.stdout.readline().split())
    assert len(namespaces) == 4
    return process, namespaces


def _senders_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children if b"live_sender" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
