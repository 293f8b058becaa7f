#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the Debian package `pulse-dpu`: the agent with all it needs, so that installing needs no network.

It holds the wheels unpacked under /opt/pulse, the command /usr/bin/pulse-dpu, the units, the scripts of
firmware_cfg, and /etc/pulse as configuration files. Compiled parts fit one Python and one architecture: the
package depends on that Python, and on the C library that its files ask for.

  build.py --arch amd64 --python 3.10 --wheels FOLDER

FOLDER holds the wheel of pulse-rdma and those of its dependencies for that Python and architecture;
`make deb` fills it. The same wheels give the same bytes.

exit status: 0 built; 2 wrong usage, or something that cannot be used
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIRMWARE = HERE.parent
# Where the units are, first that exists; they belong to the service.
UNIT_FOLDERS = (FIRMWARE / "systemd", FIRMWARE.parent / "dpu_app" / "service" / "units")
MACHINES = {"amd64": b"\x3e\x00", "arm64": b"\xb7\x00"}  # e_machine of ELF files
_GNU = {"amd64": "x86_64", "arm64": "aarch64"}
SITE = "opt/pulse/site-packages"
# Packages of the wheel that a card has no use for, and weight.
_NOT_ON_A_CARD = ("host_ctl", "sim", "bench")
_WEIGHT = ("tests", "__pycache__")
_VERSION = re.compile(rb"GLIBC_(2\.\d+)")
_SUFFIX = re.compile(r"\.cpython-(\d+)-(\w+)-linux-gnu\.so$")
_EPOCH = 315532800  # 1980, the first year that a wheel can hold


