# SPDX-License-Identifier: Apache-2.0
"""Captures that do not fit together, or are of something else, accuse nobody that is not guilty."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Pulse
from tests.cli.expect import START_NS, accused, damaged, reported, warned
from tests.host_ctl.jobs import Recording, between, own_address, shifted
from tests.native.captures import ETHERNET, Packet, Roce, frame, pcap, reth


@pytest.mark.parametrize(
    "machine",
    ["node0", "node1", "node2", "node3"],
)
def test_one_capture_alone_accuses_nobody_else(
    machine: str, slow: Recording, folder: Path, pulse: Pulse
) -> None:
    report = reported(pulse("analyze", folder / f"{machine}.pcap", "--json"))
    assert accused(report) <= {"node1", own_address(slow, "node1")}


@pytest.mark.parametrize("machine", ["node0", "node2"])
def test_one_capture_of_a_healthy_job_accuses_nobody(
    machine: str, healthy: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    report = reported(pulse("analyze", healthy.write(tmp_path) / f"{machine}.pcap", "--json"))
    assert not accused(report)


def test_two_captures_of_a_nic_that_overlap_count_once(slow: Recording, folder: Path, pulse: Pulse) -> None:
    overlapping = between(slow, 0.3, 0.8).packets["node3"]
    (folder / "node3.pcap1").write_bytes(pcap(overlapping))
    report = damaged(folder, pulse)
    assert accused(report) == {"node1"}
    assert warned(report, "node3.pcap1 overlaps in time", "left out")
    assert [i["packets"] for i in report["inputs"]] == [len(p) for p in slow.packets.values()]


def test_the_same_capture_given_in_many_ways_counts_once(slow: Recording, folder: Path, pulse: Pulse) -> None:
    (folder / "link").symlink_to(folder / "node3.pcap")
    again = (folder / "node0.pcap", folder.parent / "captures" / ".." / "captures" / "node0.pcap")
    report = reported(pulse("analyze", folder, *again, "--nic", f"zeta/mlx5_0={folder / 'link'}", "--json"))
    assert accused(report) == {"node1"}
    assert [i["machine"] for i in report["inputs"]] == ["node0", "node1", "node2", "zeta"]
    assert [i["packets"] for i in report["inputs"]] == [len(p) for p in slow.packets.values()]


def test_a_copy_of_a_capture_under_another_name_accuses_nobody_else(folder: Path, pulse: Pulse) -> None:
    (folder / "copy.pcap").write_bytes((folder / "node3.pcap").read_bytes())
    report = damaged(folder, pulse)
    assert warned(report, "copy", "node3")


def test_a_copy_of_the_culprits_capture_does_not_split_the_blame(folder: Path, pulse: Pulse) -> None:
    (folder / "zcopy.pcap").write_bytes((folder / "node1.pcap").read_bytes())
    assert accused(damaged(folder, pulse)) == {"node1"}


def test_captures_of_different_hours_accuse_nobody(
    healthy: Recording, slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    """Each file is of a run of its own: no packet is in two of them, and no clock can be compared."""
    hour = 3_600_000_000_000
    parts = [between(healthy, k / 4, (k + 1) / 4) for k in range(4)]
    packets = {
        m: shifted(parts[k], [k * hour] * 4, [0] * 4).packets[m] for k, m in enumerate(healthy.packets)
    }
    report = reported(pulse("analyze", Recording(packets, 0).write(tmp_path), "--json"))
    assert not accused(report)
    assert warned(report, "its clock cannot be compared")


def test_clocks_an_hour_apart_are_no_reason_to_accuse(
    healthy: Recording, slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    hour = 3_600_000_000_000
    offsets = [0, hour, -3 * hour, 7 * hour]
    for job, guilty in ((healthy, set()), (slow, {"node1"})):
        captures = shifted(job, offsets, [0] * 4).write(tmp_path / str(len(guilty)))
        assert accused(reported(pulse("analyze", captures, "--json"))) == guilty


@pytest.mark.parametrize("keep_sent", [True, False])
def test_one_direction_alone_accuses_nobody_else(
    keep_sent: bool, healthy: Recording, slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    for job, guilty in ((healthy, set()), (slow, {"node1"})):
        packets = {m: one_direction(own, keep_sent=keep_sent) for m, own in job.packets.items()}
        captures = replace(job, packets=packets).write(tmp_path / str(len(guilty)))
        assert accused(reported(pulse("analyze", captures, "--json"))) <= guilty


def one_direction(packets: Sequence[Packet], *, keep_sent: bool) -> tuple[Packet, ...]:
    """What a tap shows that sees only what its NIC sends, or only what it receives."""
    own = set.intersection(*({p.data[26:30], p.data[30:34]} for p in packets))
    return tuple(p for p in packets if (p.data[26:30] in own) == keep_sent)


@pytest.mark.parametrize("jump_ns", [-20 * 365 * 86_400 * 10**9, 10 * 365 * 86_400 * 10**9, 2**61])
def test_a_clock_that_jumps_by_years_neither_hangs_nor_accuses(
    jump_ns: int, healthy: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    own = healthy.packets["node3"]
    half = len(own) // 2
    later = tuple(replace(p, ns=min(p.ns + jump_ns, 2**32 * 10**9 - 1)) for p in own[half:])
    packets = {**healthy.packets, "node3": own[:half] + later}
    report = reported(pulse("analyze", replace(healthy, packets=packets).write(tmp_path), "--json"))
    assert not accused(report)


def test_one_packet_out_of_time_accuses_nobody(healthy: Recording, tmp_path: Path, pulse: Pulse) -> None:
    own = healthy.packets["node3"]
    packets = {**healthy.packets, "node3": (replace(own[0], ns=0), *own, replace(own[-1], ns=2**62))}
    for machine, wrong in packets.items():
        packets[machine] = tuple(replace(p, ns=min(p.ns, 2**32 * 10**9 - 1)) for p in wrong)
    report = reported(pulse("analyze", replace(healthy, packets=packets).write(tmp_path), "--json"))
    assert not accused(report)


@pytest.mark.parametrize("name", ["a[bold]b", "x" * 200, "née", "[]", "a b", "-", "a:b"])
def test_odd_file_names_are_shown_as_they_are(
    name: str, slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    renamed = {(name if m == "node1" else m): p for m, p in slow.packets.items()}
    captures = replace(slow, packets=renamed).write(tmp_path)
    assert accused(reported(pulse("analyze", captures, "--json"))) == {name}
    text = pulse("analyze", captures)
    assert text.status == 3
    assert name in text.out.splitlines()[0]


def test_undecodable_and_control_characters_in_file_names_are_replaced(
    slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    captures = slow.write(tmp_path)
    (captures / "node1.pcap").rename(os.fsdecode(os.fsencode(captures) + b"/no\xff\x1b[31m\nde.pcap"))
    assert accused(reported(pulse("analyze", captures, "--json"))) == {"no??[31m de"}
    assert "no??[31m de" in pulse("analyze", captures).out.splitlines()[0]


def test_rdma_that_is_no_training_is_no_reason_to_accuse(tmp_path: Path, pulse: Pulse) -> None:
    packets = [
        Packet(START_NS + psn * 5000, frame(Roce(0x0A, reth(1024), bytes(1024), psn=psn))[:96], 1100)
        for psn in range(2000)
    ]
    for name in ("node0", "node1"):
        (tmp_path / f"{name}.pcap").write_bytes(pcap(packets))
    assert not accused(reported(pulse("analyze", tmp_path, "--json")))


def test_random_bytes_in_roce_frames_accuse_nobody(tmp_path: Path, pulse: Pulse) -> None:
    chance = random.Random(5)
    for machine in range(3):
        packets, ns = [], START_NS
        for _ in range(3000):
            ns += chance.randrange(1, 100_000)
            pair = chance.sample(range(3), 2) if chance.random() < 0.2 else [machine, (machine + 1) % 3]
            body = Roce(
                chance.randrange(256),
                chance.randbytes(16),
                chance.randbytes(chance.randrange(40)),
                dest_qpn=chance.randrange(4),
                psn=chance.randrange(1 << 24),
                src=f"10.0.0.{pair[0]}",
                dst=f"10.0.0.{pair[1]}",
            )
            data = frame(body)
            packets.append(Packet(ns, data[: chance.randrange(20, len(data))], len(data)))
        (tmp_path / f"node{machine}.pcap").write_bytes(pcap(packets, link_type=ETHERNET))
    assert not accused(reported(pulse("analyze", tmp_path, "--json")))
