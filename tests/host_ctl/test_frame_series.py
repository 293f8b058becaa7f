# SPDX-License-Identifier: Apache-2.0
"""Frames in files take the way of captures: same names, same verdict, damage told."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from dpu_app.wire.frame import encode_frame
from dpu_app.wire.frame_file import MAGIC, read_frames
from host_ctl.errors import InputError
from host_ctl.pipeline import analyze_paths
from sim.output.run import OutputForm, run_scenario
from sim.spec import CaptureKind, CaptureSpec, FaultKind, FaultSpec, JobSpec, Scenario


@pytest.fixture(scope="module")
def slow() -> Scenario:
    job = JobSpec((0, 1, 2, 3), steps=20, collective_bytes=1 << 18, compute_ns=8_000_000)
    fault = FaultSpec(FaultKind.SLOW_COMPUTE, 2, onset_step=8, factor=1.6)
    return Scenario("slow", 3, 4, (job,), fault=fault)


@pytest.fixture
def frames(slow: Scenario, tmp_path: Path) -> list[Path]:
    run_scenario(slow, tmp_path, form=OutputForm.FRAMES)
    return sorted(tmp_path.glob("*.frames"))


def findings(paths: list[Path]) -> list[tuple[object, ...]]:
    return [(v.severity, v.cause, v.machine, v.onset_iteration) for v in analyze_paths(paths).verdicts]


def test_frames_and_captures_of_one_run_give_the_same_report(slow: Scenario, tmp_path: Path) -> None:
    for form in OutputForm:
        (tmp_path / form).mkdir()
        run_scenario(slow, tmp_path / form, form=form)
    by_form = {form: analyze_paths([tmp_path / form]) for form in OutputForm}
    assert by_form["pcap"].verdicts == by_form["frames"].verdicts
    assert by_form["pcap"].verdicts[0].machine == "node2"
    assert [s.packets for s in by_form["pcap"].series] == [s.packets for s in by_form["frames"].series]


def test_frames_of_a_steered_capture_say_so(slow: Scenario, tmp_path: Path) -> None:
    steered = replace(slow, capture=CaptureSpec(CaptureKind.STEERED), train_packets=64)
    run_scenario(steered, tmp_path, form=OutputForm.FRAMES)
    analysis = analyze_paths([tmp_path])
    assert {series.mode for series in analysis.series} == {"steered"}
    assert analysis.verdicts[0].machine == "node2"


def test_a_cut_file_of_frames_is_told_and_the_rest_is_used(frames: list[Path]) -> None:
    os.truncate(frames[0], frames[0].stat().st_size - 5)
    analysis = analyze_paths(frames)
    assert any("node0.frames: cut off" in warning for warning in analysis.warnings)
    assert "node0" not in {v.machine for v in analysis.verdicts}


def test_a_file_without_frames_is_left_aside_with_the_reason(frames: list[Path]) -> None:
    frames[1].write_bytes(b"not frames at all")
    analysis = analyze_paths(frames)
    assert any("node1.frames: not a file of frames" in warning for warning in analysis.warnings)
    for path in frames:
        path.write_bytes(b"")
    with pytest.raises(InputError, match="not a file of frames"):
        analyze_paths(frames)


def test_frames_beside_captures_of_the_same_nic_do_not_count_twice(slow: Scenario, tmp_path: Path) -> None:
    for form in OutputForm:
        run_scenario(slow, tmp_path, form=form)
    analysis = analyze_paths([tmp_path])
    assert len(analysis.series) == 4
    assert sum("would count twice" in warning for warning in analysis.warnings) == 4
    assert analysis.verdicts[0].machine == "node2"


def test_damage_inside_a_table_is_told_and_the_frames_before_it_are_used(frames: list[Path]) -> None:
    with frames[0].open("rb") as file:
        whole = list(read_frames(file))
    packed = msgpack.unpackb(encode_frame(whole[0]))
    packed["sections"]["markers"][0] += 1
    data = msgpack.packb(packed)
    frames[0].write_bytes(MAGIC + struct.pack("<II", len(data), zlib.crc32(data)) + data)
    analysis = analyze_paths(frames)
    assert any("node0.frames" in warning and "markers" in warning for warning in analysis.warnings)
    assert "node0" not in {v.machine for v in analysis.verdicts}


def test_what_is_no_regular_file_is_not_waited_for(frames: list[Path]) -> None:
    frames[2].unlink()
    os.mkfifo(frames[2])
    analysis = analyze_paths(frames)
    assert any("node2.frames is no regular file" in warning for warning in analysis.warnings)


def test_a_stop_needs_no_end_of_the_capture_to_be_told_from_frames(slow: Scenario, tmp_path: Path) -> None:
    hang = replace(slow, fault=FaultSpec(FaultKind.HANG, 1, onset_step=14), watch_ns=1_500_000_000)
    run_scenario(hang, tmp_path, form=OutputForm.FRAMES)
    analysis = analyze_paths([tmp_path])
    assert [(v.severity, v.machine) for v in analysis.verdicts] == [("fail_stop", "node1")]
