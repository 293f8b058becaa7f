# SPDX-License-Identifier: Apache-2.0
"""The measurement of the offline path: that it runs and counts right, never how long it takes."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.inputs import given_captures, simulated_captures
from bench.offline import FRONT, measure_offline
from bench.repeat import packet_count, repeat_capture
from pulse_native import CaptureReader
from tests.native.captures import Packet, Roce, frame, pcap, pcapng

STEP_NS = 1_000_000


def packets(count: int) -> list[Packet]:
    data = frame(Roce(opcode=0x0A))
    return [Packet(STEP_NS * i, data, len(data)) for i in range(count)]


def stamps(path: Path) -> list[int]:
    return CaptureReader().feed(path.read_bytes()).ns.tolist()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


def test_offline_measurement_counts_every_packet_of_every_capture(kept: Path) -> None:
    source = simulated_captures(1, kept)
    result = measure_offline(source, 1, None)
    assert result.packets == sum(packet_count(p) for p in sorted(kept.glob("*/*.pcap")))
    assert result.counts.packets == result.counts.roce == result.packets > 0
    assert result.bytes == sum(p.stat().st_size for p in kept.glob("*/*.pcap"))
    assert 0 < result.counts.messages < result.packets / 2
    assert result.counts.frames >= len(source.files)
    assert set(result.front) == set(FRONT)
    assert set(result.stages) >= {"ingest", "align", "reconstruct", "total"}
    for name in (*result.front, *result.stages):
        assert name in result.as_text()


def test_offline_command_prints_its_result_as_json(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["offline", "--packets", "1", "--runs", "1", "--keep", str(kept), "--no-tshark", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["benchmark"] == "offline"
    assert result["tshark"] is None
    assert result["steps"]["total"]["packets_per_s"] > 0


def test_offline_command_refuses_a_folder_without_captures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["offline", "--captures", str(tmp_path), "--keep", str(tmp_path / "kept")]) == 2
    assert "bench: no capture" in capsys.readouterr().err


@pytest.mark.parametrize("nanoseconds", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_repeated_capture_holds_the_same_packets_again_later(
    tmp_path: Path, nanoseconds: bool, order: str
) -> None:
    path = tmp_path / "node0.pcap"
    path.write_bytes(pcap(packets(5), nanoseconds=nanoseconds, order=order))
    once = np.array(stamps(path))
    repeat_capture(path, 3)
    times = np.array(stamps(path)).reshape(3, 5)
    assert (times[0] == once).all()
    for earlier, later in pairwise(times):
        assert later[0] > earlier[-1]
        assert (np.diff(later) == np.diff(once)).all()


def test_given_captures_are_unpacked_and_repeated_until_long_enough(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "node0.pcap.gz").write_bytes(gzip.compress(pcap(packets(4))))
    source = given_captures(tmp_path / "in", 10, tmp_path / "kept")
    assert source.packets == 12
    assert [f.machine for f in source.files] == ["node0"]


def test_capture_of_another_format_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "node0.pcapng"
    path.write_bytes(pcapng(packets(3)))
    with pytest.raises(ValueError, match="no pcap file"):
        repeat_capture(path, 2)
