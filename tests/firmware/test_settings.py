# SPDX-License-Identifier: Apache-2.0
"""The settings file: what it says, and what it must not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from firmware_cfg.wanted import DEFAULT_FILE, SettingsError, load_wanted

TEXT = DEFAULT_FILE.read_text(encoding="utf-8")


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_file_holds_the_documented_core_values() -> None:
    core = {setting.key: setting.value for setting in load_wanted().chosen(())}
    assert core == {
        "INTERNAL_CPU_MODEL": 1,
        "INTERNAL_CPU_OFFLOAD_ENGINE": 0,
        "INTERNAL_CPU_PAGE_SUPPLIER": 0,
        "INTERNAL_CPU_ESWITCH_MANAGER": 0,
        "INTERNAL_CPU_IB_VPORT0": 0,
        "REAL_TIME_CLOCK_ENABLE": 1,
        "PF_BAR2_ENABLE": 0,
        "PER_PF_NUM_SF": 1,
        "PF_TOTAL_SF": 20,
        "PF_SF_BAR_SIZE": 10,
        "LINK_TYPE_P1": 2,
        "LINK_TYPE_P2": 2,
    }


def test_programmable_congestion_control_is_set_only_when_asked_for() -> None:
    wanted = load_wanted()
    assert wanted.features == ("pcc",)
    more = {s.key for s in wanted.chosen(["pcc"])} - {s.key for s in wanted.chosen(())}
    assert more == {"USER_PROGRAMMABLE_CC", "DPA_AUTHENTICATION"}


def test_every_entry_gives_its_reason_as_a_sentence() -> None:
    for setting in load_wanted().settings:
        assert re.match(r"[A-Z0-9].{20,}\.$", setting.reason), setting.key
        assert setting.cost.endswith("."), setting.key
        assert setting.source, setting.key


def test_an_unknown_feature_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"feature 'ppc'; there are: pcc"):
        load_wanted().chosen(["ppc"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("pulse.firmware/1", "pulse.firmware/2", "schema is 'pulse.firmware/2'"),
        ('compare = "at_least"', 'compare = "less"', "compare is 'less'"),
        ("value = 20", 'value = "20"', "value must be a whole number"),
        ("value = 20", "value = -1", "value must be a whole number"),
        ('feature = "pcc"', "", "an optional setting names its feature"),
        ('need = "optional"', 'need = "core"', "a core setting names none"),
        ('need = "core"', 'need = "nobody"', "need is 'nobody'"),
        ("if_known = true", "if_known = 1", "if_known must be true or false"),
        ('name = "ECPF"', 'nickname = "ECPF"', "there is no field 'nickname'"),
        ('key = "PER_PF_NUM_SF"', 'key = "PF_BAR2_ENABLE"', "PF_BAR2_ENABLE is there twice"),
        ("[[watched]]", "[watched]", "are no TOML"),
        ("[[setting]]", "[[set]]", r"there is no \[\[setting\]\]"),
    ],
)
def test_a_wrong_settings_file_is_refused_by_entry_and_field(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    assert old in TEXT
    with pytest.raises(SettingsError, match=complaint):
        load_wanted(written(tmp_path, TEXT.replace(old, new)))


@pytest.mark.parametrize("field", ["reason", "cost", "source", "need", "compare"])
def test_an_entry_without_a_field_is_named(tmp_path: Path, field: str) -> None:
    start = TEXT.index('key = "PF_TOTAL_SF"')
    text = TEXT[:start] + re.sub(rf"(?m)^{field} = .*\n", "", TEXT[start:], count=1)
    with pytest.raises(SettingsError, match=f"setting PF_TOTAL_SF: {field} must be there"):
        load_wanted(written(tmp_path, text))


def test_a_settings_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read: No such file"):
        load_wanted(tmp_path / "none.toml")
