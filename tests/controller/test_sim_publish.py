# SPDX-License-Identifier: Apache-2.0
"""`pulse sim run --to`: software DPUs of a simulation publish to a running controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from dpu_app.wire.frame_file import read_frames
from host_ctl.diagnose.verdict import Verdict
from host_ctl.history.reader import StoredFrame
from host_ctl.pipeline import analyze_paths
from tests.cli.conftest import Pulse, pulse
from tests.cli.expect import refused
from tests.controller.running import COMMAND, ROOT, Pki, Service, wait_for

__all__ = ["pulse"]

CLUSTER = """
[cluster]
machines = 2
nics_per_machine = 2
[network]
rate_gbps = 100
[stack]
slot_bytes = 65536
[[jobs]]
machines = [0, 1]
steps = 40
collective_bytes = 1048576
compute_ns = 8000000
"""
RUN = ("sim", "run", "gpu_slow", "--machine", 1, "--severity", 2.5, "--onset", 10, "--seed", 3)
Key = tuple[str, str, int]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two machines of two NICs."""
    path = tmp_path / "small.toml"
    path.write_text(CLUSTER, encoding="utf-8")
    return path


@pytest.fixture
def certs(pki: Pki) -> Path:
    """The folder of `pulse certs` with a certificate for each of the machines."""
    for machine in ("node0", "node1"):
        pki.machine(machine)
    return pki.folder


def written(folder: Path) -> dict[Key, bytes]:
    """Machine, NIC and sequence of all frames in files, and when they begin and end."""
    found = {}
    for path in sorted(folder.glob("*.frames")):
        with path.open("rb") as file:
            for frame in read_frames(file):
                found[frame.nic.machine, frame.nic.nic, frame.sequence] = frame
    return {key: (frame.begin_ns, frame.end_ns, frame.clock_pairs) for key, frame in found.items()}


def key_of(stored: StoredFrame) -> Key:
    return stored.key.machine, stored.key.nic, stored.key.sequence


def told(verdicts: list[Verdict]) -> list[tuple[object, ...]]:
    return [(v.severity, v.cause, v.scope, v.machine, v.nic, v.onset_iteration, v.slowdown) for v in verdicts]


def test_every_frame_of_a_run_is_durable_once_and_leads_to_the_verdict_of_its_files(
    service: Service, certs: Path, cluster: Path, tmp_path: Path, pulse: Pulse
) -> None:
    out, session = tmp_path / "out", tmp_path / "session"
    begin_ns = time.time_ns()
    done = pulse(
        *RUN, "--cluster", cluster, "--interval", 0.1, "--out", out,
        "--to", f"localhost:{service.port}", "--certs", certs,
    )  # fmt: skip
    assert done.status == 0, done.err
    frames = written(out)
    counts = Counter(map(key_of, service.stored()))
    assert counts == dict.fromkeys(frames, 1)
    assert min(Counter(machine_nic[:2] for machine_nic in frames).values()) > 2
    assert f"{len(frames)} frames of 4 NICs" in done.out
    truth = json.loads((out / "truth.json").read_text())
    length_ns = truth["capture"]["end_ns"] - truth["capture"]["start_ns"]
    for stored in service.stored():
        # The NICs' clocks are up to 50 ms wrong; readings bring the frames to the time of the run.
        assert begin_ns - 200_000_000 < stored.key.begin_ns
        assert stored.key.end_ns < truth["capture"]["start_ns"] + length_ns + 200_000_000
    assert pulse("export", session, "--history", service.history).status == 0
    ours, direct = analyze_paths([session]).verdicts, analyze_paths([out]).verdicts
    assert [v.machine for v in direct if v.severity != "notice"] == ["node1"]
    assert told(ours) == told(direct)


