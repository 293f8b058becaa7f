# SPDX-License-Identifier: Apache-2.0
"""Recorded sessions, interval by interval: the verdicts of the whole, no alarm before, bounded memory."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jsonschema
import pytest

from dpu_app.wire.frame import decode_frame, encode_frame
from dpu_app.wire.tables import Tables
from host_ctl.ingest.series import JOINED_TABLES
from host_ctl.live.analyst import Analyst
from host_ctl.live.intake import Arrived
from host_ctl.live.limits import LiveLimits, WindowLimits
from host_ctl.pipeline import analyze_paths
from host_ctl.present.report import document_schema, report_schema
from tests.live.sessions import (
    MS,
    accused,
    arrivals,
    bare,
    catalogue_session,
    limits,
    play,
    small_session,
    wrongly_accused,
)


def offline(folder: Path) -> tuple[str, set[tuple[str, str, str | None]]]:
    analysis = analyze_paths([folder])
    found = {(v.severity, v.cause, v.machine) for v in analysis.verdicts if v.severity != "notice"}
    return analysis.health, found


@pytest.mark.parametrize("fault", ["healthy", "slow_compute", "hang", "crash"])
def test_looking_interval_by_interval_ends_with_the_verdict_of_the_whole(
    sessions: dict[str, Path], fault: str
) -> None:
    found = play(arrivals(sessions[fault]), Analyst(limits(150 * MS)))
    assert len(found) >= 2
    assert (found[-1].health, accused(found[-1])) == offline(sessions[fault])
    jsonschema.validate(found[-1].report, report_schema())
    tables = [json.loads(each.details) for each in found]
    jsonschema.validate(tables[-1], document_schema("details"))
    whole = next(t for t in tables if t["curves"])
    assert {c["nic"] for c in whole["curves"]} == {n["name"] for n in whole["jobs"][0]["nics"]}
    assert all(sum(c["gbps"]) > 0 for c in whole["curves"])


@pytest.mark.parametrize("fault", ["healthy", "slow_compute", "hang", "crash"])
def test_nobody_is_accused_before_the_fault_begins_and_the_job_keeps_its_name(
    sessions: dict[str, Path], fault: str
) -> None:
    found = play(arrivals(sessions[fault]), Analyst(limits()))
    assert wrongly_accused(sessions[fault], found) == []
    assert {job.key for each in found for job in each.jobs} == {"job-1"}


def test_a_fault_older_than_the_window_does_not_become_usual(sessions: dict[str, Path]) -> None:
    short = LiveLimits(WindowLimits(iterations=12, most_ns=140 * MS), every_ns=50 * MS)
    found = play(arrivals(sessions["slow_compute"]), Analyst(short))
    named = [n for n, each in enumerate(found) if accused(each)]
    last = found[-1]
    (verdict,) = last.jobs[0].verdicts
    assert verdict.onset_ns < last.begin_ns, "the window still shows the onset: the session is too short"
    assert named == list(range(named[0], len(found))), "it was lost in between"
    assert (verdict.cause, verdict.machine) == ("compute_slow", "node1")


def test_lost_and_damaged_frames_reach_the_report(sessions: dict[str, Path]) -> None:
    session = arrivals(sessions["healthy"])
    whole = [a for a in session if not (a.key.machine == "node2" and a.key.sequence in (2, 3))]
    damaged = [
        replace(a, read=partial(bytes, b"nonsense")) if (a.key.machine, a.key.sequence) == ("node3", 4) else a
        for a in whole
    ]
    last = play(damaged, Analyst(limits(150 * MS)))[-1]
    told = " ".join(last.report["data_quality"]["warnings"])
    assert "2 frames of the window have not come" in told
    assert "1 frames of the window cannot be read" in told
    assert not accused(last)


def test_a_nic_that_falls_silent_is_told_and_used_again_when_it_comes_back(
    sessions: dict[str, Path],
) -> None:
    session = arrivals(sessions["healthy"])
    late = [a for a in session if a.key.machine == "node3" and 2 <= a.key.sequence <= 5]
    rest = [a for a in session if a not in late]
    at = next(n for n, a in enumerate(rest) if a.key.machine == "node3" and a.key.sequence == 6)
    found = play([*rest[:at], *late, *rest[at:]], Analyst(replace(limits(), deadline_ns=100 * MS)))
    assert any(each.silent == ("node3",) for each in found)
    assert found[-1].silent == ()


def test_a_dpu_process_that_begins_again_does_not_lose_the_job(sessions: dict[str, Path]) -> None:
    again = [renamed(a, "again") if late_of(a, "node1") else a for a in arrivals(sessions["slow_compute"])]
    found = play(again, Analyst(limits(150 * MS)))
    assert accused(found[-1]) == {("fail_slow", "compute_slow", "node1")}
    assert {job.key for each in found for job in each.jobs} == {"job-1"}


def late_of(arrived: Arrived, machine: str) -> bool:
    return arrived.key.machine == machine and arrived.key.sequence >= 5


def renamed(arrived: Arrived, boot_id: str) -> Arrived:
    """The frame as if another process of the DPU had sent it, which numbers flows the other way round."""
    frame = decode_frame(arrived.read() or b"")
    data = encode_frame(replace(frame, boot_id=boot_id, sequence=frame.sequence - 5))
    key = replace(arrived.key, boot_id=boot_id, sequence=arrived.key.sequence - 5)
    return Arrived(key, len(data), partial(bytes, data))


def test_frames_without_traffic_are_no_job_and_no_failure() -> None:
    session = [bare(machine, n) for n in range(6) for machine in ("a", "b")]
    found = play(session, Analyst(limits()))
    assert {(each.health, each.jobs) for each in found} == {("unsure", ())}
    jsonschema.validate(found[-1].report, report_schema())


def test_a_job_that_stopped_is_told_for_as_long_as_its_nics_are_silent(sessions: dict[str, Path]) -> None:
    session = arrivals(sessions["hang"])
    analyst = Analyst(LiveLimits(WindowLimits(most_ns=800 * MS), every_ns=50 * MS))
    assert play(session, analyst)[-1].health == "failed"
    for n in range(1, 30):
        for last in session[-4:]:
            analyst.take(silent(last, n))
    (findings,) = [f for f in [analyst.look(session[-1].key.end_ns + 30 * 50 * MS)] if f is not None]
    assert findings.begin_ns > session[-1].key.end_ns, "the window still shows the stop"
    assert accused(findings) == {("fail_stop", "hang", "node1")}


def test_a_job_that_is_started_again_is_another_without_what_was_wrong_before(
    sessions: dict[str, Path],
) -> None:
    first, second = arrivals(sessions["slow_compute"]), arrivals(sessions["healthy"])
    pause_ns = first[-1].key.end_ns - second[0].key.begin_ns + 30 * MS
    found = play([*first, *(begun_again(each, pause_ns) for each in second)], Analyst(limits(150 * MS)))
    names = [[job.key for job in each.jobs] for each in found]
    assert names[0] == ["job-1"]
    assert names[-1] == ["job-2"]
    assert any(accused(each) for each in found)
    assert not accused(found[-1])


def begun_again(arrived: Arrived, later_ns: int) -> Arrived:
    """A frame of the same NIC later, whose queue pairs have begun anew."""
    frame = decode_frame(arrived.read() or b"")
    tables = {name: getattr(frame.tables, name).copy() for name in JOINED_TABLES}
    for table in tables.values():
        for column in {"first_ns", "last_ns", "start_ns", "end_ns", "ns"} & set(table.dtype.names):
            table[column] += later_ns
        if "life" in table.dtype.names:
            table["life"] += 1
    sequence = frame.sequence + 1000
    moved = replace(
        frame, sequence=sequence, begin_ns=frame.begin_ns + later_ns, end_ns=frame.end_ns + later_ns,
        tables=Tables.of(tables),
    )  # fmt: skip
    key, data = arrived.key, encode_frame(moved)
    end_ns = key.end_ns + later_ns
    key = replace(
        key, sequence=sequence, received_ns=end_ns, begin_ns=key.begin_ns + later_ns, end_ns=end_ns
    )  # fmt: skip
    return Arrived(key, len(data), partial(bytes, data))


def silent(last: Arrived, n: int) -> Arrived:
    """The n-th frame of 50 ms without packets after a NIC's last one."""
    before = decode_frame(last.read() or b"")
    frame = replace(
        before, sequence=before.sequence + n, begin_ns=before.end_ns + (n - 1) * 50 * MS,
        end_ns=before.end_ns + n * 50 * MS, tables=Tables({}),
    )  # fmt: skip
    data, end_ns = encode_frame(frame), last.key.end_ns + n * 50 * MS
    key = replace(
        last.key, sequence=frame.sequence, received_ns=end_ns, begin_ns=end_ns - 50 * MS, end_ns=end_ns
    )
    return Arrived(key, len(data), partial(bytes, data))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "workload", "seed"),
    [
        (scenario, workload, 1000 + 10 * row + column)
        for row, scenario in enumerate(
            ("gpu_slow", "port_slow", "link_loss", "hang", "crash", "healthy", "checkpoint")
        )
        for column, workload in enumerate(("dp", "pp"))
    ],
)
def test_the_catalogue_live_is_the_catalogue_offline(
    tmp_path: Path, scenario: str, workload: str, seed: int
) -> None:
    folder = catalogue_session(tmp_path / "session", scenario, workload, seed=seed)
    found = play(arrivals(folder), Analyst(limits(250 * MS)))
    assert (found[-1].health, accused(found[-1])) == offline(folder)
    assert wrongly_accused(folder, found) == []


@pytest.mark.slow
def test_hundreds_of_intervals_hold_bounded_rows_and_bytes(tmp_path: Path) -> None:
    folder = small_session(tmp_path / "long", "healthy", machines=3, steps=1500)
    session = arrivals(folder)
    bounds = LiveLimits(WindowLimits(iterations=12, most_ns=400 * MS), every_ns=100 * MS, forget_ns=10**12)
    analyst, held, frames, jobs = Analyst(bounds), [], [], []
    for arrived in session:
        analyst.take(arrived)
        if analyst.look(arrived.key.end_ns) is not None:
            held.append(analyst.counts.decoded_bytes)
            frames.append(analyst.intake.held_frames)
            jobs.append(len(analyst.memory.jobs))
    assert len(session) > 600
    assert len(held) > 100
    early = slice(10, 30)
    assert max(held) <= 2 * max(held[early])
    assert max(frames) <= 2 * max(frames[early])
    assert max(jobs) == 1
    assert not any(accused(each) for each in play(session[-60:], Analyst(bounds)))
