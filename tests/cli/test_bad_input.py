# SPDX-License-Identifier: Apache-2.0
"""Bad input ends in one clear line and status 2, or in a counted warning; never in a traceback, and never
in an accusation that the good part of the input does not support."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.cli.conftest import Pulse, Result
from tests.host_ctl.jobs import Recording, between, own_address, shifted
from tests.native.captures import ETHERNET, Packet, Roce, frame, pcap, pcapng, reth

GARBAGE = random.Random(1).randbytes(50_000)
START_NS = 1_700_000_000_000_000_000


def refused(result: Result, *words: str) -> None:
    """One line on stderr that holds the words, nothing on stdout, status 2."""
    assert result.out == ""
    assert result.err.startswith("pulse: ")
    assert result.err.count("\n") == 1
    for word in words:
        assert word in result.err
    assert result.status == 2


def reported(result: Result) -> dict[str, Any]:
    """The JSON report of a command that had nothing to complain about on stderr."""
    assert result.err == ""
    report: dict[str, Any] = json.loads(result.out)
    assert result.status == {"ok": 0, "degraded": 3, "failed": 3, "unsure": 4}[report["health"]]
    return report


def accused(report: dict[str, Any]) -> set[str]:
    """Machines that a report blames."""
    return {v["machine"] for v in report["verdicts"] if v["severity"] != "notice" and v["machine"]}


def warned(report: dict[str, Any], *words: str) -> bool:
    """Whether some warning holds all the words."""
    return any(all(w in text for w in words) for text in report["data_quality"]["warnings"])


def foreign(count: int) -> list[Packet]:
    """Packets of something else: DNS, TCP, ARP."""
    udp = bytearray(frame(Roce(0x04, payload=bytes(64))))
    udp[36:38] = (53).to_bytes(2, "big")
    tcp = bytearray(udp)
    tcp[23] = 6
    arp = bytes.fromhex("ffffffffffff0200000000010806") + bytes(46)
    kinds = (bytes(udp), bytes(tcp), arp)
    return [Packet(START_NS + 1000 * i, kinds[i % 3], len(kinds[i % 3])) for i in range(count)]


# Nothing usable: status 2 ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("node0.pcap", b"", "empty"),
        ("node0.pcap", b"\n", "node0.pcap"),
        ("node0.pcap", GARBAGE, "node0.pcap"),
        ("node0.pcap", b"#!/bin/sh\nexit 1\n", "node0.pcap"),
        ("node0.pcap", pcap([])[:13], "node0.pcap"),
        ("node0.pcap.gz", gzip.compress(b""), "empty"),
        ("node0.pcap.gz", gzip.compress(GARBAGE), "node0.pcap.gz"),
        ("node0.pcap.gz", b"\x1f\x8b" + GARBAGE, "node0.pcap.gz"),
        ("node0.pcap.gz", gzip.compress(pcap(foreign(9)))[:11], "node0.pcap.gz"),
        ("node0.pcap.zst", zstandard.compress(GARBAGE), "node0.pcap.zst"),
        ("node0.pcap.zst", b"\x28\xb5\x2f\xfd" + GARBAGE, "node0.pcap.zst"),
        ("node0.pcap.zst", zstandard.compress(pcap(foreign(9)))[:7], "node0.pcap.zst"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_file_that_is_no_capture_is_refused(
    name: str, content: bytes, words: str, as_json: bool, tmp_path: Path, pulse: Pulse
) -> None:
    (tmp_path / name).write_bytes(content)
    for given in (tmp_path, tmp_path / name):
        refused(pulse("analyze", given, *["--json"] * as_json), words)


def test_many_unreadable_files_still_take_one_line(tmp_path: Path, pulse: Pulse) -> None:
    for number in range(5):
        (tmp_path / f"node{number}.pcap").write_bytes(GARBAGE)
    refused(pulse("analyze", tmp_path), "node0.pcap", "and 4 more")


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path, pulse: Pulse) -> None:
    refused(pulse("analyze", tmp_path / "nowhere"), "nowhere", "does not exist")


def test_one_path_that_does_not_exist_among_good_ones_is_a_mistake_of_the_user(
    folder: Path, pulse: Pulse
) -> None:
    refused(pulse("analyze", folder, folder / "nowhere"), "nowhere", "does not exist")


def test_a_name_too_long_or_through_a_file_is_refused(folder: Path, pulse: Pulse) -> None:
    refused(pulse("analyze", "x" * 5000), "cannot be opened")
    refused(pulse("analyze", folder / "node0.pcap" / "x"), "cannot be opened")


def test_a_name_with_control_characters_cannot_forge_lines(tmp_path: Path, pulse: Pulse) -> None:
    refused(pulse("analyze", tmp_path / "a\npulse: \x1b[31mall is well"), "does not exist")


@pytest.mark.parametrize("names", [(), ("README.md", "notes.txt"), (".node0.pcap", "._node1.pcap")])
def test_a_folder_without_captures_is_refused(names: Sequence[str], tmp_path: Path, pulse: Pulse) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"text")
    refused(pulse("analyze", tmp_path), "no capture in")


def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path: Path, pulse: Pulse) -> None:
    os.mkfifo(tmp_path / "node0.pcap")
    refused(pulse("analyze", tmp_path), "node0.pcap", "no regular file")
    refused(pulse("analyze", tmp_path / "node0.pcap"), "no regular file")
    refused(pulse("analyze", "/dev/null"), "no regular file")


def test_a_dangling_link_is_refused(tmp_path: Path, pulse: Pulse) -> None:
    (tmp_path / "node0.pcap").symlink_to(tmp_path / "gone")
    refused(pulse("analyze", tmp_path), "node0.pcap", "cannot be read")
    refused(pulse("analyze", tmp_path / "node0.pcap"), "does not exist")


def test_a_folder_named_like_a_capture_is_read_as_a_folder(tmp_path: Path, pulse: Pulse) -> None:
    (tmp_path / "node0.pcap").mkdir()
    refused(pulse("analyze", tmp_path), "no capture in")
    refused(pulse("analyze", tmp_path / "node0.pcap"), "no capture in")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_denied_files_and_folders_are_refused(folder: Path, pulse: Pulse) -> None:
    for file in folder.iterdir():
        file.chmod(0)
    refused(pulse("analyze", folder), "Permission denied")
    folder.chmod(0)
    try:
        refused(pulse("analyze", folder), "Permission denied")
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give a command"),
        (("nonsense",), "nonsense"),
        (("analyze",), "at least one capture"),
        (("analyze", "--frobnicate"), "--frobnicate"),
        (("analyze", "--until"), "--until"),
        (("analyze", ".", "--until", "tomorrow"), "ISO 8601"),
        (("analyze", ".", "--until", ""), "ISO 8601"),
        (("analyze", ".", "--until", "-5"), "--until"),
        (("analyze", ".", "--until", "9" * 30), "--until"),
        (("analyze", ".", "--until", "1969-01-01"), "--until"),
        (("analyze", "--nic", "node0"), "MACHINE/NIC=PATH"),
        (("analyze", "--nic", "=x.pcap"), "MACHINE/NIC=PATH"),
        (("analyze", "--nic", "node0/="), "MACHINE/NIC=PATH"),
        (("analyze", "--nic", "/mlx5_0=x.pcap"), "MACHINE/NIC=PATH"),
        (("analyze", "--nic", "node0/mlx5_0=/nowhere.pcap"), "does not exist"),
        (("analyze", "--nic", "a=x", "--nic", "a=y"), "given twice"),
        (("demo", "--fault", "no-such-fault"), "no-such-fault"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: Sequence[str], words: str, pulse: Pulse) -> None:
    refused(pulse(*arguments), words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "names no capture"),
        (b"capture = 3", "names no capture"),
        (b"capture = [3]", "capture 1"),
        (b"[[capture]]\nmachine = ", "no valid TOML"),
        (b"\xff\xfe", "no valid TOML"),
        (b"x = " + b"[" * 5000, "no valid TOML"),
        (b"[[capture]]\nfiles = ['node0.pcap']", "machine"),
        (b"[[capture]]\nmachine = ''\nfiles = ['node0.pcap']", "empty"),
        (b"[[capture]]\nmachine = 'a'\nfiles = []", "empty"),
        (b"[[capture]]\nmachine = 'a'\nfiles = 'node0.pcap'", "files must be a list"),
        (b"[[capture]]\nmachine = 'a'\nnic = 5\nfiles = ['node0.pcap']", "nic must be"),
        (b"[[capture]]\nmachine = 'a'\nfiles = ['gone.pcap']", "gone.pcap does not exist"),
        (b"[[capture]]\nmachine = 'a'\nfiles = ['node0.pcap']\nmode = 'some'", "mode is 'some'"),
        (b"[[capture]]\nmachine = 'a'\nfiles = ['node0.pcap']\naddresses = ['10.0.0.300']", "10.0.0.300"),
        (b"[[capture]]\nmachine = 'a'\nfile = ['node0.pcap']", "file is not known"),
        (b"[[capture]]\nmachine = 'a'\nfiles = ['node0.pcap']\n" * 2, "2 captures of machine a"),
    ],
)
def test_a_broken_configuration_is_refused(text: bytes, words: str, folder: Path, pulse: Pulse) -> None:
    (folder / "pulse.toml").write_bytes(text)
    refused(pulse("analyze", folder), "pulse.toml", words)


# Captures that can be read but say nothing: unsure ----------------------------------------------------


@pytest.mark.parametrize("encode", [pcap, pcapng])
def test_a_capture_without_packets_is_no_reason_for_trust(encode, tmp_path: Path, pulse: Pulse) -> None:
    (tmp_path / "node0.pcap").write_bytes(encode([]))
    report = reported(pulse("analyze", tmp_path, "--json"))
    assert report["health"] == "unsure"
    assert report["data_quality"]["missing"]


def test_a_capture_without_rdma_is_no_reason_for_trust(tmp_path: Path, pulse: Pulse) -> None:
    (tmp_path / "node0.pcap").write_bytes(pcap(foreign(3000)))
    report = reported(pulse("analyze", tmp_path, "--json"))
    assert report["health"] == "unsure"
    assert warned(report, "none of 3000 packets is RoCEv2")


@pytest.mark.parametrize("link_type", [105, 127, 147, 276 + 1000])
def test_an_unknown_link_type_is_counted_by_name(link_type: int, tmp_path: Path, pulse: Pulse) -> None:
    (tmp_path / "node0.pcap").write_bytes(pcap(foreign(10), link_type=link_type))
    report = reported(pulse("analyze", tmp_path, "--json"))
    assert report["health"] == "unsure"
    assert warned(report, "node0", "10 packets of link type")


def test_packets_without_a_byte_are_counted(tmp_path: Path, pulse: Pulse) -> None:
    packets = [Packet(START_NS + i, b"", 60) for i in range(7)]
    (tmp_path / "node0.pcap").write_bytes(pcap(packets))
    report = reported(pulse("analyze", tmp_path, "--json"))
    assert report["health"] == "unsure"
    assert warned(report, "7 packets without a captured byte")


def test_packets_cut_below_their_headers_are_counted(slow: Recording, tmp_path: Path, pulse: Pulse) -> None:
    snapped = {m: tuple(replace(p, data=p.data[:40]) for p in own) for m, own in slow.packets.items()}
    report = reported(pulse("analyze", replace(slow, packets=snapped).write(tmp_path), "--json"))
    assert report["health"] == "unsure"
    assert warned(report, "node1", "packets counted as")


# Damage: a counted warning, and what is left decides --------------------------------------------------


def damaged(folder: Path, pulse: Pulse) -> dict[str, Any]:
    """The report on the slow job with damage done to one of the healthy machines' files."""
    report = reported(pulse("analyze", folder, "--json"))
    assert accused(report) <= {"node1"}
    return report


