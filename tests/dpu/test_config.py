# SPDX-License-Identifier: Apache-2.0
"""Settings: where they come from, which wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpu_app.service.config import SETTINGS, ServiceConfig, load_config
from dpu_app.settings import SettingsError

ROOT = Path(__file__).parents[2]


def written(folder: Path, text: str) -> Path:
    """A file of settings."""
    file = folder / "dpu.toml"
    file.write_text(text)
    return file


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'interface = "p0"\n[meter]\ninterval_s = 2\nwindow_us = 4\n[capture]\nrings = 3\n'
    )
    environment = {"PULSE_DPU_METER_WINDOW_US": "16", "PULSE_DPU_CAPTURE_RINGS": "5", "HOME": "/"}
    config = load_config(file, environment, {"capture.rings": "7"})
    assert (config.rings, config.window_us, config.interval_s, config.max_flows) == (7, 16, 2.0, 16_384)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("No", False), ("1", True)])
def test_truth_may_be_written_as_people_do(text: str, *, value: bool) -> None:
    environment = {"PULSE_DPU_INTERFACE": "p0", "PULSE_DPU_CAPTURE_PROMISCUOUS": text}
    assert load_config(None, environment, {}).promiscuous is value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('interfce = "p0"', "there is no setting interfce; did you mean interface?"),
        ('interface = "p0"\n[controler]\naddress = "h"', "did you mean controller.address?"),
        ('interface = "p0"\n[x]\ny = 1', "there is no setting x.y$"),
        ('interface = "p0"\n[capture]\nrings = "2"', "capture.rings is '2'; it must be a whole number"),
        ('interface = "p0"\n[capture]\nrings = true', "it must be a whole number"),
        ('interface = "p0"\n[capture]\nrings = 0', "capture.rings is 0; it must be 1 to 64"),
        ('interface = "p0"\n[capture]\nmode = "some"', "must be one of all, steered"),
        ('interface = "p0"\n[meter]\ninterval_s = nan', "meter.interval_s is nan"),
        ("interface = 3", "it must be text"),
        ("interface", "are no TOML"),
        ("[meter]\nwindow_us = 8", "there is no interface"),
        ('interface = "p0"\n[controller]\naddress = "h:x"', "HOST:PORT"),
        ('interface = "p0"\n[controller]\naddress = "h"', "set controller.cert_file"),
        ('interface = "p0"\n[controller]\naddress = "h"\nplaintext = true', "would cross the network"),
    ],
)
def test_wrong_settings_are_named_with_what_is_right(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_config(written(tmp_path, text), {}, {})


def test_wrong_variables_and_flags_are_named() -> None:
    with pytest.raises(SettingsError, match=r"did you mean PULSE_DPU_CAPTURE_RINGS\?"):
        load_config(None, {"PULSE_DPU_CAPTURE_RING": "1", "PULSE_DPU_INTERFACE": "p0"}, {})
    with pytest.raises(SettingsError, match="variable PULSE_DPU_CAPTURE_RINGS is 'two'"):
        load_config(None, {"PULSE_DPU_CAPTURE_RINGS": "two", "PULSE_DPU_INTERFACE": "p0"}, {})
    with pytest.raises(SettingsError, match="flag --capture-rings is 'two'"):
        load_config(None, {}, {"capture.rings": "two", "interface": "p0"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none.toml cannot be read: No such file"):
        load_config(tmp_path / "none.toml", {}, {})


def test_plain_text_may_be_asked_for() -> None:
    flags = {"interface": "p0", "controller.address": "head", "controller.plaintext_to_network": "true"}
    controller = load_config(None, {}, flags).publishing()
    assert controller is not None
    assert controller.plaintext


def test_settings_become_those_of_the_parts() -> None:
    config = ServiceConfig(interface="p0", mode="steered", ring_mib=2, interval_s=0.1, window_us=4, rings=2)
    assert config.capture().steered
    assert (config.capture().ring_bytes, config.capture().rings) == (2 << 20, 2)
    assert (config.metering().interval_ns, config.metering().window_ns) == (100_000_000, 4000)
    assert config.publishing() is None
    assert config.spool().directory is None


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_documented(setting: object) -> None:
    text = (ROOT / "docs" / "dpu.md").read_text(encoding="utf-8")
    assert f"| `{setting.key}` |" in text  # type: ignore[attr-defined]
