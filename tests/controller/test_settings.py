# SPDX-License-Identifier: Apache-2.0
"""Settings of the controller: who wins, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from host_ctl.errors import InputError, UsageError
from host_ctl.incidents.hooks.config import SETTINGS as HOOK_SETTINGS
from host_ctl.service.example import example_text
from host_ctl.service.settings import SETTINGS, load_settings, split_address

ROOT = Path(__file__).parents[2]
LEAST = 'history.directory = "/var/lib/x"\nlisten.plaintext = true\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the least settings."""
    path = tmp_path / "controller.toml"
    path.write_text(LEAST)
    return path


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(file: Path) -> None:
    file.write_text(LEAST + "[limits]\nconnections = 5\nhandshakes = 5\nnics_per_machine = 5\n")
    environment = {"PULSE_CONTROLLER_LIMITS_CONNECTIONS": "6", "PULSE_CONTROLLER_LIMITS_HANDSHAKES": "6"}
    settings = load_settings(file, environment, ["limits.connections=7"])
    found = (settings.connections, settings.handshakes, settings.nics_per_machine, settings.silence_s)
    assert found == (7, 6, 5, 15.0)


def test_variables_of_other_programs_are_left_alone(file: Path) -> None:
    others = {"PULSE_SERVER": "x", "PULSE_DPU_INTERFACE": "p0", "PULSE_CONTROLLER_CONFIG": str(file)}
    assert load_settings(file, others, []) == load_settings(file, {}, [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits.connection = 5", "did you mean limits.connections"),
        ("history.max_gb = 5", "did you mean history.max_gib"),
        ("limits.connections = true", "must be a whole number"),
        ("limits.connections = 0", "must be 1 to 65536"),
        ("limits.silence_s = nan", "must be 1 to 3600"),
        ('log.level = "loud"', "one of debug"),
        ('listen.address = "::1"', "must be HOST:PORT"),
        ('api.address = "0.0.0.0:80"', "open to the network: set api.token_file"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(file: Path, text: str, says: str) -> None:
    file.write_text(LEAST + text)
    with pytest.raises(UsageError, match=re.escape(says)):
        load_settings(file, {}, [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listen.plaintext = true", "history.directory is not set"),
        ('history.directory = "x"', "tls.ca_file is not set"),
        ('history.directory = "x"\ntls.ca_file = "ca"\ntls.cert_file = "c"', "tls.key_file is not set"),
        (
            'history.directory = "x"\nlisten.plaintext = true\nlisten.address = "0.0.0.0:1"',
            "open to the network",
        ),
    ],
)
def test_what_is_missing_is_named(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_settings(file, {}, [])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_settings(tmp_path / "none", {}, [])
    (tmp_path / "broken").write_text("= 3")
    with pytest.raises(InputError, match="no TOML"):
        load_settings(tmp_path / "broken", {}, [])


def test_unknown_variables_and_flags_are_refused_too(file: Path) -> None:
    with pytest.raises(UsageError, match="did you mean PULSE_CONTROLLER_LOG_LEVEL"):
        load_settings(file, {"PULSE_CONTROLLER_LOG_LEVELS": "x"}, [])
    with pytest.raises(UsageError, match=r"did you mean log\.level"):
        load_settings(file, {}, ["log.levels=x"])
    with pytest.raises(UsageError, match="expected KEY=VALUE"):
        load_settings(file, {}, ["log.level"])


@pytest.mark.parametrize(
    ("address", "expected"),
    [("a:1", ("a", 1)), ("[::1]:2", ("::1", 2)), (":3", ("", 3)), ("[::]:4", ("::", 4))],
)
def test_addresses_have_hosts_and_ports(address: str, expected: tuple[str, int]) -> None:
    assert split_address("x", address) == expected


def shown(default: object) -> str:
    """A default as the documentation has it."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default or "")


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "controller.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (.*?) \|", text, re.MULTILINE))
    assert {key: value.strip("`") for key, value in rows.items()} == {
        s.key: shown(s.default) for s in SETTINGS
    }


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    lines = example_text().partition("# Who is told of incidents")[0].splitlines()
    keys = [line.lstrip("#") for line in lines if re.match(r"#?[a-z_]+ = ", line)]
    assert len(keys) == len(SETTINGS)
    tls = {"ca_file": "ca", "cert_file": "cert", "key_file": "key"}
    given = [re.sub(r"^#(?=[a-z_]+ = )", "", line) for line in lines]
    file.write_text("\n".join(given))
    flags = [f"tls.{name}={value}" for name, value in tls.items()]
    expected = load_settings(None, {}, ["history.directory=/var/lib/pulse-controller", *flags])
    assert load_settings(file, {}, flags) == expected
    file.write_text(example_text())
    assert load_settings(file, {}, flags) == expected


def test_hooks_stand_in_tables_and_are_checked(file: Path) -> None:
    file.write_text(LEAST + '[[hooks]]\nname = "a"\nkind = "command"\ncommand = ["page", "-x"]\n')
    (hook,) = load_settings(file, {}, []).incidents().hooks
    assert (hook.name, hook.command, hook.severity) == ("a", ("page", "-x"), "fail_slow")
    file.write_text(LEAST + '[[hooks]]\nname = "a"\nkind = "command"\n')
    with pytest.raises(
        UsageError, match=re.escape(f"{file}: hook 1 (a): a hook of kind command needs command")
    ):
        load_settings(file, {}, [])
    file.write_text(LEAST + "incidents.open_looks = 6\n")
    with pytest.raises(UsageError, match=r"open_looks is more than incidents\.open_of"):
        load_settings(file, {}, [])


def test_every_key_of_a_hook_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "controller.md").read_text(encoding="utf-8").partition("### Hooks")[2]
    rows = dict(
        re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", text.partition("Each hook has a queue")[0], re.MULTILINE)
    )
    assert {key: value.strip("`") for key, value in rows.items()} == {
        each.key: shown(each.default) for each in HOOK_SETTINGS
    }
