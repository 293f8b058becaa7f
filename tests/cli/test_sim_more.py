# SPDX-License-Identifier: Apache-2.0
"""``pulse sim replay`` and ``pulse sim live``, and the default form of ``pulse sim run``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Pulse
from tests.cli.expect import refused
from tests.cli.test_sim import SMALL
from tests.sim.small_trace import small_rows, write

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and `ip` to make network namespaces"
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A small recorded job in which worker (0, 0) computes twice as long."""
    return write(tmp_path / "trace.parquet", small_rows())


def test_a_replay_writes_captures_and_whom_the_recording_shows_slow(
    trace: Path, tmp_path: Path, pulse: Pulse
) -> None:
    out = tmp_path / "out"
    result = pulse("sim", "replay", trace, "--model", "AR", "--gpus-per-machine", 4, "--out", out)
    assert result.status == 0
    assert "recorded: node0 computed lastingly slower" in result.out
    truth = json.loads((out / "truth.json").read_text())
    assert truth["replay"] == {"trace": "trace.parquet", "model": "AR", "slowed_machines": ["node0"]}
    assert len(list(out.glob("*.pcap"))) == 4
    assert len(truth["jobs"][0]["iteration_ms"]) == 2


def test_a_replay_of_something_else_is_refused(tmp_path: Path, pulse: Pulse) -> None:
    foreign = tmp_path / "foreign.parquet"
    foreign.write_bytes(b"no parquet")
    refused(pulse("sim", "replay", foreign, "--out", tmp_path / "out"), "foreign.parquet")
    refused(pulse("sim", "replay", tmp_path / "absent.parquet", "--out", tmp_path / "out"), "absent.parquet")
    assert not (tmp_path / "out").exists()


def test_captures_are_written_while_they_are_small_and_frames_instead_of_huge_ones(
    tmp_path: Path, pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = tmp_path / "small.toml"
    cluster.write_text(SMALL, encoding="utf-8")
    common = ("sim", "run", "healthy", "--cluster", cluster, "--out")
    assert pulse(*common, tmp_path / "captures").status == 0
    assert len(list((tmp_path / "captures").glob("*.pcap"))) == 8
    monkeypatch.setattr("host_ctl.cli.sim.capture_bytes", lambda *_: 2 << 30)
    result = pulse(*common, tmp_path / "frames")
    assert "captures would take 2.1 GB, so frames were written" in result.out
    assert len(list((tmp_path / "frames").glob("*.frames"))) == 8
    assert pulse("analyze", tmp_path / "frames").status in (0, 4)


@needs_root
def test_a_live_run_lists_its_devices_and_counts_what_it_sent(tmp_path: Path, pulse: Pulse) -> None:
    cluster = tmp_path / "small.toml"
    cluster.write_text(SMALL.replace("steps = 5", "steps = 2"), encoding="utf-8")
    truth = tmp_path / "truth.json"
    result = pulse("sim", "live", "healthy", "--cluster", cluster, "--speed", 0.05, "--truth", truth)
    assert result.status == 0
    assert result.out.count("ip netns exec") == 8
    sent = json.loads(truth.read_text())["live"]["packets"]
    assert f"{sent} packets sent" in result.out
    assert sent > 1000


def test_an_impossible_speed_is_refused(pulse: Pulse) -> None:
    refused(pulse("sim", "live", "healthy", "--speed", 0), "--speed 0")
    refused(pulse("sim", "live", "nonsense", "--speed", 0.5), "nonsense")
