# SPDX-License-Identifier: Apache-2.0
"""What `pulse analyze` writes besides its report, and the argument that `pulse explain` tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.conftest import Pulse
from tests.host_ctl.jobs import Recording

CULPRIT = "node1"


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of the fields of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(kind) or varint()
        assert at + length <= len(data)
        yield key >> 3, data[at : at + length]
        at += length


def test_the_page_names_the_culprit_and_needs_nothing_from_elsewhere(
    pulse: Pulse, folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    done = pulse("analyze", folder, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert f"{CULPRIT} slows job-1" in text
    assert CULPRIT in done.out
    found = Page(text).tags
    assert {"svg", "h1", "table"} <= {tag for tag, _ in found}
    links = [a.get(name) or "" for _, a in found for name in ("src", "href") if name in a]
    assert all(re.match(r"#|data:", link) for link in links)
    assert "@import" not in text
    assert page.stat().st_size < 2 << 20


def test_a_healthy_job_has_a_page_that_accuses_nobody(
    pulse: Pulse, healthy: Recording, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert pulse("analyze", healthy.write(tmp_path / "captures"), "--html", page).status == 0
    assert "<h1" in page.read_text(encoding="utf-8")


def test_names_of_machines_are_text_on_the_page_whatever_they_are(
    pulse: Pulse, folder: Path, tmp_path: Path
) -> None:
    hostile = "<script>x"
    captures = sorted(folder.glob("*.pcap*"))
    named = [f"--nic={hostile if n == 0 else f'node{n}'}/mlx5_0={path}" for n, path in enumerate(captures)]
    page = tmp_path / "report.html"
    pulse("analyze", *named, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert hostile not in text
    assert "&lt;script&gt;x" in text


def test_a_trace_is_whole_and_holds_tracks_and_slices(pulse: Pulse, folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.pftrace"
    pulse("analyze", folder, "--perfetto", trace)
    packets = [dict(fields(value)) for number, value in fields(trace.read_bytes()) if number == 1]
    tracks = [p[60] for p in packets if 60 in p]  # TrackDescriptor
    events = [dict(fields(p[11])) for p in packets if 11 in p]  # TrackEvent
    names = {value for t in tracks if isinstance(t, bytes) for number, value in fields(t) if number == 2}
    assert CULPRIT.encode() in {n.split(b"/")[0] for n in names if isinstance(n, bytes)}
    kinds = [event.get(9) for event in events]  # its type: 1 begins a slice, 2 ends one
    assert kinds.count(1) == kinds.count(2) > 100


@pytest.mark.parametrize("option", ["--html", "--perfetto"])
def test_what_cannot_be_written_is_one_line(option: str, pulse: Pulse, folder: Path, tmp_path: Path) -> None:
    done = pulse("analyze", folder, option, tmp_path / "nowhere" / "file")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()


def test_a_verdict_is_explained_from_its_report_and_from_its_captures(
    pulse: Pulse, folder: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    report.write_text(pulse("analyze", folder, "--json").out, encoding="utf-8")
    told = pulse("explain", "v1", report)
    assert told.status == 0
    assert CULPRIT in told.out
    argument = json.loads(pulse("explain", folder, "--json").out)
    assert argument == json.loads(pulse("explain", report, "--json").out)
    missing = pulse("explain", "v99", report)
    assert (missing.status, missing.err.count("\n")) == (2, 1)
