# SPDX-License-Identifier: Apache-2.0
"""A cluster file is read as it says, written as it reads, and told what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.scenarios.cluster_file import ClusterSpec, read_cluster, to_toml
from sim.scenarios.preset_jobs import PRESETS
from sim.scenarios.presets import DEFAULT_CLUSTER, with_workload
from sim.spec import Algorithm, CaptureKind, JobSpec, SimulationError, TxStamp, Workload


def read(tmp_path: Path, text: str, base: ClusterSpec = DEFAULT_CLUSTER) -> ClusterSpec:
    path = tmp_path / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return read_cluster(path, base)


@pytest.mark.parametrize("workload", PRESETS)
def test_what_is_printed_reads_back_as_the_same(tmp_path: Path, workload: str) -> None:
    cluster = with_workload(DEFAULT_CLUSTER, workload, seed=1)
    assert read(tmp_path, to_toml(cluster), ClusterSpec()) == cluster


def test_all_kinds_of_values_read_back_as_the_same(tmp_path: Path) -> None:
    job = JobSpec((0, 3), Workload.PP, 7, stages=2, stage_factors=(1.0, 1.5), algorithm=Algorithm.TREE)
    cluster = replace(
        DEFAULT_CLUSTER,
        storage=True,
        jobs=(job, JobSpec((1, 2))),
        network=replace(DEFAULT_CLUSTER.network, vlan=100, ipv6=True, rate_gbps=12.5),
        clocks=replace(DEFAULT_CLUSTER.clocks, tx_stamp=TxStamp.COPY, wander_ppm=1e-5),
        capture=replace(DEFAULT_CLUSTER.capture, kind=CaptureKind.SAMPLED, sample_shift=3),
    )
    assert read(tmp_path, to_toml(cluster), ClusterSpec()) == cluster


def test_what_is_left_out_keeps_the_default(tmp_path: Path) -> None:
    cluster = read(tmp_path, "[cluster]\nmachines = 4\n[network]\nrate_gbps = 200\n")
    expected = replace(DEFAULT_CLUSTER, machines=4, network=replace(DEFAULT_CLUSTER.network, rate_gbps=200.0))
    assert cluster == expected
    assert isinstance(cluster.network.rate_gbps, float)
    assert read(tmp_path, "") == DEFAULT_CLUSTER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[netwrok]\n", r"unknown table \[netwrok\]; did you mean network"),
        ("[network]\nrate_gbp = 1\n", r"\[network\] rate_gbp: unknown key; did you mean rate_gbps"),
        ("[network]\nzzz = 1\n", r"\[network\] zzz: unknown key; known are"),
        ("[network]\nrate_gbps = -1\n", r"\[network\] rate_gbps: -1 is impossible"),
        ("[network]\nrate_gbps = 0\n", r"\[network\] rate_gbps: 0 is impossible"),
        ("[network]\nrate_gbps = inf\n", r"\[network\] rate_gbps: inf is impossible"),
        ("[network]\nrate_gbps = nan\n", r"\[network\] rate_gbps: nan is impossible"),
        ('[network]\nrate_gbps = "fast"\n', r"\[network\] rate_gbps: 'fast' is no number"),
        ("[network]\nrate_gbps = true\n", r"\[network\] rate_gbps: True is no number"),
        ("[network]\nleaves = 1.5\n", r"\[network\] leaves: 1.5 is no whole number"),
        ("[network]\nspine = 1\n", r"\[network\] spine: 1 is neither true nor false"),
        ("[network]\nmark_probability = 2\n", r"\[network\] mark_probability: 2 is impossible"),
        ("[transport]\nmtu = 9000\n", r"\[transport\] mtu: 9000 is no MTU; give one of 256"),
        ("[stack]\nslot_bytes = -4\n", r"\[stack\] slot_bytes: -4 is impossible"),
        ('[stack]\ncredit_style = "poem"\n', r"\[stack\] credit_style: 'poem' is none of write, send"),
        ("[cluster]\nmachines = 100000\n", r"\[cluster\] machines: 100000 is impossible"),
        ("[cluster]\nmachines = 4000\nnics_per_machine = 16\n", "64000 NICs; give at most 4096"),
        ("cluster = 3\n", r"\[cluster\]: expected a table"),
        ("jobs = 3\n", r"write each job as a table \[\[jobs\]\]"),
        ("[[jobs]]\nsteps = 3\n", r"\[\[jobs\]\] 1: machines: missing"),
        ("[[jobs]]\nmachines = 3\n", r"\[\[jobs\]\] 1 machines: 3 is no list"),
        ('[[jobs]]\nmachines = ["a"]\n', r"\[\[jobs\]\] 1 machines: 'a' is no whole number"),
        ("[[jobs]]\nmachines = [0, 8]\n", "machines beyond 7"),
        ("[[jobs]]\nmachines = [0, 1]\n[[jobs]]\nmachines = [1, 2]\n", "jobs overlap"),
        ("[[jobs]]\nmachines = [0, 1, 2]\nstages = 2\n", "equal stages"),
        ("[[jobs]]\nmachines = [0, 1]\n[[jobs]]\nmachines = [2, 3]\nsteps = 0\n", r"\[\[jobs\]\] 2 steps"),
        ("machines 3\n", "is no TOML"),
        ("[network]\nrate_gbps = 1\nrate_gbps = 2\n", "is no TOML"),
    ],
)
def test_a_mistake_is_told_with_file_table_and_key_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SimulationError, match=message) as told:
        read(tmp_path, text)
    assert str(told.value).startswith(str(tmp_path / "cluster.toml"))
    assert "\n" not in str(told.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="cannot be read: No such file"):
        read_cluster(tmp_path / "none.toml", DEFAULT_CLUSTER)
    with pytest.raises(SimulationError, match="cannot be read: Is a directory"):
        read_cluster(tmp_path, DEFAULT_CLUSTER)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SimulationError, match="is no TOML"):
        read_cluster(tmp_path / "binary.toml", DEFAULT_CLUSTER)
