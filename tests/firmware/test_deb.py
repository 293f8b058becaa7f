# SPDX-License-Identifier: Apache-2.0
"""The Debian package, built with dpkg-deb from small wheels."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from firmware_cfg.deb import build as deb
from tests.firmware.fakes import Machine

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = "cp" + PYTHON.replace(".", "")
MACHINES = {"amd64": ("x86_64", b"\x3e\x00"), "arm64": ("aarch64", b"\xb7\x00")}
MAIN = "import sys\n\ndef main():\n    print('agent', *sys.argv[1:])\n    return 7\n"

pytestmark = pytest.mark.skipif(
    shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb (Debian: dpkg)"
)


def library(arch: str, needs: bytes = b"GLIBC_2.17\0GLIBC_2.29\0GLIBC_2.4\0") -> bytes:
    return b"\x7fELF" + bytes(14) + MACHINES[arch][1] + bytes(44) + needs


def make_wheels(folder: Path, arch: str = "amd64", **changed: dict[str, bytes]) -> Path:
    """Make the wheels that a package is built from; `changed` has other files for some."""
    machine = MACHINES[arch][0]
    contents: dict[str, dict[str, bytes]] = {
        "pulse_rdma": {
            "dpu_app/__init__.py": b"",
            "dpu_app/service/__init__.py": b"",
            "dpu_app/service/main.py": MAIN.encode(),
            "host_ctl/__init__.py": b"",
            "sim/__init__.py": b"",
            "bench/__init__.py": b"",
            "pulse_native/_core.so": library(arch),
        },
        "numpy": {"numpy/__init__.py": b"", "numpy/core.so": library(arch), "numpy/tests/test_x.py": b""},
        "msgpack": {"msgpack/__init__.py": b""},
        "zstandard": {"zstandard/__init__.py": b""},
        "tomli": {"tomli/__init__.py": b""},
    } | changed
    folder.mkdir()
    for name, files in contents.items():
        wheel = folder / f"{name}-0.1.0-{TAG}-{TAG}-manylinux_2_28_{machine}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, content in files.items():
                archive.writestr(path, content)
    return folder


def make_units(folder: Path) -> Path:
    folder.mkdir()
    (folder / "pulse-dpu@.service").write_text("[Service]\nExecStart=/usr/bin/pulse-dpu\n", encoding="utf-8")
    return folder


def built(folder: Path, arch: str = "amd64") -> Path:
    wheels = make_wheels(folder / "wheels", arch)
    return deb.build(arch, PYTHON, wheels, folder / "out", make_units(folder / "units"))


def dpkg_deb(*arguments: str | Path) -> str:
    return subprocess.run(["dpkg-deb", *arguments], capture_output=True, text=True, check=True).stdout


def modes(package: Path) -> dict[str, str]:
    """Return mode and owner by path, as `dpkg-deb -c` lists them."""
    rows = (line.split(maxsplit=5) for line in dpkg_deb("-c", package).splitlines())
    return {row[5].removeprefix(".").partition(" ->")[0]: f"{row[0]} {row[1]}" for row in rows}


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_the_package_names_its_architecture_python_and_c_library(tmp_path: Path, arch: str) -> None:
    package = built(tmp_path, arch)
    assert package.name == f"pulse-dpu_0.1.0+py{PYTHON}_{arch}.deb"
    shown = dpkg_deb("-f", package, "Package", "Version", "Architecture", "Depends")
    assert shown == (
        f"Package: pulse-dpu\nVersion: 0.1.0+py{PYTHON}\nArchitecture: {arch}\n"
        f"Depends: python{PYTHON}, libc6 (>= 2.29), libstdc++6 (>= 12), systemd\n"
    )


def test_the_package_holds_agent_units_settings_and_scripts_and_nothing_of_the_head_node(
    tmp_path: Path,
) -> None:
    listed = modes(built(tmp_path))
    plain, runs = "-rw-r--r-- root/root", "-rwxr-xr-x root/root"
    for path, mode in {
        "/usr/bin/pulse-dpu": runs,
        "/opt/pulse/site-packages/dpu_app/service/main.py": plain,
        "/opt/pulse/site-packages/numpy/core.so": plain,
        "/opt/pulse/firmware_cfg/mlxcfg.py": runs,
        "/opt/pulse/firmware_cfg/settings.toml": plain,
        "/opt/pulse/firmware_cfg/scripts/copy.sh": runs,
        "/opt/pulse/firmware_cfg/ptp/ptp4l.conf": plain,
        "/usr/lib/systemd/system/pulse-dpu@.service": plain,
        "/usr/lib/systemd/system/pulse-dpu-copy.service": plain,
        "/usr/lib/sysusers.d/pulse-dpu.conf": plain,
        "/etc/pulse/dpu/enp3s0f0s88.toml": plain,
        "/usr/share/doc/pulse-dpu/copyright": plain,
    }.items():
        assert listed.get(path) == mode, path
    assert {mode.split()[1] for mode in listed.values()} == {"root/root"}
    unwanted = ("host_ctl", "/sim/", "bench", "tests", "__pycache__")
    assert [path for path in listed if any(part in path for part in unwanted)] == []


def test_settings_are_configuration_files_that_an_upgrade_keeps(tmp_path: Path) -> None:
    package = built(tmp_path)
    dpkg_deb("-e", package, tmp_path / "control")
    listed = (tmp_path / "control/conffiles").read_text(encoding="utf-8").split()
    assert listed == ["/etc/pulse/copy.env", "/etc/pulse/dpu/enp3s0f0s88.toml"]


def test_the_command_in_the_package_runs_the_agent_and_passes_its_status_on(tmp_path: Path) -> None:
    dpkg_deb("-x", built(tmp_path), tmp_path / "unpacked")
    launcher = tmp_path / "unpacked/usr/bin/pulse-dpu"
    text = launcher.read_text(encoding="utf-8")
    assert text.startswith(f"#!/usr/bin/python{PYTHON} -I\n")
    moved = text.replace("/opt/pulse", f"{tmp_path}/unpacked/opt/pulse")
    # Not the Python of a virtual environment, in which this project may be installed for development.
    python = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
    done = subprocess.run(
        [python, "-I", "-c", moved, "run", "--config", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("agent run --config x\n", "", 7)


def test_the_same_wheels_give_the_same_bytes(tmp_path: Path) -> None:
    first = built(tmp_path).read_bytes()
    again = deb.build("amd64", PYTHON, tmp_path / "wheels", tmp_path / "again", tmp_path / "units")
    assert again.read_bytes() == first


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_maintainer_scripts_are_in_the_package_and_parse(tmp_path: Path, name: str) -> None:
    dpkg_deb("-e", built(tmp_path), tmp_path / "control")
    path = tmp_path / "control" / name
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", path], check=False).returncode == 0
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", path], check=False).returncode == 0


def test_installing_into_an_image_makes_the_user_and_starts_nothing(machine: Machine) -> None:
    if Path("/run/systemd/system").exists():
        pytest.skip("systemd runs here, so this is not what happens in an image")
    machine.fake("systemd-sysusers")
    machine.fake("systemctl")
    script = Path(deb.__file__).with_name("postinst")
    done = subprocess.run(
        [machine.bin / "sh", script, "configure"], env=machine.environment, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert machine.calls() == [["systemd-sysusers", "pulse-dpu.conf"]]


def test_wheels_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    def refusal(arch: str, python: str, wheels: Path) -> str:
        with pytest.raises(deb.BuildError) as caught:
            deb.build(arch, python, wheels, tmp_path / "out", units)
        return str(caught.value)

    units = make_units(tmp_path / "units")
    good = make_wheels(tmp_path / "good")
    assert "is not for Python 3.9 on x86_64" in refusal("amd64", "3.9", good)
    assert f"is not for Python {PYTHON} on aarch64" in refusal("arm64", PYTHON, good)
    assert "--python 3 is no version" in refusal("amd64", "3", good)
    wrong = make_wheels(tmp_path / "wrong", numpy={"numpy/core.so": library("arm64")})
    assert "numpy/core.so is not compiled for amd64" in refusal("amd64", PYTHON, wrong)
    named = {"numpy/core.cpython-27-x86_64-linux-gnu.so": library("amd64")}
    misnamed = make_wheels(tmp_path / "misnamed", numpy=named)
    assert f"a name that Python {PYTHON} on amd64 does not load" in refusal("amd64", PYTHON, misnamed)
    outside = make_wheels(tmp_path / "outside", msgpack={"../../etc/passwd": b"x"})
    assert "holds ../../etc/passwd, which leads out of it" in refusal("amd64", PYTHON, outside)
    older = make_wheels(tmp_path / "older", pulse_rdma={"dpu_app/__init__.py": b""})
    assert "older than the agent" in refusal("amd64", PYTHON, older)
    next(good.glob("msgpack*")).unlink()
    assert "has no wheel of msgpack" in refusal("amd64", PYTHON, good)


def test_a_tree_without_units_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(deb.BuildError, match=r"there is no \*\.service in .*none"):
        deb.build("amd64", PYTHON, make_wheels(tmp_path / "wheels"), tmp_path, tmp_path / "none")
