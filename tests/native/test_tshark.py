# SPDX-License-Identifier: Apache-2.0
"""Reader and parser against tshark, field by field."""

from __future__ import annotations

import gzip
import shutil
import struct
import subprocess
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest

from pulse_native import CaptureReader
from tests.native.captures import Packet, Roce, frame, pcap, pcapng, reth

CAPTURES = Path(__file__).parents[3] / "shared" / "data" / "softroce"

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

# What tshark calls each column of a PACKET record.
FIELDS = {
    "ns": "frame.time_epoch",
    "wire_bytes": "frame.len",
    "src": "ip.src",
    "dst": "ip.dst",
    "udp_sport": "udp.srcport",
    "opcode": "infiniband.bth.opcode",
    "dest_qpn": "infiniband.bth.destqp",
    "psn": "infiniband.bth.psn",
    "ack_req": "infiniband.bth.a",
    "dma_bytes": "infiniband.reth.dmalen",
    "syndrome": "infiniband.aeth.syndrome",
    "msn": "infiniband.aeth.msn",
    "immediate": "infiniband.immdt",
    "src_qpn": "infiniband.deth.srcqp",
    "ecn": "ip.dsfield.ecn",
    "udp_bytes": "udp.length",
    "pad": "infiniband.bth.padcnt",
}
EXTENSION_BYTES = {"dma_bytes": 16, "syndrome": 4, "immediate": 4, "src_qpn": 8}


def dissect(path: Path) -> list[dict[str, str]]:
    command = ["tshark", "-r", str(path), "--disable-protocol", "tftp", "-T", "fields", "-E", "occurrence=f"]
    for field in FIELDS.values():
        command += ["-e", field]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in output.splitlines()]


def number(text: str) -> int:
    """Return what tshark printed as a number; a field that is not there counts as 0."""
    if text in ("", "True", "False"):
        return int(text == "True")
    # Immediate data are printed as bytes with colons.
    return int(text.replace(":", ""), 16) if ":" in text else int(text, 0)


def expected_payload(row: dict[str, str]) -> int:
    if number(row["opcode"]) == 0x81:
        return 0
    extensions = sum(size for column, size in EXTENSION_BYTES.items() if row[column])
    return number(row["udp_bytes"]) - 8 - 12 - extensions - number(row["pad"]) - 4


def assert_same(records: np.ndarray, rows: list[dict[str, str]]) -> None:
    assert len(records) == len(rows)
    assert records["ns"].tolist() == [int(Decimal(row["ns"]) * 10**9) for row in rows]
    for column in ("src", "dst"):
        found = [bytes(address) for address in records[column]]
        assert found == [ip_address("::ffff:" + row[column]).packed for row in rows], column
    for column in FIELDS.keys() - {"ns", "src", "dst", "immediate", "udp_bytes", "pad"}:
        assert records[column].tolist() == [number(row[column]) for row in rows], column
    assert records["immediate"].tolist() == [
        int(row["immediate"].replace(":", "") or "0", 16) for row in rows
    ]
    assert records["payload_bytes"].tolist() == [expected_payload(row) for row in rows]


def every_kind() -> list[Packet]:
    immediate = struct.pack(">I", 0xDEADBEEF)
    aeth = bytes.fromhex("60000007")
    kinds = [
        Roce(0x06, reth(8192), b"p" * 64, psn=0xFFFFFE, ack_req=True, tos=2),
        Roce(0x07, b"", b"p" * 63, psn=0xFFFFFF),
        Roce(0x09, immediate, b"p" * 9, psn=0, tos=3),
        Roce(0x0B, reth(0) + immediate),
        Roce(0x04, b"", b"p" * 64),
        Roce(0x05, immediate, b"p" * 64),
        Roce(0x0C, reth(1 << 20)),
        Roce(0x0D, aeth, b"p" * 64),
        Roce(0x11, aeth, dest_qpn=0xFFFFFF),
        Roce(0x81, bytes(16)),
    ]
    return [
        Packet(1_700_000_000_123_456_789 + index, frame(kind), len(frame(kind)))
        for index, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_every_kind_of_packet_is_read_as_tshark_reads_it(write: object, tmp_path: Path) -> None:
    assert callable(write)
    path = tmp_path / "capture"
    path.write_bytes(write(every_kind()))
    assert_same(CaptureReader().feed(path.read_bytes()).parse(), dissect(path))


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the Soft-RoCE captures are not on this machine")
def test_real_traffic_is_read_as_tshark_reads_it(tmp_path: Path) -> None:
    # A capture with losses and their repair, so that NAKs and retransmissions are in it.
    packed = CAPTURES / "D_loss_n2" / "node2.pcap.gz"
    path = tmp_path / "capture.pcap"
    path.write_bytes(gzip.decompress(packed.read_bytes())[:2_000_000])
    reader = CaptureReader()
    batch = reader.feed(path.read_bytes())
    reader.finish()
    assert reader.stats["truncated_bytes"] > 0  # the cut above, which tshark would complain about
    path.write_bytes(path.read_bytes()[: -reader.stats["truncated_bytes"]])
    assert_same(batch.parse(), dissect(path))
