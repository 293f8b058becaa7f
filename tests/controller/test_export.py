# SPDX-License-Identifier: Apache-2.0
"""From a simulated job over the controller and its history to a verdict."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

from dpu_app.wire.frame import Frame, encode_frame
from dpu_app.wire.frame_file import read_frames
from dpu_app.wire.transport import Ack, FrameData
from host_ctl.history.reader import read_range
from host_ctl.pipeline import analyze_paths
from sim.output.run import OutputForm, run_scenario
from sim.spec import FaultKind, FaultSpec, JobSpec, Scenario
from tests.cli.conftest import Pulse, pulse
from tests.controller.running import Peer, Service

__all__ = ["pulse"]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Frames of a simulated job in files, and a history into which a controller has taken the same frames."""
    folder = tmp_path_factory.mktemp("job")
    job = JobSpec((0, 1, 2, 3), steps=20, collective_bytes=1 << 18, compute_ns=8_000_000)
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 2, onset_step=8, factor=1.6)
    direct = folder / "direct"
    direct.mkdir()
    run_scenario(Scenario("slow", 3, 4, (job,), fault=fault), direct, form=OutputForm.FRAMES)
    frames: list[Frame] = []
    for path in sorted(direct.glob("*.frames")):
        with path.open("rb") as file:
            frames += read_frames(file)
    with Service(folder, None) as service:
        for (machine, nic), own in groupby(frames, key=lambda frame: (frame.nic.machine, frame.nic.nic)):
            send(service.port, machine, nic, list(own))
        assert service.terminate() == 0
    return direct, service.history


def send(port: int, machine: str, nic: str, frames: list[Frame]) -> None:
    """Send frames and wait until all are durable."""
    with Peer(port) as peer:
        peer.greet(machine, nic, frames[0].boot_id)
        peer.send(*[FrameData(encode_frame(frame)) for frame in frames])
        while peer.receive(Ack).durable[0].sequence < frames[-1].sequence:
            pass


def test_an_exported_session_gets_the_verdict_of_the_frames_that_were_sent(
    session: tuple[Path, Path], tmp_path: Path, pulse: Pulse
) -> None:
    direct, history = session
    out = tmp_path / "session"
    done = pulse("export", out, "--history", history)
    assert done.status == 0, done.err
    assert " 4 NICs" in done.out
    (ours,), (expected,) = analyze_paths([out]).verdicts, analyze_paths([direct]).verdicts
    for name in ("severity", "cause", "scope", "machine", "onset_iteration", "slowdown", "lost_gpu_seconds"):
        assert getattr(ours, name) == getattr(expected, name)
    report = json.loads(pulse("analyze", "--json", out).out)
    assert [verdict["machine"] for verdict in report["verdicts"]] == ["node2"]


def test_a_range_of_time_holds_the_frames_that_touch_it(
    session: tuple[Path, Path], tmp_path: Path, pulse: Pulse
) -> None:
    _, history = session
    keys = [stored.key for stored in read_range(history)]
    middle_ns = sorted(key.begin_ns for key in keys)[len(keys) // 2]
    done = pulse("export", tmp_path / "late", "--history", history, "--from", middle_ns)
    assert done.status == 0, done.err
    exported = 0
    for path in (tmp_path / "late").glob("*.frames"):
        with path.open("rb") as file:
            exported += len(list(read_frames(file)))
    assert exported == sum(key.end_ns > middle_ns for key in keys)
    assert 0 < exported < len(keys)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", "2001-01-01", "--to", "2001-01-02"), "no frame of that time"),
        (("--from", "9", "--to", "9"), "must lie after"),
        (("--from", "yesterday"), "expected ISO 8601"),
    ],
)
def test_what_cannot_be_exported_is_told_and_leaves_no_folder(
    session: tuple[Path, Path], tmp_path: Path, pulse: Pulse, arguments: tuple[str, ...], says: str
) -> None:
    done = pulse("export", tmp_path / "x", "--history", session[1], *arguments)
    assert done.status == 2
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_session_is_never_written_over(session: tuple[Path, Path], tmp_path: Path, pulse: Pulse) -> None:
    assert pulse("export", tmp_path, "--history", session[1]).status == 2
    assert pulse("export", tmp_path / "x", "--history", tmp_path / "none").status == 2
    assert list(tmp_path.iterdir()) == []
