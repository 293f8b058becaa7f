# SPDX-License-Identifier: Apache-2.0
"""Damage ends in a counted warning, and never in an accusation that the rest does not support."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from tests.cli.conftest import Pulse
from tests.cli.expect import GARBAGE, START_NS, accused, damaged, foreign, reported, warned
from tests.host_ctl.jobs import Recording
from tests.native.captures import pcap


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
