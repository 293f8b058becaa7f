# SPDX-License-Identifier: Apache-2.0
"""What is measured of the core is what it is said to be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.measure.frames import Case, section_costs, simulate_upload
from bench.measure.instructions import BASELINE, Counts, compare, stages_of
from bench.measure.memory import measure_memory
from bench.measure.mode_errors import ERRORS
from bench.measure.modes import simulated, taken_by, view_of
from bench.measure.rows import Row, table
from bench.windows.contenders import CONTENDERS, exact_bytes, pulse, wavesketch
from bench.windows.curves import Curves, bursty
from bench.windows.metrics import errors
from bench.windows.wavesketch import REPORT_WINDOWS, UNIT_BYTES, WaveSketch, approximate
from dpu_app.wire.frame import CaptureKind, CaptureMode, encode_frame
from dpu_app.wire.records import PACKET
from pulse_native._bench import Traffic, measure_path


def test_the_path_is_measured_on_traffic_that_the_meter_sees_as_it_was_made() -> None:
    for steered in (False, True):
        figures = measure_path({"flows": 20, "train_packets": 3, "steered": steered}, 8_000, 2_000, 2)
        assert figures["packets"] >= 4_000
        assert 0 < figures["floor_ns"] < figures["meter_ns"]


def test_impossible_traffic_is_refused() -> None:
    with pytest.raises(ValueError, match="flows must be even"):
        Traffic({"flows": 3})


def test_all_packets_of_the_measured_second_are_counted() -> None:
    figures = measure_memory({"flows": 10, "gigabits": 1.0, "train_packets": 32}, {})
    assert figures["packets_counted"] == figures["packets"] > 50_000
    assert figures["flows"] == 10
    assert figures["peak_bytes"] > 0


def test_wavesketch_gives_a_curve_back_when_it_keeps_every_detail() -> None:
    rng = np.random.default_rng(2)
    curve = rng.integers(1, 400, REPORT_WINDOWS).astype(float)
    assert approximate(curve, REPORT_WINDOWS) == pytest.approx(curve)
    few = approximate(curve, 8)
    assert few.sum() == pytest.approx(curve.sum(), rel=0.01)
    assert not np.allclose(few, curve)


def test_wavesketch_keeps_the_largest_detail_first() -> None:
    curve = np.full(REPORT_WINDOWS, 10.0)
    curve[700] = 5_000
    kept = approximate(curve, 8)  # one detail of each level leads to a single window
    assert kept[700] == pytest.approx(5_000)


def test_a_busy_flow_gets_a_bucket_of_its_own() -> None:
    sketch = WaveSketch(64, seed=1)
    for window in range(1000):
        sketch.add(5, window, 100, 25)
        sketch.add(6 + window % 300, window, 1, 1)
    own = sketch.curves(320)[5]
    assert own[:1000] == pytest.approx(np.full(1000, 100.0))


def test_errors_are_none_for_the_truth_and_known_for_half_of_it() -> None:
    truth = np.array([[0, 10, 20, 0.0], [0, 0, 0, 0]])
    exact = errors(truth, truth)
    assert (exact.are, exact.cosine, exact.energy) == pytest.approx((0, 1, 1))
    half = errors(truth, truth / 2)
    assert half.cosine == pytest.approx(1)
    assert half.energy == pytest.approx(0.25)
    assert half.are == pytest.approx((5 / 11 + 10 / 21) / 4)


def test_every_way_to_keep_curves_keeps_its_bytes_and_pulse_its_sums() -> None:
    curves = bursty(flows=20, seed=3)
    exact = exact_bytes(curves)
    for name, keep in CONTENDERS.items():
        estimate, size = keep(curves, exact)
        assert estimate.shape == curves.bytes.shape
        assert size <= exact or name == "wavesketch"  # whose table has a least size
    estimate, size = pulse(curves, exact // 5)
    assert size <= exact // 5
    assert estimate.sum(axis=1) * UNIT_BYTES == pytest.approx(curves.bytes.sum(axis=1))


def test_pulse_is_nearer_to_random_bursts_than_wavesketch_in_as_many_bytes() -> None:
    curves = bursty(flows=40, seed=4)
    budget = 20_000
    truth = curves.bytes / UNIT_BYTES
    ours, theirs = (errors(truth, keep(curves, budget)[0]) for keep in (pulse, wavesketch))
    assert ours.are < theirs.are
    assert ours.cosine > theirs.cosine
    assert ours.energy > theirs.energy


def test_a_table_says_what_was_missed() -> None:
    rows = [
        Row("part", "case", "<= 1 ns", 2.0, "ns", "floor 1", False, {}),
        Row("part", "other", "", 1.0, "ns", "", None, {}),
    ]
    text = table(rows)
    assert "NO" in text
    assert text.count("part") == 1


def test_curves_name_bytes_of_packets() -> None:
    curves: Curves = bursty(flows=5)
    assert ((curves.bytes > 0) == (curves.packets > 0)).all()
    assert (curves.bytes <= curves.packets * 4096).all()


def test_sections_and_the_rest_are_the_bytes_of_the_frames() -> None:
    upload = simulate_upload(Case("pp", "3D", nics=1, steps=1), (8_000,))[8_000]
    assert sum(upload.section_bytes().values()) == sum(len(encode_frame(frame)) for frame in upload.frames)
    assert upload.active_ns > 0
    tables = upload.frames[-1].tables
    for name in ("messages", "markers", "series"):
        assert min(section_costs(tables, name, repetitions=1)) > 0


def test_full_capture_has_no_error_and_steered_one_none_in_what_it_keeps() -> None:
    packets = simulated("healthy", "pp", steps=1)
    full, steered = view_of(packets, CaptureMode()), view_of(packets, CaptureMode(CaptureKind.STEERED))
    for output, error in ERRORS.items():
        if output != "share of packets taken":
            assert error(full, full) in (None, 0.0), output
    exact = (
        "bytes per flow",
        "data packets per flow",
        "messages without start, end or length",
        "controls missing",
        "markers missing, messages",
        "markers missing, ACK and NAK",
        "histogram of message sizes",
    )
    assert {output: ERRORS[output](steered, full) for output in exact} == dict.fromkeys(exact, 0.0)
    assert ERRORS["bytes per window"](steered, full) < 0.1  # type: ignore[operator]


def test_a_sampled_capture_holds_its_share() -> None:
    packets = np.zeros(64_000, PACKET)
    taken = taken_by(CaptureMode(CaptureKind.SAMPLED, 4), packets)
    assert len(taken) == pytest.approx(4_000, rel=0.05)


PROFILE = """fn=(1) pulse::bench::measure_path(int)
1 5
cfn=(2) pulse::Meter::update_batch(int)
calls=3 0
2 900
cfn=(2)
calls=1 0
2 100
fn=(3) void pulse::Meter::update_block<x>(int)
cfn=(4) pulse::Meter::on_packet(int)
calls=2 0
7 400
"""


def test_instructions_are_those_of_calls_between_stages() -> None:
    stages = stages_of(PROFILE, packets=10)
    assert stages["parse and update"] == 100.0
    assert stages["packets outside runs"] == 40.0
    assert stages["rest of update"] == 60.0


def test_a_stage_that_became_dearer_is_told_and_noise_is_not() -> None:
    before = Counts("gcc 12", {"case": {"update": 100.0, "cut": 1.0}})
    assert not compare(Counts("gcc 12", {"case": {"update": 102.0, "cut": 1.9}}), before)[1]
    text, is_worse = compare(Counts("gcc 12", {"case": {"update": 104.0, "cut": 1.0, "new": 5.0}}), before)
    assert is_worse
    assert text.count("worse") == 1


def test_the_recorded_instructions_have_every_case() -> None:
    recorded = Counts(**json.loads(BASELINE.read_text()))
    assert recorded.compiler.startswith("gcc")
    assert all(stages["parse and update"] > 0 for stages in recorded.cases.values())
