# SPDX-License-Identifier: Apache-2.0
"""Making a bf.cfg, and running its hooks as the installer would, on a folder instead of a card."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firmware_cfg import bfcfg
from tests.firmware.fakes import FACTORY, FROM_FACTORY, RIGHT, Machine, subprocess_environment

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"
PACKAGE = b"!<arch>\ndebian-binary\n" + bytes(range(256)) * 40

# The installer sources bf.cfg without `set -e`, runs the hooks that are there, and counts errors in RC.
INSTALLER = """
RC=0
log() { printf '%s\\n' "$*" >>"$HOME/install.log"; }
. "$1"
if declare -F bfb_modify_os >/dev/null; then bfb_modify_os; fi
if declare -F bfb_post_install >/dev/null; then bfb_post_install; fi
exit $RC
"""


class Inputs:
    """Files that go into a bf.cfg."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "bf.cfg"
        self.package = self.write("pulse-dpu_0.1.0_arm64.deb", PACKAGE)
        self.config = self.write("sf.toml", b'interface = "enp3s0f0s88"\n')
        self.ca = self.write("ca.pem", CERTIFICATE.encode())
        self.cert = self.write("cert.pem", CERTIFICATE.encode())
        self.key = self.write("key.pem", KEY.encode())

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def all(self) -> list[str]:
        return [
            *("--package", str(self.package), "--config", f"enp3s0f0s88={self.config}"),
            *("--ca", str(self.ca), "--cert", str(self.cert), "--key", str(self.key)),
        ]

    def make(self, *arguments: str) -> str:
        assert bfcfg.main([*arguments, "--output", str(self.output)]) == 0
        return self.output.read_text(encoding="utf-8")


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """Files to embed."""
    return Inputs(tmp_path)


