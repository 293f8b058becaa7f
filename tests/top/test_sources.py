# SPDX-License-Identifier: Apache-2.0
"""Sources over real files, and over a real controller's API that goes away and comes back."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from host_ctl.client import ApiClient, Server
from host_ctl.pipeline import analyze_paths
from host_ctl.present.details import Curve, details_of, plain, read_details
from host_ctl.present.evidence.rates import message_rates, rates
from host_ctl.present.report import document_schema, report_of
from host_ctl.top.snapshot import Snapshot
from host_ctl.top.sources.live import LiveSource
from host_ctl.top.sources.recorded import CapturesSource, ReportSource
from host_ctl.top.sources.source import Listener, Wanted
from tests.api.running import Served
from tests.incidents.made import job, verdict

WAIT_S = 30.0


class Heard:
    """Everything that a source told, in order."""

    def __init__(self) -> None:
        self.told: queue.Queue[tuple[str, object]] = queue.Queue()

    @property
    def listener(self) -> Listener:
        return Listener(
            lambda snapshot: self.told.put(("snapshot", snapshot)),
            lambda wanted, curve: self.told.put(("curve", (wanted, curve))),
            lambda text: self.told.put(("said", text)),
        )

    def until(self, fits: Callable[[str, object], bool]) -> object:
        """The first that fits; queue.Empty when nothing more comes."""
        while True:
            kind, about = self.told.get(timeout=WAIT_S)
            if fits(kind, about):
                return about

    def curve(self) -> tuple[Wanted, Curve | None]:
        match self.until(lambda kind, _: kind == "curve"):
            case (Wanted() as wanted, (Curve() | None) as found):
                return wanted, found
        raise AssertionError("a curve comes with what was wanted")

    def snapshot(self, fits: Callable[[Snapshot], bool]) -> Snapshot:
        found = self.until(lambda kind, about: isinstance(about, Snapshot) and fits(about))
        assert isinstance(found, Snapshot)
        return found


def test_captures_become_a_snapshot_curves_and_evidence(folder: Path, tmp_path: Path) -> None:
    heard, source = Heard(), CapturesSource([folder])
    assert source.first().loading
    source.start(heard.listener)
    found = heard.snapshot(lambda s: not s.loading)
    assert (found.health, found.verdicts[0].where) == ("degraded", "node1")
    details = found.jobs[0].details
    assert details is not None
    slow = found.jobs[0].nics.index("node1")
    assert int(details.lost_ns.sum(axis=1).argmax()) == slow
    wanted = Wanted(found.jobs[0].id, "node0", 5)
    source.want(wanted)
    asked, curve = heard.curve()
    assert asked == wanted
    assert curve is not None
    assert max(curve.gbps) > 0
    source.evidence(tmp_path / "evidence", found)
    heard.until(lambda kind, about: kind == "said" and "report.html" in str(about))
    written = {p.name for p in (tmp_path / "evidence").iterdir()}
    assert written == {"report.json", "report.html", "trace.pftrace", "verdicts.txt"}
    source.stop()


def test_a_report_is_shown_without_figures_by_iteration(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report_of(analyze_paths([folder]))), encoding="utf-8")
    heard, source = Heard(), ReportSource(path)
    source.start(heard.listener)
    found = heard.snapshot(lambda s: not s.loading)
    assert (found.kind, found.jobs[0].details, found.verdicts[0].where) == ("report", None, "node1")
    source.stop()


@pytest.mark.parametrize(
    "content", ["{}", "[", '{"schema": "pulse.report/1"}', '{"schema": "pulse.report/9"}']
)
def test_a_damaged_report_is_said_on_the_screen(content: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")
    heard, source = Heard(), ReportSource(path)
    source.start(heard.listener)
    found = heard.snapshot(lambda s: not s.loading)
    assert found.health == "unsure"
    assert "pulse analyze --json" in found.headline or "make it anew" in found.headline


def test_details_survive_json_and_fulfil_their_schema(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    made = details_of(analyze_paths([folder]))
    written = json.loads(json.dumps(plain(made)))
    jsonschema.validate(written, document_schema("details"))
    read = read_details(written)
    assert plain(read) == written
    one, other = made.jobs[0], read.jobs[0]
    assert (one.nics, one.operators, one.duration_ns) == (other.nics, other.operators, other.duration_ns)
    assert abs(one.lost_ns - other.lost_ns).max() < 1000


def test_who_cannot_ask_again_gets_the_rates_of_all_nics(folder: Path) -> None:
    analysis = analyze_paths([folder])
    few, made = details_of(analysis), details_of(analysis, all_curves=True)
    latest = made.curves[len(few.curves) :]
    assert [c.nic for c in latest] == [nic.name for nic in made.jobs[0].nics]
    assert {c.iteration for c in latest} == {len(made.jobs[0].duration_ns) - 2}
    sent = [sum(c.gbps) * c.bin_ns / 8 for c in latest]
    assert min(sent) > 0.9 * (1 << 18)  # each sends its parts of 256 KiB at least


def test_messages_tell_the_same_rates_as_windows(folder: Path) -> None:
    analysis = analyze_paths([folder])
    job = analysis.jobs[0].job
    begin_ns, end_ns = int(job.boundaries_ns[3]), int(job.boundaries_ns[9])
    by_window, by_message = (
        measure(analysis.traffic, list(job.members), begin_ns, end_ns, 300)
        for measure in (rates, message_rates)
    )
    for one, other in zip(by_window.curves, by_message.curves, strict=True):
        sent = one.gbps.sum() * by_window.bin_ns, other.gbps.sum() * by_message.bin_ns
        assert sent[0] > 0
        assert sent[1] == pytest.approx(sent[0], rel=0.02)


def test_a_controller_is_followed_through_its_end_and_its_return(tmp_path: Path) -> None:
    heard = Heard()
    with Served(tmp_path) as served:
        port = served.api.port
        source = LiveSource(ApiClient(Server(f"http://127.0.0.1:{port}")), f"http://127.0.0.1:{port}")
        source.start(heard.listener)
        assert heard.snapshot(lambda s: not s.loading).headline == "nothing has been analysed yet"
        slow = job(verdict())
        served.see(slow, slow, slow)
        found = heard.snapshot(lambda s: bool(s.incidents))
        assert "the report is damaged" in found.problems[0]  # that of the test is none
        assert found.headline == "node1: compute_slow"
        assert (found.incidents[0].where, len(found.agents)) == ("node1", 4)
        source.acknowledge(found.incidents[0].id, "mine")
        heard.snapshot(lambda s: s.incidents[0].acknowledged)
        source.look_into(found.incidents[0].id)
        steps = heard.snapshot(lambda s: bool(s.incidents[0].steps)).incidents[0].steps
        assert any("acknowledged" in step for step in steps)
    gone = heard.snapshot(lambda s: bool(s.connection.lost))
    assert gone.incidents
    with Served(tmp_path, port=port):
        heard.snapshot(lambda s: not s.connection.lost)
    source.stop()