def test_a_capture_cut_inside_a_packet_is_used_up_to_there(folder: Path, pulse: Pulse) -> None:
    file = folder / "node3.pcap"
    file.write_bytes(file.read_bytes()[:-50])
    report = damaged(folder, pulse)
    assert accused(report) == {"node1"}
    assert warned(report, "node3.pcap is cut off in the middle of a packet")


def compressed(content: bytes, suffix: str) -> bytes:
    """The content with a checksum, as the command-line tools write it."""
    if suffix.endswith("gz"):
        return gzip.compress(content)
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


@pytest.mark.parametrize("suffix", [".pcap.gz", ".pcap.zst"])
def test_a_compressed_capture_cut_off_is_used_up_to_there(
    suffix: str, slow: Recording, folder: Path, pulse: Pulse
) -> None:
    (folder / "node3.pcap").unlink()
    content = pcap(slow.packets["node3"])
    squeezed = compressed(content, suffix)
    (folder / f"node3{suffix}").write_bytes(squeezed[: len(squeezed) * 9 // 10])
    report = damaged(folder, pulse)
    assert accused(report) == {"node1"}
    assert warned(report, f"node3{suffix} is damaged or cut off in its compression")
    (node3,) = (i for i in report["inputs"] if i["machine"] == "node3")
    assert node3["packets"] > 0.6 * len(slow.packets["node3"])


@pytest.mark.parametrize("suffix", [".pcap.gz", ".pcap.zst"])
def test_a_compressed_capture_with_a_broken_byte_accuses_nobody_else(
    suffix: str, slow: Recording, folder: Path, pulse: Pulse
) -> None:
    (folder / "node3.pcap").unlink()
    content = pcap(slow.packets["node3"])
    squeezed = bytearray(compressed(content, suffix))
    squeezed[len(squeezed) // 2] ^= 0xFF
    (folder / f"node3{suffix}").write_bytes(squeezed)
    report = damaged(folder, pulse)
    assert warned(report, f"node3{suffix}")


def test_compressed_parts_one_after_the_other_are_read_whole(
    slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    for machine, packets in slow.packets.items():
        content = pcap(packets)
        half = len(content) // 2
        if machine in ("node0", "node1"):
            parts = [gzip.compress(content[:half]), gzip.compress(content[half:])]
            (tmp_path / f"{machine}.pcap.gz").write_bytes(b"".join(parts))
        else:
            parts = [zstandard.compress(content[:half]), zstandard.compress(content[half:])]
            (tmp_path / f"{machine}.pcap.zst").write_bytes(b"".join(parts))
    report = damaged(tmp_path, pulse)
    assert accused(report) == {"node1"}
    assert [i["packets"] for i in report["inputs"]] == [len(p) for p in slow.packets.values()]


def test_an_absurd_length_ends_a_file_but_not_the_analysis(folder: Path, pulse: Pulse) -> None:
    file = folder / "node3.pcap"
    content = file.read_bytes()
    wild = struct.pack("<IIII", 1, 0, 0xFFFF_FFFF, 0xFFFF_FFFF)
    file.write_bytes(content + wild + bytes(100))
    report = damaged(folder, pulse)
    assert accused(report) == {"node1"}
    assert warned(report, "node3.pcap")


def test_garbage_in_the_middle_of_a_file_accuses_nobody_else(folder: Path, pulse: Pulse) -> None:
    file = folder / "node3.pcap"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + GARBAGE + content[len(content) // 2 :])
    report = damaged(folder, pulse)
    assert warned(report, "node3.pcap")


def test_one_unreadable_file_is_left_aside_with_a_warning(folder: Path, pulse: Pulse) -> None:
    (folder / "node3.pcap").write_bytes(GARBAGE)
    report = damaged(folder, pulse)
    assert [i["machine"] for i in report["inputs"]] == ["node0", "node1", "node2"]
    assert warned(report, "node3.pcap", "left aside")


def test_a_folder_may_hold_other_things(folder: Path, pulse: Pulse) -> None:
    (folder / "notes.txt").write_text("lunch at noon")
    (folder / "core.1234").write_bytes(GARBAGE)
    (folder / "._node0.pcap").write_bytes(GARBAGE)
    (folder / "old").mkdir()
    (folder / "old" / "node1.pcap").write_bytes(GARBAGE)
    report = damaged(folder, pulse)
    assert accused(report) == {"node1"}
    assert warned(report, "3 files of captures", "left aside")


def test_foreign_packets_in_a_capture_are_counted(slow: Recording, tmp_path: Path, pulse: Pulse) -> None:
    begin = slow.packets["node3"][0].ns
    other = [replace(p, ns=begin + p.ns - START_NS) for p in foreign(999)]
    mixed = sorted([*slow.packets["node3"], *other], key=lambda p: p.ns)
    packets = {**slow.packets, "node3": tuple(mixed)}
    report = reported(pulse("analyze", replace(slow, packets=packets).write(tmp_path), "--json"))
    assert accused(report) == {"node1"}
    assert warned(report, "node3: 333 packets counted as")


def test_packets_without_a_byte_among_others_are_counted(
    slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    own = slow.packets["node3"]
    packets = {**slow.packets, "node3": (*own[:100], replace(own[100], data=b""), *own[100:])}
    report = reported(pulse("analyze", replace(slow, packets=packets).write(tmp_path), "--json"))
    assert accused(report) == {"node1"}
    assert warned(report, "node3.pcap holds 1 packets without a captured byte")


# Captures that do not fit together --------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "keep_sent",
    [
        pytest.param(
            True,
            marks=pytest.mark.xfail(
                strict=True, raises=IndexError, reason="no arrival at all is not expected: attribute/gates.py"
            ),
        ),
        False,
    ],
)
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
