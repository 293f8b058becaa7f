# SPDX-License-Identifier: Apache-2.0
"""What tests of bad input expect of a command, and packets of something else."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.cli.conftest import Pulse, Result
from tests.native.captures import Packet, Roce, frame

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


def damaged(folder: Path, pulse: Pulse) -> dict[str, Any]:
    """The report on the slow job with damage done to one of the healthy machines' files."""
    report = reported(pulse("analyze", folder, "--json"))
    assert accused(report) <= {"node1"}
    return report