def flash(machine: Machine, file: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the hooks with the new system at a folder; chroot is a recording fake."""
    target = machine.root / "mnt"
    target.mkdir(exist_ok=True)
    return subprocess.run(
        [str(machine.bin / "bash"), "-c", INSTALLER, "installer", str(file)],
        env=machine.environment | {"PULSE_TARGET": str(target)} | more,
        capture_output=True,
        text=True,
        check=False,
    )


def said(machine: Machine) -> str:
    log = machine.root / "install.log"
    return log.read_text(encoding="utf-8") if log.exists() else ""


def test_the_same_inputs_give_the_same_bytes(inputs: Inputs) -> None:
    first = inputs.make(*inputs.all(), "--firmware", "--set", "WITH_NIC_FW_UPDATE=no")
    os.utime(inputs.config, (0, 0))
    assert inputs.make(*inputs.all(), "--firmware", "--set", "WITH_NIC_FW_UPDATE=no") == first


def test_what_is_made_parses_and_shellcheck_has_nothing_to_say(inputs: Inputs) -> None:
    inputs.make(*inputs.all(), "--firmware", "--set", "ubuntu_PASSWORD=$1$a$b'c", "--stamps")
    done = subprocess.run(["bash", "-n", inputs.output], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck (Debian: shellcheck)")
    # The installer reads the assignments (SC2034), and hashes of passwords are full of dollars (SC2016).
    checked = ["shellcheck", "--exclude=SC2034,SC2016", inputs.output]
    assert subprocess.run(checked, capture_output=True, text=True, check=False).stdout == ""


def test_the_installer_gets_assignments_as_they_were_given(inputs: Inputs) -> None:
    password = '$1$salt$it\'s "odd" `here`'
    inputs.make(*inputs.all(), "--set", f"ubuntu_PASSWORD={password}", "--set", "WITH_NIC_FW_UPDATE=no")
    read = 'unset ubuntu_PASSWORD; . "$1"; printf %s "$ubuntu_PASSWORD|$WITH_NIC_FW_UPDATE"'
    done = subprocess.run(
        ["bash", "-c", read, "bash", inputs.output], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{password}|no"


def test_flashing_unpacks_installs_and_enables_in_this_order(machine: Machine, inputs: Inputs) -> None:
    package = machine.root / "mnt/var/cache/pulse/pulse-dpu_0.1.0_arm64.deb"
    machine.fake("chroot", f'[[ $2 != dpkg ]] || cmp -s "{package}" "{inputs.package}" || exit 9')
    (machine.bin / "cmp").symlink_to(shutil.which("cmp") or "cmp")
    inputs.make(*inputs.all(), "--stamps")
    done = flash(machine, inputs.output)
    assert done.returncode == 0, said(machine)
    target = str(machine.root / "mnt")
    assert machine.calls("chroot") == [
        ["chroot", target, "dpkg", "--force-confold", "-i", "/var/cache/pulse/pulse-dpu_0.1.0_arm64.deb"],
        ["chroot", target, "chown", "pulse-dpu:", "/etc/pulse/tls/key.pem"],
        ["chroot", target, "systemctl", "enable", "pulse-dpu@enp3s0f0s88.service"],
        ["chroot", target, "systemctl", "enable", "pulse-dpu-device@enp3s0f0s88.service"],
    ]
    assert (machine.root / "mnt/etc/pulse/dpu/enp3s0f0s88.toml").read_bytes() == inputs.config.read_bytes()
    assert not package.exists()
    assert said(machine) == "INFO: Pulse: installed\n"


def test_settings_without_a_nic_are_those_of_the_only_instance(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    inputs.make("--config", str(inputs.config))
    assert flash(machine, inputs.output).returncode == 0
    assert (machine.root / "mnt/etc/pulse/dpu.toml").read_bytes() == inputs.config.read_bytes()
    assert machine.calls("chroot")[-1][2:] == ["systemctl", "enable", "pulse-dpu.service"]


def test_the_private_key_is_readable_to_its_owner_alone_and_certificates_to_all(
    machine: Machine, inputs: Inputs
) -> None:
    machine.fake("chroot")
    inputs.make(*inputs.all())
    old = machine.root / "mnt/etc/pulse/tls/key.pem"
    old.parent.mkdir(parents=True)
    old.write_text("an older key that everybody may read", encoding="utf-8")
    old.chmod(0o644)
    flash(machine, inputs.output)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (machine.root / "mnt/etc/pulse/tls").iterdir()
    }
    assert modes == {"key.pem": 0o600, "cert.pem": 0o644, "ca.pem": 0o644}
    assert old.read_text(encoding="utf-8") == KEY


def test_a_bf_cfg_with_a_key_is_itself_readable_to_its_owner_alone(
    inputs: Inputs, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs.output.write_text("older", encoding="utf-8")
    inputs.output.chmod(0o644)
    inputs.make(*inputs.all())
    assert stat.S_IMODE(inputs.output.stat().st_mode) == 0o600
    assert "the installer copies it into its log" in capsys.readouterr().err
    inputs.make("--config", str(inputs.config))
    assert stat.S_IMODE(inputs.output.stat().st_mode) & 0o077 == 0o044
    assert capsys.readouterr().err == ""


def test_tools_that_the_installer_lacks_are_taken_from_the_new_system(
    machine: Machine, inputs: Inputs
) -> None:
    machine.fake("chroot", 'shift; exec "$HOME/target/$1" "${@:2}"')
    target = machine.root / "target"
    target.mkdir()
    for tool in ("base64", "sha256sum", "wc"):
        (machine.bin / tool).unlink()
        (target / tool).symlink_to(shutil.which(tool) or tool)
    (target / "systemctl").symlink_to(machine.bin / "true")
    inputs.make("--config", f"p0={inputs.config}")
    assert flash(machine, inputs.output).returncode == 0, said(machine)
    assert (machine.root / "mnt/etc/pulse/dpu/p0.toml").read_bytes() == inputs.config.read_bytes()


def test_bytes_lost_on_the_way_are_noticed_and_nothing_is_installed(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    text = inputs.make(*inputs.all())
    lines = text.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if re.fullmatch(r"[A-Za-z0-9+/]{76}\n", line))
    damaged = "".join(lines[:first] + lines[first + 3 :])
    inputs.output.write_text(damaged, encoding="utf-8")
    assert flash(machine, inputs.output).returncode == 1
    assert "pulse-dpu_0.1.0_arm64.deb has 10091 bytes instead of 10262: flash again" in said(machine)
    assert machine.calls("chroot") == []


def test_changed_bytes_are_noticed(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    text = inputs.make("--config", str(inputs.config))
    inputs.output.write_text(text.replace("aW50ZXJm", "aW50ZXJn"), encoding="utf-8")
    assert flash(machine, inputs.output).returncode == 1
    assert "/etc/pulse/dpu.toml arrived damaged" in said(machine)


def test_a_file_without_its_last_line_installs_nothing(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    text = inputs.make(*inputs.all())
    inputs.output.write_text(text.replace("PULSE_COMPLETE=yes\n", ""), encoding="utf-8")
    assert flash(machine, inputs.output).returncode == 1
    assert "it was cut on its way" in said(machine)
    assert machine.calls("chroot") == []


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        ("dpkg", "dpkg cannot install"),
        ("chown", "cannot be given to"),
        ("systemctl", "cannot enable pulse-dpu@"),
    ],
)
def test_a_step_that_fails_is_said_in_the_log_and_counted(
    machine: Machine, inputs: Inputs, failing: str, message: str
) -> None:
    machine.fake("chroot", f"[[ $2 != {failing} ]]")
    inputs.make(*inputs.all())
    assert flash(machine, inputs.output).returncode == 1
    assert "ERROR: Pulse: " in said(machine)
    assert message in said(machine)
    assert "installed" not in said(machine).replace("install.", "")


@pytest.mark.parametrize("tool", ["mlxconfig", "mstconfig"])
def test_firmware_settings_are_applied_after_the_installation_and_old_values_kept(
    machine: Machine, inputs: Inputs, tool: str
) -> None:
    machine.fake("chroot")
    machine.fake_card_tool(tool)
    machine.add_card(live=FACTORY)
    machine.add_card("0000:83:00.0", live=RIGHT)
    inputs.make("--config", str(inputs.config), "--firmware")
    assert flash(machine, inputs.output).returncode == 0, said(machine)
    changes = [call for call in machine.calls(tool) if "set" in call]
    assert [call[:5] for call in changes] == [[tool, "-y", "-d", "0000:03:00.0", "set"]]
    assert changes[0][5:] == FROM_FACTORY
    kept = machine.root / "mnt/var/lib/pulse-firmware/before-0000:03:00.0.txt"
    assert re.search(r"REAL_TIME_CLOCK_ENABLE +False\(0\)", kept.read_text(encoding="utf-8"))
    assert "about 30 s without power" in said(machine)
    machine.forget()
    flash(machine, inputs.output)
    assert [call for call in machine.calls(tool) if "set" in call] == []


def test_a_card_without_a_needed_parameter_is_left_as_it_is(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    machine.fake_card_tool("mlxconfig")
    machine.add_card(live={k: v for k, v in FACTORY.items() if k != "PER_PF_NUM_SF"})
    inputs.make("--config", str(inputs.config), "--firmware")
    assert flash(machine, inputs.output).returncode == 1
    assert "0000:03:00.0 does not know PER_PF_NUM_SF: update its firmware" in said(machine)
    assert [call for call in machine.calls("mlxconfig") if "set" in call] == []


def test_without_the_option_no_card_is_touched(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    machine.fake_card_tool("mlxconfig")
    machine.add_card(live=FACTORY)
    inputs.make(*inputs.all())
    assert flash(machine, inputs.output).returncode == 0
    assert machine.calls("mlxconfig") == []


def test_hooks_of_the_site_are_kept_and_can_call_ours(machine: Machine, inputs: Inputs) -> None:
    machine.fake("chroot")
    text = inputs.make("--config", str(inputs.config))
    site = 'bfb_modify_os() { echo ours >"$PULSE_TARGET/site"; pulse_modify_os; }\n'
    inputs.output.write_text(site + text, encoding="utf-8")
    assert flash(machine, inputs.output).returncode == 0
    assert (machine.root / "mnt/site").exists()
    assert (machine.root / "mnt/etc/pulse/dpu.toml").exists()


def refused(inputs: Inputs, capsys: Any, *arguments: str) -> str:
    assert bfcfg.main([*arguments, "--output", str(inputs.output)]) == 2
    assert not inputs.output.exists()
    return str(capsys.readouterr().err)


def test_files_that_are_too_large_are_refused_by_name(inputs: Inputs, capsys: Any) -> None:
    inputs.package.write_bytes(PACKAGE + bytes(2 << 20))
    text = refused(inputs, capsys, *inputs.all(), "--limit-mib", "2")
    assert "more than the limit of 2 MiB" in text
    assert "pulse-dpu_0.1.0_arm64.deb alone has 2 MiB" in text


def test_wrong_inputs_are_refused_by_name(inputs: Inputs, capsys: Any) -> None:
    config, key = str(inputs.config), str(inputs.key)
    cases = {
        ("--package", config): "is no Debian package",
        ("--config", "none.toml"): "none.toml cannot be read: No such file",
        ("--config", f"a/b={config}"): "'a/b' is no name of a network interface",
        ("--cert", key): "readable to all, holds a private key",
        ("--cert", config): "holds no certificate",
        ("--key", key): "--key is there without --cert",
        ("--cert", str(inputs.cert), "--key", str(inputs.cert)): "holds no private key",
        ("--config", config, "--set", "UBUNTU_PASSWORD=x"): "the installer knows no such key",
        ("--config", config, "--enable", "a; reboot"): "is no name of a unit",
        ("--config", str(inputs.write("empty", b""))): "is empty",
        (): "there is nothing to install",
        ("--firmware", "--with", "ppc"): "no setting belongs to feature 'ppc'",
    }
    for arguments, complaint in cases.items():
        assert complaint in refused(inputs, capsys, *arguments), arguments


def test_the_file_runs_as_a_script_from_any_folder(machine: Machine, inputs: Inputs, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, bfcfg.__file__, "--config", str(inputs.config), "--output", str(inputs.output)],
        cwd=tmp_path,
        env=subprocess_environment(machine),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(json.dumps(done.stdout)).startswith(str(inputs.output))
