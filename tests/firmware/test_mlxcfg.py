# SPDX-License-Identifier: Apache-2.0
"""Setting, verifying and undoing firmware settings, on cards that remember what they were told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firmware_cfg import mlxcfg
from tests.firmware.fakes import FACTORY, FROM_FACTORY, RIGHT, Machine, subprocess_environment

SCRIPT = Path(mlxcfg.__file__)
GOLDEN = Path(__file__).with_name("golden")
DEVICE = "0000:03:00.0"


@dataclass(frozen=True, slots=True)
class Result:
    """What a run left behind."""

    status: int
    out: str
    err: str


Mlxcfg = Callable[..., Result]


@pytest.fixture
def mlxcfg_of(machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Mlxcfg:
    """Run the program on the machine; `answer` is what the user types."""
    for key, value in machine.environment.items():
        monkeypatch.setenv(key, value)
    machine.fake_card_tool("mlxconfig")

    def call(*arguments: str, answer: str | None = None) -> Result:
        def ask(_question: str) -> str:
            assert answer is not None, "the program asked although nobody is there"
            return answer

        record = ["--record", str(machine.root / "record.json"), "--root", str(machine.root)]
        status = mlxcfg.main([*arguments, *record], ask)
        return Result(status, *capsys.readouterr())

    return call


def sets(machine: Machine) -> list[list[str]]:
    return [call for call in machine.calls() if "set" in call]


def coming(machine: Machine, key: str, device: str = DEVICE) -> int:
    state = json.loads((machine.cards / f"{device}.json").read_text(encoding="utf-8"))
    return int(state["next"][key])


def test_a_dry_run_prints_differences_and_commands_and_changes_nothing(
    machine: Machine, mlxcfg_of: Mlxcfg
) -> None:
    machine.add_card(live=FACTORY)
    result = mlxcfg_of()
    shown = result.out.replace(str(machine.bin) + "/", "")
    assert shown == (GOLDEN / "mlxcfg-factory.txt").read_text(encoding="utf-8")
    assert result.status == 1
    assert sets(machine) == []
    assert not (machine.root / "record.json").exists()


def test_apply_sets_what_differs_in_one_call_and_says_that_power_must_be_cut(
    machine: Machine, mlxcfg_of: Mlxcfg
) -> None:
    machine.add_card(live=FACTORY)
    result = mlxcfg_of("--apply", answer="y")
    assert result.status == 0
    assert sets(machine) == [["mlxconfig", "-y", "-d", DEVICE, "set", *FROM_FACTORY]]
    assert "without power, for about 30 s" in result.out
    assert mlxcfg_of("verify").status == 4
    machine.power_cycle()
    assert mlxcfg_of("verify").status == 0


@pytest.mark.parametrize("answer", ["", "n", "yess"])
def test_nothing_is_changed_unless_the_user_agrees(machine: Machine, mlxcfg_of: Mlxcfg, answer: str) -> None:
    machine.add_card(live=FACTORY)
    result = mlxcfg_of("--apply", answer=answer)
    assert result.status == 1
    assert "nothing was changed" in result.err
    assert sets(machine) == []


def test_yes_asks_nobody(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=FACTORY)
    assert mlxcfg_of("--apply", "--yes").status == 0


def test_no_command_ever_resets_a_card(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=FACTORY)
    mlxcfg_of("--apply", "--yes")
    mlxcfg_of("undo", "--apply", "--yes")
    words = {word for call in machine.calls() for word in call}
    assert words & {"reset", "r", "mlxfwreset", "fwreset"} == set()


def test_more_scalable_functions_than_needed_are_kept(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=RIGHT | {"PF_TOTAL_SF": 236, "REAL_TIME_CLOCK_ENABLE": 0})
    mlxcfg_of("--apply", "--yes")
    assert coming(machine, "PF_TOTAL_SF") == 236
    assert sets(machine)[0][-1] == "REAL_TIME_CLOCK_ENABLE=1"


def test_verify_reads_live_values_not_those_of_the_next_power_on(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=RIGHT, coming=RIGHT | {"REAL_TIME_CLOCK_ENABLE": 0})
    result = mlxcfg_of("verify")
    assert result.status == 1
    assert "right until the next power-on" in result.out
    machine.add_card(live=FACTORY, coming=RIGHT)
    assert mlxcfg_of("verify").status == 4
    assert all("-e" in call for call in machine.calls("mlxconfig"))


def test_a_parameter_that_a_card_does_not_know_stops_everything_for_want_of_firmware(
    machine: Machine, mlxcfg_of: Mlxcfg
) -> None:
    machine.add_card(live={k: v for k, v in FACTORY.items() if k != "REAL_TIME_CLOCK_ENABLE"})
    result = mlxcfg_of("--apply", "--yes")
    assert result.status == 3
    assert f"{DEVICE} does not know REAL_TIME_CLOCK_ENABLE, which is needed" in result.err
    assert sets(machine) == []
    assert mlxcfg_of("verify").status == 3


def test_a_second_port_that_is_not_there_is_no_fault(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card()
    result = mlxcfg_of("verify")
    assert result.status == 0
    assert "LINK_TYPE_P2" in result.out
    assert "not there, not needed" in result.out


def test_a_device_that_does_not_open_is_named_with_what_to_do(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    result = mlxcfg_of("verify", "--device", "0000:99:00.0")
    assert result.status == 3
    assert "-d 0000:99:00.0 -e q` failed: -E- Failed to open the device; look at the address" in result.err


def test_a_machine_without_a_card_is_told_so(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(pci_id="0x1021")  # a ConnectX-7
    result = mlxcfg_of("verify")
    assert result.status == 3
    assert "no BlueField card" in result.err


def test_all_cards_of_a_machine_are_set(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card("0000:03:00.0", live=FACTORY)
    machine.add_card("0000:83:00.0", live=FACTORY, pci_id="0xa2d6")
    assert mlxcfg_of("--apply", "--yes").status == 0
    assert [call[3] for call in sets(machine)] == ["0000:03:00.0", "0000:83:00.0"]


def test_mstconfig_is_taken_where_mlxconfig_is_missing(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=FACTORY)
    machine.fake_card_tool("mstconfig")
    (machine.bin / "mlxconfig").unlink()
    assert mlxcfg_of("--apply", "--yes").status == 0
    assert {call[0] for call in machine.calls()} == {"mstconfig"}


def test_without_either_tool_both_are_named(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card()
    (machine.bin / "mlxconfig").unlink()
    result = mlxcfg_of("verify")
    assert result.status == 3
    assert "neither mlxconfig nor mstconfig" in result.err


def test_a_value_that_does_not_take_is_an_error_even_if_the_tool_says_done(
    machine: Machine, mlxcfg_of: Mlxcfg
) -> None:
    path = machine.add_card(live=FACTORY)
    state = json.loads(path.read_text(encoding="utf-8")) | {"stuck": ["PER_PF_NUM_SF"]}
    path.write_text(json.dumps(state), encoding="utf-8")
    result = mlxcfg_of("--apply", "--yes")
    assert result.status == 3
    assert "took PER_PF_NUM_SF=1 without an error, yet its next value is False(0)" in result.err


def test_undo_brings_back_what_was_there_before(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    path = machine.add_card(live=FACTORY)
    before = json.loads(path.read_text(encoding="utf-8"))["next"]
    mlxcfg_of("--apply", "--yes")
    assert json.loads(path.read_text(encoding="utf-8"))["next"] != before
    dry = mlxcfg_of("undo")
    assert dry.status == 1
    assert "Would run:" in dry.out
    assert mlxcfg_of("undo", "--apply", "--yes").status == 0
    assert json.loads(path.read_text(encoding="utf-8"))["next"] == before
    again = mlxcfg_of("undo", "--apply", "--yes")
    assert again.status == 0
    assert "nothing to undo" in again.out


def test_undo_after_two_changes_goes_back_to_before_the_first(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=RIGHT | {"PF_TOTAL_SF": 4})
    mlxcfg_of("--apply", "--yes")
    path = machine.cards / f"{DEVICE}.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    state["next"]["PF_TOTAL_SF"] = 8
    path.write_text(json.dumps(state), encoding="utf-8")
    mlxcfg_of("--apply", "--yes")
    assert coming(machine, "PF_TOTAL_SF") == 20
    mlxcfg_of("undo", "--apply", "--yes")
    assert coming(machine, "PF_TOTAL_SF") == 4


def test_undo_leaves_what_somebody_else_has_set_since(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    path = machine.add_card(live=FACTORY)
    mlxcfg_of("--apply", "--yes")
    state = json.loads(path.read_text(encoding="utf-8"))
    state["next"]["PF_TOTAL_SF"] = 64
    path.write_text(json.dumps(state), encoding="utf-8")
    result = mlxcfg_of("undo", "--apply", "--yes")
    assert result.status == 1
    assert "PF_TOTAL_SF stays: somebody set it to 64 since" in result.err
    assert coming(machine, "PF_TOTAL_SF") == 64
    assert coming(machine, "REAL_TIME_CLOCK_ENABLE") == 0


def test_the_record_is_written_before_the_card_is_touched(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=FACTORY)
    (machine.root / "record.json").mkdir()
    result = mlxcfg_of("--apply", "--yes")
    assert result.status == 2
    assert sets(machine) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/9", "changes": []}', '{"schema": 1}'])
def test_a_record_that_cannot_be_read_is_refused(machine: Machine, mlxcfg_of: Mlxcfg, text: str) -> None:
    machine.add_card(live=FACTORY)
    (machine.root / "record.json").write_text(text, encoding="utf-8")
    result = mlxcfg_of("undo", "--apply", "--yes")
    assert result.status == 2
    assert "record.json" in result.err


def test_settings_that_cannot_be_used_are_refused(
    machine: Machine, mlxcfg_of: Mlxcfg, tmp_path: Path
) -> None:
    machine.add_card(live=FACTORY)
    file = tmp_path / "settings.toml"
    file.write_text('schema = "pulse.firmware/1"\n', encoding="utf-8")
    result = mlxcfg_of("--settings", str(file), "--apply", "--yes")
    assert result.status == 2
    assert result.err == f"mlxcfg: {file}: there is no [[setting]]\n"
    assert sets(machine) == []


def test_json_holds_live_next_and_wanted_values_and_the_commands(machine: Machine, mlxcfg_of: Mlxcfg) -> None:
    machine.add_card(live=FACTORY)
    report = json.loads(mlxcfg_of("--json").out)
    assert report["schema"] == "pulse.firmware-report/1"
    assert report["status"] == 1
    assert report["commands"][0][1:] == ["-y", "-d", DEVICE, "set", *FROM_FACTORY]
    clock = next(s for s in report["cards"][0]["settings"] if s["key"] == "REAL_TIME_CLOCK_ENABLE")
    assert (clock["live"], clock["next_boot"], clock["wanted"]) == ("False(0)", "False(0)", 1)
    assert clock["state"] == "to be set"
    assert json.loads(mlxcfg_of("verify", "--json").out)["status"] == 1


def test_the_file_runs_as_a_script_from_any_folder(machine: Machine, tmp_path: Path) -> None:
    machine.add_card()
    machine.fake_card_tool("mlxconfig")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "verify", "--root", str(machine.root)],
        cwd=tmp_path,
        env=subprocess_environment(machine),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "All live values are as wanted." in done.stdout


def test_the_exit_statuses_are_in_the_help(mlxcfg_of: Mlxcfg, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mlxcfg_of("--help")
    text = capsys.readouterr().out
    for status in range(5):
        assert f"\n  {status}  " in text