@pytest.mark.slow
def test_a_paced_run_takes_its_time_and_survives_a_restart_of_the_controller(
    pki: Pki, certs: Path, cluster: Path, tmp_path: Path, free_port: int
) -> None:
    out = tmp_path / "out"
    options = ("--interval", 0.05, "--pace", 0.2, "--out", out, "--to", f"localhost:{free_port}")
    command = [*COMMAND, *map(str, (*RUN, "--cluster", cluster, *options, "--certs", certs))]
    with Service(tmp_path, pki, port=free_port) as first:
        running = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for(lambda: len(first.stored()) >= 4, "the first frames")
            assert running.poll() is None  # the rest is still to come
            first.kill()
            with Service(tmp_path, pki, history=first.history, port=free_port) as second:
                text, errors = running.communicate(timeout=60)
                assert running.returncode == 0, errors
                assert Counter(map(key_of, second.stored())) == dict.fromkeys(written(out), 1)
                assert "are durable" in text
        finally:
            running.kill()
            running.wait()


def test_an_interrupted_run_leaves_nothing_behind(
    service: Service, certs: Path, cluster: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--interval", 0.05, "--pace", 0.1, "--out", out, "--to", f"localhost:{service.port}")
    command = [*COMMAND, *map(str, (*RUN, "--cluster", cluster, *options, "--certs", certs))]
    # Who runs the tests in the background has Ctrl-C ignored, which children would inherit.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        wait_for(lambda: len(service.stored()) > 0, "the first frame")
        os.kill(running.pid, signal.SIGINT)
        text, errors = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, text) == (130, "")
    assert "Traceback" not in errors
    assert not out.exists()
    wait_for(lambda: service.metric("pulse_nic_connected") == 0, "the end of all connections")


def test_the_same_run_twice_is_two_lives_and_both_are_kept(
    tmp_path: Path, cluster: Path, pulse: Pulse
) -> None:
    with Service(tmp_path, None) as plain:
        for number in range(2):
            out = tmp_path / f"out{number}"
            done = pulse(
                "sim", "run", "healthy", "--cluster", cluster, "--out", out, "--to", f"127.0.0.1:{plain.port}"
            )
            assert done.status == 0, done.err
        assert len({stored.key.boot_id for stored in plain.stored()}) == 2
        assert max(Counter(stored.key for stored in plain.stored()).values()) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--to", "10.1.2.3:7471"), "--certs DIR"),
        (("--to", "host:port"), "HOST:PORT"),
        (("--to", "127.0.0.1:1"), "127.0.0.1:1: Connection refused"),
        (("--to", "127.0.0.1:1", "--certs", "absent"), "pulse certs init --dir absent"),
        (("--to", "127.0.0.1:1", "--format", "pcap"), "--format pcap"),
        (("--to", "127.0.0.1:1", "--pace", "0"), "--pace 0"),
        (("--pace", "1"), "--to HOST:PORT"),
        (("--certs", "absent"), "--to HOST:PORT"),
        (("--interval", "0"), "--interval 0"),
        (("--interval", "nan"), "--interval nan"),
    ],
)
def test_what_cannot_be_published_is_told_in_one_line_and_leaves_no_folder(
    options: tuple[str, ...], says: str, cluster: Path, tmp_path: Path, pulse: Pulse
) -> None:
    out = tmp_path / "out"
    refused(pulse(*RUN, "--cluster", cluster, "--out", out, *options), says)
    assert not out.exists()


def test_a_machine_without_a_certificate_of_its_own_is_told(
    service: Service, pki: Pki, cluster: Path, tmp_path: Path, pulse: Pulse
) -> None:
    out, folder = tmp_path / "out", tmp_path / "certs"
    folder.mkdir()
    common = (
        *RUN,
        "--cluster",
        cluster,
        "--out",
        out,
        "--to",
        f"localhost:{service.port}",
        "--certs",
        folder,
    )
    (folder / "ca.crt").write_bytes(pki.ca.read_bytes())
    refused(pulse(*common), "issue --machine node")
    for machine in ("node0", "node1"):  # somebody else's
        for suffix in (".crt", ".key"):
            foreign = pki.machine("node9").with_suffix(suffix)
            (folder / f"{machine}{suffix}").write_bytes(foreign.read_bytes())
    refused(pulse(*common), "identity")
    assert not out.exists()
    assert service.stored() == []
