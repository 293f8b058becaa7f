# SPDX-License-Identifier: Apache-2.0
"""``pulse sim`` lists, prints, runs, and says in one line what cannot be."""

from __future__ import annotations

import json
import resource
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from sim.scenarios.catalogue import CATALOGUE
from sim.scenarios.cluster_file import ClusterSpec, read_cluster
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER
from tests.cli.conftest import Pulse

SMALL = """
[cluster]
machines = 4
nics_per_machine = 2
[network]
rate_gbps = 100
[stack]
slot_bytes = 65536
[[jobs]]
machines = [0, 1, 2, 3]
steps = 5
collective_bytes = 1048576
compute_ns = 1000000
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A small cluster with a short job."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_the_list_names_every_scenario_with_its_row_and_every_workload(pulse: Pulse) -> None:
    result = pulse("sim", "list")
    assert result.status == 0
    rows = {line.split()[0]: line.split()[1] for line in result.out.splitlines() if line[:1].isalpha()}
    assert {name: rows.get(name) for name in CATALOGUE} == {n: str(e.row) for n, e in CATALOGUE.items()}
    assert set(PRESETS) <= set(rows)


def test_a_piped_list_has_no_colours_and_no_trailing_blanks(pulse: Pulse) -> None:
    lines = pulse("sim", "list").out.splitlines()
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_the_list_as_json_tells_verdicts_and_severities(pulse: Pulse) -> None:
    content = json.loads(pulse("sim", "list", "--json").out)
    scenarios = {one["name"]: one for one in content["scenarios"]}
    assert set(scenarios) == set(CATALOGUE)
    assert scenarios["congestion"]["allowed"]["separable"] is False
    assert scenarios["gpu_slow"]["allowed"]["causes"] == ["compute_slow"]
    assert scenarios["gpu_slow"]["severity"]["drawn_from"] == 1.25
    assert scenarios["stage_imbalance"]["workloads"] == ["pp"]
    assert {one["name"] for one in content["workloads"]} == set(PRESETS)


def test_the_printed_cluster_is_the_default_one(pulse: Pulse, tmp_path: Path) -> None:
    path = tmp_path / "default.toml"
    path.write_text(pulse("sim", "cluster").out, encoding="utf-8")
    assert read_cluster(path, ClusterSpec()) == DEFAULT_CLUSTER
    path.write_text(pulse("sim", "cluster", "--workload", "moe").out, encoding="utf-8")
    assert len(read_cluster(path, ClusterSpec()).jobs) == 1


def test_a_run_writes_captures_and_truth_and_says_how_to_analyse_them(
    pulse: Pulse, cluster: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--machine", 2, "--nic", 1, "--severity", 3, "--onset", 2, "--counterfactual")
    result = pulse("sim", "run", "port_slow", "--cluster", cluster, "--out", out, *options)
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines()[-1].endswith(f"pulse analyze {out}")
    assert len(list(out.glob("*.pcap"))) == 8
    truth = json.loads((out / "truth.json").read_text(encoding="utf-8"))
    fault = truth["fault"]
    assert (fault["culprit_node"], fault["culprit_rail"], fault["onset_step"]) == (2, 1, 2)
    assert fault["params"]["factor"] == 3
    assert fault["allowed"]["separable"] is True
    assert len(truth["counterfactual"][0]) == 5
    assert pulse("analyze", out).status in (0, 3, 4)


def test_equal_runs_are_equal_bytes(pulse: Pulse, cluster: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert pulse("sim", "run", "gpu_slow", "--cluster", cluster, "--out", tmp_path / name).status == 0
    for path in (tmp_path / "a").glob("*.pcap"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_what_taps_see_can_be_chosen(pulse: Pulse, cluster: Path, tmp_path: Path) -> None:
    sizes = {}
    options: dict[str, tuple[str, ...]] = {
        "all": (),
        "received": ("--tx-stamp", "none"),
        "steered": ("--capture", "steered"),
        "sampled": ("--capture", "sampled:8"),
    }
    for name, chosen in options.items():
        out = tmp_path / name
        given = ("--perfect-clocks", "--noise", "quiet", *chosen)
        assert pulse("sim", "run", "healthy", "--cluster", cluster, "--out", out, *given).status == 0
        sizes[name] = sum(path.stat().st_size for path in out.glob("*.pcap"))
        truth = json.loads((out / "truth.json").read_text(encoding="utf-8"))
        assert all(nic["clock"]["offset_ns"] == 0 for nic in truth["nics"])
    assert sizes["received"] == pytest.approx(sizes["all"] / 2, rel=0.05)
    assert sizes["sampled"] < sizes["steered"] < sizes["all"]


def test_frames_can_be_written_instead_of_captures(pulse: Pulse, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "frames"
    result = pulse("sim", "run", "healthy", "--cluster", cluster, "--out", out, "--format", "frames")
    assert result.status == 0
    assert list(out.glob("*.pcap")) == []
    assert len(list(out.glob("*.frames"))) == 8


def test_two_faults_are_both_told(pulse: Pulse, cluster: Path, tmp_path: Path) -> None:
    out = tmp_path / "two"
    result = pulse("sim", "run", "gpu_slow+port_slow", "--cluster", cluster, "--out", out, "--steps", 4)
    assert result.status == 0
    truth = json.loads((out / "truth.json").read_text(encoding="utf-8"))
    assert truth["fault"]["kind"] == "slow_compute"
    assert truth["second_fault"]["kind"] == "slow_nic"
    assert result.out.count("fault ") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu_slwo",), "did you mean gpu_slow"),
        (("gpu_slow", "--workload", "dpp"), "did you mean"),
        (("gpu_slow", "--machine", "9"), "machine 9 does not exist; give 0 to 7"),
        (("gpu_slow", "--nic", "8"), "NIC 8 does not exist; give 0 to 7"),
        (("gpu_slow", "--severity", "-2"), "severity -2"),
        (("gpu_slow", "--onset", "99"), "give 0 to 19"),
        (("gpu_slow", "--steps", "-1"), "-1 iterations"),
        (("gpu_slow", "--scale", "1e9"), "16 MiB"),
        (("gpu_slow", "--seed", "-1"), "seed -1"),
        (("gpu_slow", "--capture", "sampled:3"), "power of two"),
        (("gpu_slow", "--capture", "some"), "expected all, steered or sampled:K"),
        (("gpu_slow", "--tx-stamp", "gut"), "--tx-stamp"),
        (("gpu_slow", "--format", "punchcards"), "--format"),
        (("gpu_slow", "--cluster", "none.toml"), "cannot be read"),
        (("gpu_slow", "--steps", "900000"), "are needed"),
        ((), "argument"),
    ],
)
def test_a_run_that_cannot_be_is_told_in_one_line(
    pulse: Pulse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = pulse("sim", "run", *arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_the_group_alone_says_what_to_give(pulse: Pulse) -> None:
    result = pulse("sim")
    assert result.status == 2
    assert "pulse sim list" in result.err


def test_an_output_folder_that_cannot_be_used_is_told(pulse: Pulse, cluster: Path, tmp_path: Path) -> None:
    run = ("sim", "run", "healthy", "--cluster", cluster, "--out")
    assert "is not empty" in pulse(*run, tmp_path).err
    assert "is no folder" in pulse(*run, cluster).err
    below = pulse(*run, cluster / "below")
    assert below.status == 2
    assert below.err.count("\n") == 1


def test_a_full_disk_is_told_before_the_run(
    pulse: Pulse, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024  as shutil gives it
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 0))
    result = pulse("sim", "run", "healthy", "--cluster", cluster, "--out", tmp_path / "full")
    assert result.status == 2
    assert "0 MB free" in result.err
    assert not (tmp_path / "full").exists()


@pytest.mark.parametrize("room_bytes", [10_000, 0])
@pytest.mark.parametrize("form", ["pcap", "frames"])
def test_a_file_that_cannot_grow_any_more_is_told_and_nothing_is_left(
    pulse: Pulse, cluster: Path, tmp_path: Path, room_bytes: int, form: str
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "run"
    run = ("sim", "run", "healthy", "--cluster", cluster, "--format", form, "--out")
    assert pulse(*run, whole).status == 0
    # No room for more than so many bytes, or for all but the largest file.
    limit = room_bytes or max(path.stat().st_size for path in whole.iterdir()) - 1
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        result = pulse(*run, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert result.status == 2
    assert "run" in result.err
    assert "File too large" in result.err
    assert result.err.count("\n") == 1
    assert not out.exists()