class BuildError(Exception):
    """Something that keeps the package from being built; the message says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        print(build(options.arch, options.python, options.wheels, options.output, options.units))
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="build.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", choices=sorted(MACHINES), required=True)
    parser.add_argument("--python", metavar="3.N", required=True, help="the Python of the card's image")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--output", type=Path, default=Path("build/deb"), metavar="FOLDER")
    parser.add_argument(
        "--units", type=Path, metavar="FOLDER", help="where the units are, if not in the tree"
    )
    return parser


def build(arch: str, python: str, wheels: Path, output: Path, units: Path | None = None) -> Path:
    """Build the package and return its path. Raises BuildError."""
    if not re.fullmatch(r"3\.\d+", python):
        raise BuildError(f"--python {python} is no version like 3.10")
    if shutil.which("dpkg-deb") is None:
        raise BuildError(
            "there is no dpkg-deb on PATH: build on Debian or Ubuntu, or install the package dpkg"
        )
    found = sorted(wheels.glob("*.whl"))
    version = _check_wheels(found, arch, python, wheels)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        _unpack(found, root / SITE)
        _check_libraries(root, arch, python)
        _add_files(root, python, _unit_files(units))
        _add_control(root, arch, python, version)
        _settle(root)
        output.mkdir(parents=True, exist_ok=True)
        package = output / f"pulse-dpu_{version}+py{python}_{arch}.deb"
        done = subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(package)],
            env=os.environ | {"SOURCE_DATE_EPOCH": str(_EPOCH)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(f"dpkg-deb failed: {done.stderr.strip()}")
    return package


def _check_wheels(wheels: Sequence[Path], arch: str, python: str, folder: Path) -> str:
    tag = "cp" + python.replace(".", "")
    machine = _GNU[arch]
    version = ""
    names = set()
    for wheel in wheels:
        name, its_version, *_, abi_python, _, platform = wheel.stem.split("-")
        names.add(name.lower().replace("-", "_"))
        if platform != "any" and not (tag in abi_python.split(".") and machine in platform):
            raise BuildError(f"{wheel.name} is not for Python {python} on {machine}; fetch the right one")
        if name == "pulse_rdma":
            version = its_version
    missing = sorted({"pulse_rdma", "numpy", "msgpack", "zstandard"} - names)
    if python == "3.10" and "tomli" not in names:
        missing.append("tomli")
    if missing:
        raise BuildError(f"{folder} has no wheel of {', '.join(missing)}; `make deb` fills it")
    return version


def _unpack(wheels: Iterable[Path], site: Path) -> None:
    site.mkdir(parents=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                parts = Path(member).parts
                if member.startswith("/") or ".." in parts:
                    raise BuildError(f"{wheel.name} holds {member}, which leads out of it")
                if parts[0] in _NOT_ON_A_CARD or any(part in _WEIGHT for part in parts):
                    continue
                archive.extract(member, site)
    if not (site / "dpu_app/service/main.py").exists():
        raise BuildError("the wheel of pulse-rdma has no dpu_app/service/main.py: it is older than the agent")


def _libraries(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*.so*")) if path.is_file()]


def _check_libraries(root: Path, arch: str, python: str) -> None:
    for path in _libraries(root):
        head = path.read_bytes()[:20]
        if head[:4] == b"\x7fELF" and head[18:20] != MACHINES[arch]:
            raise BuildError(f"{path.relative_to(root)} is not compiled for {arch}")
        # Python loads a module only under the name that it expects.
        name = _SUFFIX.search(path.name)
        if name and name.groups() != (python.replace(".", ""), _GNU[arch]):
            raise BuildError(
                f"{path.relative_to(root)} has a name that Python {python} on {arch} does not load"
            )


def _glibc(root: Path) -> str:
    """Return the newest version of the C library that a file names."""
    versions = {v for path in _libraries(root) for v in _VERSION.findall(path.read_bytes())}
    return max((v.decode() for v in versions), key=lambda v: int(v[2:]), default="2.31")


def _unit_files(units: Path | None) -> list[Path]:
    for folder in (units,) if units else UNIT_FOLDERS:
        found = sorted(folder.glob("*.service")) if folder.is_dir() else []
        if found:
            return [*found, FIRMWARE / "scripts/pulse-dpu-copy.service"]
    looked = units or " nor ".join(str(folder) for folder in UNIT_FOLDERS)
    raise BuildError(f"there is no *.service in {looked}; name the folder with --units")


def _add_files(root: Path, python: str, units: Iterable[Path]) -> None:
    for name in ("usr/bin", "usr/sbin", "usr/lib/systemd/system", "usr/lib/sysusers.d", "etc/pulse/dpu"):
        (root / name).mkdir(parents=True)
    for unit in units:
        shutil.copy(unit, root / "usr/lib/systemd/system")
    launcher = (HERE / "pulse-dpu.in").read_text(encoding="utf-8").replace("@PYTHON@", python)
    (root / "usr/bin/pulse-dpu").write_text(launcher, encoding="utf-8")
    kept = ("*.py", "*.sh", "*.toml")
    copied = root / "opt/pulse/firmware_cfg"
    for folder in (FIRMWARE, FIRMWARE / "scripts", FIRMWARE / "ptp"):
        target = copied / folder.relative_to(FIRMWARE)
        target.mkdir(parents=True, exist_ok=True)
        for pattern in (*kept, "*.conf"):
            for path in sorted(folder.glob(pattern)):
                shutil.copy(path, target)
    (root / "usr/sbin/pulse-mlxcfg").symlink_to("/opt/pulse/firmware_cfg/mlxcfg.py")
    (root / "usr/lib/sysusers.d/pulse-dpu.conf").write_text(
        'u pulse-dpu - "Pulse agent" /nonexistent\n', encoding="utf-8"
    )
    shutil.copy(FIRMWARE / "dpu.toml", root / "etc/pulse/dpu/enp3s0f0s88.toml")
    shutil.copy(FIRMWARE / "scripts/copy.env", root / "etc/pulse/copy.env")
    doc = root / "usr/share/doc/pulse-dpu"
    doc.mkdir(parents=True)
    shutil.copy(FIRMWARE.parent / "LICENSE", doc / "copyright")


def _add_control(root: Path, arch: str, python: str, version: str) -> None:
    control = root / "DEBIAN"
    control.mkdir()
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    text = (HERE / "control.in").read_text(encoding="utf-8")
    for name, value in (
        ("VERSION", f"{version}+py{python}"),
        ("ARCH", arch),
        ("PYTHON", python),
        ("GLIBC", _glibc(root)),
        ("SIZE", str(size)),
    ):
        text = text.replace(f"@{name}@", value)
    (control / "control").write_text(text, encoding="utf-8")
    for script in ("postinst", "prerm", "postrm"):
        shutil.copy(HERE / script, control / script)
    conffiles = sorted(path.relative_to(root) for path in (root / "etc").rglob("*") if path.is_file())
    (control / "conffiles").write_text("".join(f"/{path}\n" for path in conffiles), encoding="utf-8")


def _settle(root: Path) -> None:
    """Give everything its mode, and one time, so that the package does not depend on the day."""
    executable = {"postinst", "prerm", "postrm", "pulse-dpu", "mlxcfg.py", "bfcfg.py"}
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            runs = (
                path.is_dir() or path.name in executable or (path.suffix == ".sh" and "scripts" in path.parts)
            )
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (_EPOCH, _EPOCH), follow_symlinks=False)
    root.chmod(0o755)
    os.utime(root, (_EPOCH, _EPOCH))


if __name__ == "__main__":
    sys.exit(main())
