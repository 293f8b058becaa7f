# SPDX-License-Identifier: Apache-2.0
"""Changes that mean nothing must not change the verdict; those that take evidence away must not turn it
against somebody else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import host_ctl.reconstruct.operators as operators
from host_ctl.pipeline import analyze_paths
from tests.host_ctl.jobs import (
    FAULTS,
    MACHINES,
    Outcome,
    Recording,
    between,
    judge,
    load,
    outcome,
    own_address,
    renamed,
    shifted,
    steered,
    without,
)
from tests.native.captures import pcap, pcapng

TRUTH = {
    "healthy": Outcome("ok", frozenset()),
    "slow_compute": Outcome("degraded", frozenset({("fail_slow", "compute_slow", "node1")})),
    "slow_nic": Outcome("degraded", frozenset({("fail_slow", "nic_slow", "node2")})),
    "hang": Outcome("failed", frozenset({("fail_stop", "hang", "node1")})),
}
CULPRIT = {fault: next(iter(truth.machines), None) for fault, truth in TRUTH.items()}
SOFTROCE = Path(__file__).parents[3] / "shared" / "data" / "softroce"
REAL = {
    "A_healthy_dp_1": Outcome("ok", frozenset()),
    "B_slow_compute_n2": Outcome("degraded", frozenset({("fail_slow", "compute_slow", "node2")})),
    "C_slow_nic_n1": Outcome("degraded", frozenset({("fail_slow", "nic_slow", "node1")})),
    "E_hang_n1": Outcome("failed", frozenset({("fail_stop", "hang", "node1")})),
}

every_fault = pytest.mark.parametrize("fault", FAULTS)
every_real = pytest.mark.parametrize("name", REAL)
needs_softroce = pytest.mark.skipif(
    not SOFTROCE.is_dir(), reason="the Soft-RoCE captures are not beside the project"
)


def moved(expected: Outcome, names: dict[str, str]) -> Outcome:
    """An outcome under other machine names."""
    return Outcome(expected.health, frozenset((s, c, m and names[m]) for s, c, m in expected.accused))


@every_fault
def test_the_undistorted_job_is_judged_right(fault: str, recordings, tmp_path: Path) -> None:
    assert judge(recordings[fault], tmp_path) == TRUTH[fault]


@every_fault
@pytest.mark.parametrize("turn", [1, 3])
def test_the_accused_name_follows_its_capture(fault: str, turn: int, recordings, tmp_path: Path) -> None:
    names = [MACHINES[(i + turn) % 4] for i in range(4)]
    found = judge(renamed(recordings[fault], names), tmp_path)
    assert found == moved(TRUTH[fault], dict(zip(MACHINES, names, strict=True)))


@every_fault
@pytest.mark.parametrize("shift_ns", [-1_000_000_000_000_000, 123_456_789, 7 * 86_400 * 10**9])
def test_all_clocks_may_be_wrong_alike(fault: str, shift_ns: int, recordings, tmp_path: Path) -> None:
    assert judge(shifted(recordings[fault], [shift_ns] * 4, [0] * 4), tmp_path) == TRUTH[fault]


@every_fault
@pytest.mark.parametrize(
    ("offsets_ms", "drifts_ppm"),
    [
        ((0, 50, -50, 31), (0, 0, 0, 0)),
        ((-50, 20, 50, -7), (50, -50, 13, -21)),
        ((3000, -3000, 1500, -700), (0, 0, 0, 0)),
        ((-3000, 900, 3000, 10), (-50, 50, -30, 7)),
    ],
)
def test_each_clock_may_be_wrong_in_its_own_way(
    fault: str,
    offsets_ms: tuple[int, ...],
    drifts_ppm: tuple[float, ...],
    recordings,
    tmp_path: Path,
) -> None:
    offsets = [ms * 1_000_000 for ms in offsets_ms]
    assert judge(shifted(recordings[fault], offsets, drifts_ppm), tmp_path) == TRUTH[fault]


@every_fault
@pytest.mark.parametrize("part", [(0.0, 0.5), (0.5, 1.0), (0.25, 0.75)])
def test_half_of_the_time_accuses_nobody_else(
    fault: str, part: tuple[float, float], recordings, tmp_path: Path
) -> None:
    found = judge(between(recordings[fault], *part), tmp_path)
    assert found.machines <= {CULPRIT[fault]}
    assert fault != "healthy" or not found.accused


@every_fault
@pytest.mark.parametrize("missing", MACHINES)
def test_a_missing_capture_accuses_nobody_else(fault: str, missing: str, recordings, tmp_path: Path) -> None:
    recording = recordings[fault]
    found = judge(without(recording, missing), tmp_path)
    culprit = CULPRIT[fault] if CULPRIT[fault] != missing else own_address(recording, missing)
    assert found.machines <= {culprit}
    assert fault != "healthy" or not found.accused


@every_fault
def test_the_steered_view_gives_the_same_verdict(fault: str, recordings, tmp_path: Path) -> None:
    recording = steered(recordings[fault])
    analysis = analyze_paths([recording.write(tmp_path)], until_ns=recording.end_ns)
    assert {s.mode for s in analysis.series} == {"steered"}
    assert outcome(analysis) == TRUTH[fault]


@every_fault
@pytest.mark.parametrize(
    ("suffix", "encode"),
    [
        (".pcapng", pcapng),
        (".pcap", lambda packets: pcap(packets, nanoseconds=False)),
        (".pcap", lambda packets: pcap(packets, order=">")),
        (".pcap.gz", lambda packets: gzip.compress(pcap(packets), 1)),
    ],
    ids=["pcapng", "microseconds", "big-endian", "gzip"],
)
def test_the_file_format_does_not_matter(fault: str, suffix: str, encode, recordings, tmp_path: Path) -> None:
    recording = recordings[fault]
    folder = recording.write(tmp_path, suffix, encode)
    assert outcome(analyze_paths([folder], until_ns=recording.end_ns)) == TRUTH[fault]


@every_fault
def test_operators_may_be_merged_in_pairs(
    fault: str, recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = operators._balanced_cuts
    counts = []

    def every_other(*arguments):
        cuts = cut(*arguments)
        counts.append((len(cuts), len(cuts[1::2])))
        return cuts[1::2]

    monkeypatch.setattr(operators, "_balanced_cuts", every_other)
    found = judge(recordings[fault], tmp_path)
    assert all(merged < whole for whole, merged in counts)
    assert found == TRUTH[fault]


@every_fault
def test_operators_may_be_split_at_every_balanced_silence(
    fault: str, recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "_SHORT_SILENCE", 0.0)
    assert judge(recordings[fault], tmp_path) == TRUTH[fault]


@pytest.fixture(scope="module")
def real() -> dict[str, Recording]:
    """Captures of a real RDMA stack."""
    return {name: load(SOFTROCE / name) for name in REAL}


@needs_softroce
@every_real
def test_real_captures_may_have_wrong_clocks_and_other_names(name: str, real, tmp_path: Path) -> None:
    names = ["alpha", "zeta", "mid", "beta"]
    distorted = shifted(real[name], [-30_000_000, 3_000_000_000, 0, -2_000_000], [50, -50, 10, -30])
    found = judge(renamed(distorted, names), tmp_path)
    assert found == moved(REAL[name], dict(zip(MACHINES, names, strict=True)))


@needs_softroce
@every_real
def test_real_captures_with_one_missing_accuse_nobody_else(name: str, real, tmp_path: Path) -> None:
    culprit = next(iter(REAL[name].machines), "node0")
    for missing in (culprit, MACHINES[(MACHINES.index(culprit) + 1) % 4]):
        found = judge(without(real[name], missing), tmp_path / missing)
        allowed = {own_address(real[name], missing)} if missing == culprit else {culprit}
        assert found.machines <= (allowed if REAL[name].accused else set()), missing


@needs_softroce
@every_real
def test_half_of_a_real_capture_accuses_nobody_else(name: str, real, tmp_path: Path) -> None:
    for part in ((0.0, 0.5), (0.5, 1.0)):
        found = judge(between(real[name], *part), tmp_path / str(part[0]))
        assert found.machines <= REAL[name].machines, part


@needs_softroce
@every_real
def test_real_captures_in_steered_view_give_the_same_verdict(name: str, real, tmp_path: Path) -> None:
    assert judge(steered(real[name]), tmp_path) == REAL[name]
