# SPDX-License-Identifier: Apache-2.0
"""Device settings: written down before they change, and put back."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from dpu_app.service.device import DeviceError, Setting, apply, exchange, undo
from dpu_app.service.main import main

_SET = 0x89B0
OFF: Setting = (0, 0, 0)


class Device:
    """A device whose driver stamps packets as far as it can."""

    def __init__(self, *, can: int = 1, setting: Setting = OFF, fails: int = 0) -> None:
        self.setting, self.can, self.fails = setting, can, fails
        self.written: list[Setting] = []

    def __call__(self, request: int, interface: str, setting: Setting) -> Setting:
        assert interface == "p0"
        if request == _SET:
            if self.fails:
                raise OSError(self.fails, os.strerror(self.fails))
            self.setting = (setting[0], setting[1], self.can if setting[2] == 1 else setting[2])
            self.written.append(self.setting)
        return self.setting


def test_stamps_are_switched_on_and_back_to_what_they_were(tmp_path: Path) -> None:
    device, record = Device(setting=(0, 1, 12)), tmp_path / "p0.json"
    apply("p0", record, device)
    assert device.setting == (0, 1, 1)
    assert json.loads(record.read_text()) == {"interface": "p0", "flags": 0, "tx_type": 1, "rx_filter": 12}
    undo("p0", record, device)
    assert device.setting == (0, 1, 12)
    assert not record.exists()


def test_after_a_crash_the_first_record_still_counts(tmp_path: Path) -> None:
    device, record = Device(setting=(0, 0, 12)), tmp_path / "p0.json"
    apply("p0", record, device)
    device.setting = (0, 0, 3)
    apply("p0", record, device)
    undo("p0", record, device)
    assert device.setting == (0, 0, 12)


def test_what_is_on_already_is_left_alone(tmp_path: Path) -> None:
    device, record = Device(setting=(0, 0, 1)), tmp_path / "p0.json"
    assert "already" in apply("p0", record, device)
    assert "nothing to undo" in undo("p0", record, device)
    assert device.written == []


def test_a_device_that_stamps_some_packets_only_is_put_back(tmp_path: Path) -> None:
    device, record = Device(can=12), tmp_path / "p0.json"
    with pytest.raises(DeviceError, match="cannot stamp all"):
        apply("p0", record, device)
    assert device.setting == OFF
    assert not record.exists()


def test_a_refused_change_leaves_no_record(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cannot be switched on: Operation not permitted"):
        apply("p0", tmp_path / "p0.json", Device(fails=errno.EPERM))
    assert list(tmp_path.iterdir()) == []


def test_without_a_record_nothing_is_changed(tmp_path: Path) -> None:
    device = Device()
    with pytest.raises(DeviceError, match="nothing is changed"):
        apply("p0", tmp_path / "missing" / "p0.json", device)
    assert device.written == []


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"interface": "p0", "flags": "x", "tx_type": 0, "rx_filter": 0}']
)
def test_a_damaged_record_changes_nothing(tmp_path: Path, text: str) -> None:
    device, record = Device(), tmp_path / "p0.json"
    record.write_text(text)
    with pytest.raises(DeviceError, match="does not say"):
        undo("p0", record, device)
    assert device.written == []


def test_a_record_of_another_interface_is_not_used(tmp_path: Path) -> None:
    record = tmp_path / "p0.json"
    record.write_text('{"interface": "p1", "flags": 0, "tx_type": 0, "rx_filter": 0}')
    with pytest.raises(DeviceError, match="is of p1"):
        undo("p0", record, Device())


def test_a_device_that_is_gone_has_nothing_to_undo(tmp_path: Path) -> None:
    record = tmp_path / "p0.json"
    apply("p0", record, Device())
    undo("p0", record, Device(fails=errno.ENODEV))
    assert not record.exists()


def test_the_kernel_is_asked_in_its_own_form() -> None:
    # Loopback has no stamps of hardware, and says so.
    with pytest.raises(OSError, match="not supported") as caught:
        exchange(0x89B1, "lo", OFF)
    assert caught.value.errno in (errno.EOPNOTSUPP, errno.ENOTSUP)


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = str(tmp_path / "r.json")
    assert main(["device", "apply", "--interface", "lo", "--record", record]) == 1
    assert "lo does not tell its time stamps" in capsys.readouterr().err
    assert main(["device", "apply", "--interface", "nix9", "--record", record]) == 1
    assert "there is no interface nix9" in capsys.readouterr().err
    assert main(["device", "undo", "--interface", "lo", "--record", record]) == 0
    assert "nothing to undo" in capsys.readouterr().out
