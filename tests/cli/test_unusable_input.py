# SPDX-License-Identifier: Apache-2.0
"""Input that cannot be used ends in one clear line and status 2; what says nothing ends unsure."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from tests.cli.conftest import Pulse
from tests.cli.expect import GARBAGE, START_NS, foreign, refused, reported, warned
from tests.host_ctl.jobs import Recording
from tests.native.captures import Packet, pcap, pcapng


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
