# SPDX-License-Identifier: Apache-2.0
"""The example of docs/measurement.md, as it stands there, on a capture with a known rate."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.native.captures import Packet, Roce, frame, pcap

DOCS = Path(__file__).parents[2] / "docs" / "measurement.md"


def example() -> str:
    """The one Python block of the page."""
    (block,) = re.findall(
        r"^```python\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return str(block)


def test_the_example_plots_the_microsecond_rate_of_the_busiest_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    packets = []
    for psn in range(40):  # one packet of 1024 bytes in each microsecond, and a smaller flow
        for qpn, size in ((5, 1024), (6, 16)):
            data = frame(Roce(0x07, b"", bytes(size), dest_qpn=qpn, psn=psn))
            packets.append(Packet(1_700_000_000_000_000_000 + psn * 1_000, data, len(data)))
    (tmp_path / "some.pcap").write_bytes(pcap(packets))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example", "some.pcap"])
    names: dict[str, object] = {}
    exec(compile(example(), str(DOCS), "exec"), names)
    assert (tmp_path / "rate.png").read_bytes().startswith(b"\x89PNG")
    plotted = names["plt"].gca().lines[0]  # type: ignore[attr-defined]
    assert len(plotted.get_ydata()) == 40
    assert plotted.get_ydata() == pytest.approx([8.192] * 40)
    assert len(example().splitlines()) <= 24
