# SPDX-License-Identifier: Apache-2.0
"""Whose capture a file is: by its name, by ``--nic``, by ``pulse.toml``; parts of one capture are joined."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_ctl.ingest.capture_file import CaptureFile, detect_mode
from host_ctl.ingest.naming import CaptureFiles, find_captures, identify
from host_ctl.ingest.offline import read_capture
from host_ctl.pipeline import analyze_paths
from host_ctl.present.report import build_report
from tests.host_ctl.jobs import Recording, outcome, steered
from tests.native.captures import Packet, Roce, block, frame, pcap, pcapng, reth


@pytest.mark.parametrize(
    ("name", "machine", "nic"),
    [
        ("node0.pcap", "node0", ""),
        ("node0.pcapng", "node0", ""),
        ("node0.cap", "node0", ""),
        ("NODE0.PCAP", "NODE0", ""),
        ("node0.pcap.gz", "node0", ""),
        ("node0.pcapng.zst", "node0", ""),
        ("node0.mlx5_0.pcap", "node0", "mlx5_0"),
        ("node0.mlx5_bond_0.pcap", "node0", "mlx5_bond_0"),
        ("node0.rxe1.pcap.gz", "node0", "rxe1"),
        ("node0.rxe_eth0.pcap", "node0", "rxe_eth0"),
        ("node0.eth0.pcap", "node0", "eth0"),
        ("node0.enp3s0f0np0.pcap", "node0", "enp3s0f0np0"),
        ("node0.ens5.pcap", "node0", "ens5"),
        ("node0.eno1.pcap", "node0", "eno1"),
        ("node0.ib0.pcap", "node0", "ib0"),
        ("node0.ibp65s0.pcap", "node0", "ibp65s0"),
        ("node0.roce0.pcap", "node0", "roce0"),
        ("node0.rocep59s0f1.pcap", "node0", "rocep59s0f1"),
        ("node0.bond0.pcap", "node0", "bond0"),
        ("node0.p0.pcap", "node0", "p0"),
        ("gpu-07.rack3.example.com.pcap", "gpu-07.rack3.example.com", ""),
        ("gpu-07.rack3.example.com.mlx5_3.pcap", "gpu-07.rack3.example.com", "mlx5_3"),
        ("gpu7.engine.pcap", "gpu7.engine", ""),
        ("gpu7.engine3.pcap", "gpu7.engine3", ""),
        ("gpu7.ethel.pcap", "gpu7.ethel", ""),
        ("gpu7.prod.pcap", "gpu7.prod", ""),
        ("10.0.0.5.pcap", "10.0.0.5", ""),
        ("mlx5_0.pcap", "mlx5_0", ""),
        (".mlx5_0.pcap", ".mlx5_0", ""),
        ("node0.txt", "node0.txt", ""),
        # tcpdump -C
        ("node0.pcap1", "node0", ""),
        ("node0.mlx5_0.pcap12", "node0", "mlx5_0"),
        ("node0.mlx5_0.pcap3.gz", "node0", "mlx5_0"),
        ("node0.pcap.07", "node0", ""),
        # tcpdump -G with times of the user's own making
        ("node0-20250102-030405.pcap", "node0", ""),
        ("node0.mlx5_0_20250102030405.pcap", "node0", "mlx5_0"),
        ("node0.mlx5_0-2025-01-02T03:04:05.pcap", "node0", "mlx5_0"),
        ("node0_2025-01-02_03-04-05.pcap", "node0", ""),
        ("node0_2025-01-02_03.04.pcap2", "node0", ""),
        ("node0-1735787045.pcap", "node0", ""),
        # dumpcap -b, editcap, both orders of the two numbers
        ("node0_00001_20250102030405.pcapng", "node0", ""),
        ("node0.mlx5_0_00012_20250102030405.pcapng.gz", "node0", "mlx5_0"),
        ("node0.mlx5_0_20250102030405_00012.pcapng", "node0", "mlx5_0"),
        ("node0.part1.pcap", "node0", ""),
        # numbers that belong to the machine
        ("node-12.pcap", "node-12", ""),
        ("node_00017.pcap", "node_00017", ""),
        ("host20250102.pcap", "host20250102", ""),
    ],
)
def test_names_tell_machine_and_nic(name: str, machine: str, nic: str) -> None:
    assert identify(name) == (machine, nic)


@given(
    machine=st.from_regex(r"[a-z][a-z0-9-]{0,12}[a-z]", fullmatch=True),
    nic=st.sampled_from(["", "mlx5_0", "rxe1", "eth3", "ens1f0np0", "ib2", "p1"]),
    part=st.sampled_from(["", "1", "27", ".3"]),
    time=st.sampled_from(["", "_00003_20250102030405", "-20250102-0304", "_1735787045"]),
    extension=st.sampled_from([".pcap", ".pcapng", ".cap", ".PCAP"]),
    squeezed=st.sampled_from(["", ".gz", ".zst"]),
)
def test_what_a_name_adds_for_rotation_and_compression_does_not_matter(
    machine: str, nic: str, part: str, time: str, extension: str, squeezed: str
) -> None:
    stem = f"{machine}.{nic}" if nic else machine
    assert identify(f"{stem}{time}{extension}{part}{squeezed}") == (machine, nic)


@given(st.text(max_size=60))
def test_any_name_gives_a_printable_machine_and_never_fails(name: str) -> None:
    machine, nic = identify(name)
    assert (machine + nic).isprintable()


def pcap_files(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(pcap([]))


def test_parts_of_a_capture_are_one_nic_whatever_wrote_them(tmp_path: Path) -> None:
    pcap_files(
        tmp_path, "a.pcap", "a.pcap1", "a.pcap10", "a.pcap2", "a.mlx5_0.pcap", "b_00001_20250102030405.pcap"
    )
    captures, remarks = find_captures([tmp_path], {})
    counts = {(c.machine, c.nic): len(c.paths) for c in captures}
    assert counts == {("a", ""): 4, ("a", "mlx5_0"): 1, ("b", ""): 1}
    assert remarks == []


def test_a_named_file_is_not_found_again_by_its_name(tmp_path: Path) -> None:
    pcap_files(tmp_path, "a.pcap", "b.pcap")
    captures, _ = find_captures([tmp_path], {"gpu7/mlx5_1": tmp_path / "a.pcap"})
    assert [(c.machine, c.nic) for c in captures] == [("b", ""), ("gpu7", "mlx5_1")]


def test_a_named_file_joins_the_parts_of_the_same_nic(tmp_path: Path) -> None:
    pcap_files(tmp_path, "a.pcap", "later.pcap")
    captures, _ = find_captures([tmp_path / "a.pcap"], {"a": tmp_path / "later.pcap"})
    assert [(c.machine, {p.name for p in c.paths}) for c in captures] == [("a", {"a.pcap", "later.pcap"})]


def test_a_configuration_says_files_addresses_and_mode(tmp_path: Path) -> None:
    pcap_files(tmp_path, "x.bin", "y.bin", "node9.pcap")
    (tmp_path / "pulse.toml").write_text(
        """
        [[capture]]
        machine = "gpu1"
        nic = "mlx5_0"
        files = ["x.bin", "y.bin"]
        addresses = ["10.0.0.1", "fe80::1"]
        mode = "steered"
        """
    )
    wanted = CaptureFiles(
        "gpu1", "mlx5_0", (tmp_path / "x.bin", tmp_path / "y.bin"), ("10.0.0.1", "fe80::1"), "steered"
    )
    for given_as in (tmp_path, tmp_path / "pulse.toml"):
        assert find_captures([given_as], {}) == ([wanted], [])


def test_a_configuration_gives_the_same_verdict_as_names(recordings, tmp_path: Path) -> None:
    recording: Recording = recordings["slow_compute"]
    folder = recording.write(tmp_path, ".bin")
    entries = [f'[[capture]]\nmachine = "{m}"\nfiles = ["{m}.bin"]\n' for m in recording.packets]
    (folder / "pulse.toml").write_text("\n".join(entries))
    found = outcome(analyze_paths([folder]))
    assert found.accused == {("fail_slow", "compute_slow", "node1")}


def report(folder: Path) -> dict:
    analysis = analyze_paths([folder])
    return build_report(
        health=analysis.health,
        series=analysis.series,
        alignment=analysis.alignment,
        traffic=analysis.traffic,
        jobs=[one.job for one in analysis.jobs],
        kinds=[one.kinds for one in analysis.jobs],
        dimensions=[one.dimensions for one in analysis.jobs],
        verdicts=analysis.verdicts,
        missing=analysis.missing,
        warnings=analysis.warnings,
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "{m}.pcap{n}",
        "{m}_{k:05}_2025010203{k:04}.pcap",
        "{m}-2025-01-02_03:{k:02}:00.pcap",
        "{m}.part{k}.pcap",
    ],
)
def test_rotated_parts_give_the_same_report_as_one_file(pattern: str, recordings, tmp_path: Path) -> None:
    recording: Recording = recordings["slow_compute"]
    (tmp_path / "parts").mkdir()
    for machine, packets in recording.packets.items():
        for k in range(12):
            part = packets[k * len(packets) // 12 : (k + 1) * len(packets) // 12]
            name = pattern.format(m=machine, n=k or "", k=k)
            (tmp_path / "parts" / name).write_bytes(pcap(part))
    assert report(tmp_path / "parts") == report(recording.write(tmp_path / "whole"))


def writes(count: int, packets: int, *, cnp: bool = False) -> list[Packet]:
    """RDMA WRITEs without their middle packets, as a steered NIC shows them."""
    found, ns = [], 1_700_000_000_000_000_000
    for number in range(count):
        psn = number * packets
        for body in (
            Roce(0x06, reth(1024 * packets), bytes(1024), psn=psn),
            Roce(0x08, payload=bytes(1024), psn=psn + packets - 1),
            *([Roce(0x81, payload=bytes(16))] if cnp else []),
        ):
            data = frame(body)
            ns += 1000
            found.append(Packet(ns, data[:96], len(data)))
    return found


def test_a_steered_view_is_recognised_also_among_congestion_notifications(tmp_path: Path) -> None:
    for cnp in (False, True):
        (tmp_path / "node0.pcap").write_bytes(pcap(writes(100, 16, cnp=cnp)))
        assert str(detect_mode([tmp_path / "node0.pcap"])) == "steered", cnp


def test_short_messages_are_no_sign_of_a_steered_view(tmp_path: Path) -> None:
    (tmp_path / "node0.pcap").write_bytes(pcap(writes(100, 2)))
    assert str(detect_mode([tmp_path / "node0.pcap"])) == "all"


def test_an_empty_first_part_does_not_hide_a_steered_view(tmp_path: Path) -> None:
    paths = (tmp_path / "node0.pcap", tmp_path / "node0.pcap1")
    paths[0].write_bytes(pcap([]))
    paths[1].write_bytes(pcap(writes(100, 16)))
    read = read_capture(CaptureFiles("node0", "", paths))
    assert read.series is not None
    assert read.series.mode == "steered"


def test_a_simulated_view_is_seen_as_what_it_is(recordings, tmp_path: Path) -> None:
    whole = recordings["healthy"].write(tmp_path / "whole")
    part = steered(recordings["healthy"]).write(tmp_path / "part")
    assert str(detect_mode([whole / "node0.pcap"])) == "all"
    assert str(detect_mode([part / "node0.pcap"])) == "steered"


def with_drops(packets: list[Packet], drops: int) -> bytes:
    """A pcapng file that ends with the interface's own count of lost packets."""
    options = b"\x05\x00\x08\x00" + drops.to_bytes(8, "little") + bytes(4)
    stamp = packets[-1].ns
    fixed = b"\0\0\0\0" + (stamp >> 32).to_bytes(4, "little") + (stamp & 0xFFFFFFFF).to_bytes(4, "little")
    return pcapng(packets) + block("<", 5, fixed + options)


def test_packets_that_the_captures_lost_add_up_over_parts(tmp_path: Path) -> None:
    packets = writes(90, 16)
    parts = [packets[:60], packets[60:120], packets[120:]]
    paths = tuple(tmp_path / f"node0.pcapng{n}" for n in range(3))
    for path, part, drops in zip(paths, parts, (7, 5, 11), strict=True):
        path.write_bytes(with_drops(part, drops))
    source = CaptureFile(paths[0], detect_mode(paths))
    assert sum(len(batch) for batch in source.batches()) == 60
    assert source.losses() == {"interface": 7}
    read = read_capture(CaptureFiles("node0", "", paths))
    assert read.series is not None
    assert read.series.lost == 7 + 5 + 11
