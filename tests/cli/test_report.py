# SPDX-License-Identifier: Apache-2.0
"""What ``pulse analyze`` prints: valid JSON and nothing else, the verdict first, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import tomllib
from jsonschema import Draft202012Validator

from host_ctl.present.report import report_schema
from tests.cli.conftest import Pulse
from tests.host_ctl.jobs import Recording, renamed, without
from tests.native.captures import pcap

ROOT = Path(__file__).parents[2]
STATUS = {"ok": 0, "degraded": 3, "failed": 3, "unsure": 4}


def valid(text: str) -> dict[str, Any]:
    """The report in a text that must be one JSON value and fulfil the schema."""
    report: dict[str, Any] = json.loads(text)
    Draft202012Validator(report_schema()).validate(report)
    return report


def nothing(folder: Path) -> Path:
    """A folder with a capture that holds no packet."""
    (folder / "node0.pcap").write_bytes(pcap([]))
    return folder


def test_the_schema_is_a_schema_and_refuses_what_the_design_does_not_allow(
    folder: Path, pulse: Pulse
) -> None:
    Draft202012Validator.check_schema(report_schema())
    report = valid(pulse("analyze", folder, "--json").out)
    validator = Draft202012Validator(report_schema())
    wrong: list[Callable[[dict[str, Any]], object]] = [
        lambda r: r.update(health="fine"),
        lambda r: r.update(schema="pulse.report/2"),
        lambda r: r.pop("verdicts"),
        lambda r: r["verdicts"][0].update(cause="gremlins"),
        lambda r: r["verdicts"][0].update(confidence=1.5),
        lambda r: r["verdicts"][0].pop("machine"),
        lambda r: r["inputs"][0].update(packets=-1),
        lambda r: r["inputs"][0]["clock"].update(basis="guess"),
    ]
    for number, change in enumerate(wrong):
        other = json.loads(json.dumps(report))
        change(other)
        assert not validator.is_valid(other), number


@pytest.mark.parametrize(
    ("case", "health"),
    [
        ("healthy", "ok"),
        ("slow", "degraded"),
        ("hung", "failed"),
        ("hung without its end", "unsure"),
        ("nothing", "unsure"),
        ("one missing", "degraded"),
    ],
)
def test_every_kind_of_result_is_valid_and_has_its_status(
    case: str, health: str, healthy: Recording, slow: Recording, hung: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    until = ("--until", hung.end_ns)
    arguments = {
        "healthy": lambda: (healthy.write(tmp_path),),
        "slow": lambda: (slow.write(tmp_path),),
        "hung": lambda: (hung.write(tmp_path), *until),
        "hung without its end": lambda: (hung.write(tmp_path),),
        "nothing": lambda: (nothing(tmp_path),),
        "one missing": lambda: (without(slow, "node3").write(tmp_path),),
    }[case]()
    result = pulse("analyze", *arguments, "--json")
    report = valid(result.out)
    assert result.err == ""
    assert report["health"] == health
    assert result.status == STATUS[health]
    text = pulse("analyze", *arguments)
    assert text.err == ""
    assert text.status == STATUS[health]
    assert text.out.startswith(f"{health.upper()}  ")
    assert "\x1b" not in text.out


def test_the_first_line_of_the_text_is_the_verdict_in_one_sentence(
    slow: Recording, hung: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    slow_line = pulse("analyze", slow.write(tmp_path / "slow")).out.splitlines()[0]
    hung_line = pulse("analyze", hung.write(tmp_path / "hung"), "--until", hung.end_ns).out.splitlines()[0]
    assert "node1" in slow_line
    assert "compute slow" in slow_line
    assert "node1" in hung_line
    assert "hang" in hung_line


def test_text_and_json_name_the_same_machine_cause_and_warnings(folder: Path, pulse: Pulse) -> None:
    (folder / "notes.txt").write_text("x")
    report = valid(pulse("analyze", folder, "--json").out)
    text = pulse("analyze", folder).out
    verdict = report["verdicts"][0]
    assert f"{verdict['severity']} {verdict['cause']} at {verdict['machine']}" in text
    for warning in report["data_quality"]["warnings"]:
        assert warning in text
    assert all(i["machine"] in text for i in report["inputs"])


def test_a_job_of_many_machines_with_long_names_keeps_the_first_line_whole(
    slow: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    names = [f"gpu-{'x' * 90}-{n}" for n in range(4)]
    line = pulse("analyze", renamed(slow, names).write(tmp_path)).out.splitlines()[0]
    assert names[1] in line
    assert line.endswith("per iteration")


@pytest.mark.parametrize(
    ("until", "status"),
    [("integer", 3), ("iso", 3), ("iso with zone", 3)],
)
def test_until_may_be_nanoseconds_or_iso_8601(
    until: str, status: int, hung: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    when = datetime.fromtimestamp(hung.end_ns // 10**9 + 1, UTC)
    text = {
        "integer": str(hung.end_ns),
        "iso": when.replace(tzinfo=None).isoformat(),
        "iso with zone": when.astimezone(timezone(timedelta(hours=-8))).isoformat(),
    }[until]
    assert pulse("analyze", hung.write(tmp_path), "--until", text).status == status


def test_an_end_before_the_last_packet_is_no_witness(hung: Recording, tmp_path: Path, pulse: Pulse) -> None:
    assert pulse("analyze", hung.write(tmp_path), "--until", 1).status == 4


def test_a_later_end_turns_no_finished_run_into_a_failure(
    healthy: Recording, tmp_path: Path, pulse: Pulse
) -> None:
    captures = healthy.write(tmp_path)
    assert pulse("analyze", captures, "--until", healthy.end_ns + 3600 * 10**9).status == 0


# As a process -----------------------------------------------------------------------------------------


def command(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start ``pulse`` as a user would."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-m", "host_ctl.cli.main", *map(str, arguments)],
        stderr=subprocess.PIPE,
        env=environment,
        **options,
    )


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_reader_that_goes_away_changes_no_status_and_gets_no_complaint(
    form: tuple[str, ...], folder: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    process = command("analyze", folder, *form, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (3, b"")


def test_a_full_disk_is_told_in_one_line(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = command("analyze", folder, "--json", stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.decode().splitlines() == [
        "pulse: the report cannot be written to stdout: No space left on device"
    ]


def test_a_terminal_without_unicode_still_gets_the_report(slow: Recording, tmp_path: Path) -> None:
    captures = renamed(slow, ["née", "zwölf", "node2", "node3"]).write(tmp_path)
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-m", "host_ctl.cli.main", "analyze", captures],
        capture_output=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, b"")
    assert done.stdout.startswith(b"DEGRADED  zw")


def test_memory_does_not_grow_with_what_is_read(tmp_path: Path) -> None:
    """Four times as much of something else takes no more memory."""
    frame = bytes.fromhex("ffffffffffff0200000000010806") + bytes(46)
    record = bytes.fromhex("00f15365") + bytes(4) + len(frame).to_bytes(4, "little") * 2 + frame
    peaks = []
    for count in (100_000, 400_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        with (folder / "node0.pcap").open("wb") as file:
            file.write(pcap([]))
            file.writelines(record * 10_000 for _ in range(count // 10_000))
        process = command("analyze", folder, "--json", stdout=subprocess.PIPE)
        assert process.stdout is not None
        report = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.returncode == 4
        assert f"none of {count} packets" in report["data_quality"]["warnings"][-1]
        peaks.append(usage.ru_maxrss)
    assert peaks[1] < peaks[0] + 8 * 1024  # KiB; the larger file has 23 MB more


def test_the_schema_is_part_of_the_installed_package() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    schema = files("host_ctl.present").joinpath("schema/pulse.report-1.json")
    assert "host_ctl" in build["wheel"]["packages"]
    assert json.loads(schema.read_text(encoding="utf-8")) == report_schema()
