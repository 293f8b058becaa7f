#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a bf.cfg that installs the agent into a BlueField's image while it is flashed.

The same inputs give the same bytes. A bf.cfg with a private key is written with mode 0600; the installer
copies it into its log on the card, so treat that log, and the file on the host, as you treat the key.

exit status: 0 written; 2 wrong usage, or a file that cannot be used
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # started as a script
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from firmware_cfg.embedding import (
    PUBLIC,
    SECRET,
    EmbeddedFile,
    EmbeddingError,
    check_pem,
    check_sizes,
    embed,
    unpack_function,
)
from firmware_cfg.wanted import DEFAULT_FILE, SettingsError, load_wanted

WRONG = 2
_HOOKS = Path(__file__).with_name("bfcfg_hooks.sh")
_KEY_PATH = "/etc/pulse/tls/key.pem"
# What the installer of NVIDIA's images reads (bfb-build, DOCA 3.4.0).
_KNOWN_KEYS = """
ubuntu_PASSWORD grub_admin_PASSWORD UPDATE_DPU_OS UPDATE_ATF_UEFI WITH_NIC_FW_UPDATE FORCE_NIC_FW_UPDATE
NIC_FW_RESET UPDATE_BMC_FW UPDATE_CEC_FW UPDATE_DPU_GOLDEN_IMAGE UPDATE_NIC_FW_GOLDEN_IMAGE BMC_PASSWORD
NEW_BMC_PASSWORD BMC_REBOOT DUAL_BOOT ERASE_PARTITIONS PXE_DHCP_CLASS_ID ENABLE_SFC_HBN device
"""
_NIC = re.compile(r"[A-Za-z0-9_.-]{1,15}")


@dataclass(frozen=True, slots=True)
class Contents:
    """All that goes into one bf.cfg."""

    package: EmbeddedFile | None
    settings: tuple[EmbeddedFile, ...]
    units: tuple[str, ...]
    firmware: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...]

    @property
    def files(self) -> tuple[EmbeddedFile, ...]:
        """Every embedded file."""
        return ((self.package,) if self.package else ()) + self.settings

    @property
    def has_secret(self) -> bool:
        """Whether the text must be kept from others."""
        return any(file.mode == SECRET for file in self.files)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        contents = _gather(options)
        check_sizes(contents.files, options.limit_mib << 20)
        text = bf_cfg(contents)
        _check_syntax(text)
        _write(options.output, text, secret=contents.has_secret)
    except (EmbeddingError, SettingsError) as error:
        print(f"bfcfg: {error}", file=sys.stderr)
        return WRONG
    if contents.has_secret:
        print(
            "bfcfg: the file holds a private key, and the installer copies it into its log on the card: "
            "delete that log after flashing, or leave --key away and bring the key later",
            file=sys.stderr,
        )
    print(f"{options.output}: {len(text):,} bytes, {len(contents.files)} files")
    return 0


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="bfcfg", description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("bf.cfg"), metavar="FILE")
    parser.add_argument(
        "--package", type=Path, metavar="DEB", help="the agent; leave away if the image has it"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="[NIC=]FILE",
        help="settings of the agent; with NIC, an instance of the unit for that interface; may be repeated",
    )
    parser.add_argument("--ca", type=Path, metavar="PEM", help="CA of the controller's certificate")
    parser.add_argument("--cert", type=Path, metavar="PEM", help="this card's certificate")
    parser.add_argument("--key", type=Path, metavar="PEM", help="key of --cert, written with mode 0600")
    parser.add_argument(
        "--copy", type=Path, metavar="ENV", help="settings of pulse-dpu-copy.service, which is then enabled"
    )
    parser.add_argument("--stamps", action="store_true", help="enable pulse-dpu-device: hardware time stamps")
    parser.add_argument(
        "--unit", type=Path, action="append", default=[], metavar="FILE", help="a further unit"
    )
    parser.add_argument("--enable", action="append", default=[], metavar="UNIT", help="enable a further unit")
    parser.add_argument("--firmware", action="store_true", help="apply the firmware settings too")
    parser.add_argument("--with", action="append", dest="features", default=[], metavar="FEATURE")
    parser.add_argument("--settings", type=Path, default=DEFAULT_FILE, metavar="FILE", help="of the firmware")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for the installer")
    parser.add_argument(
        "--limit-mib", type=int, default=64, metavar="N", help="largest size of all files (default: 64)"
    )
    return parser


def _gather(options: argparse.Namespace) -> Contents:
    package = None
    if options.package:
        package = embed(options.package, f"/var/cache/pulse/{options.package.name}", PUBLIC)
        if not package.content.startswith(b"!<arch>\n"):
            raise EmbeddingError(f"{options.package} is no Debian package; build one with deb/build.py")
    files: list[EmbeddedFile] = []
    units: list[str] = []
    for each in options.config:
        file, instance = _config(each)
        files.append(file)
        units.append(f"pulse-dpu{instance}.service")
        if options.stamps:
            units.append(f"pulse-dpu-device{instance}.service")
    files += _certificates(options)
    if options.copy:
        files.append(embed(options.copy, "/etc/pulse/copy.env", PUBLIC))
        units.append("pulse-dpu-copy.service")
    files += [embed(unit, f"/etc/systemd/system/{unit.name}", PUBLIC) for unit in options.unit]
    for unit in options.enable:
        if not re.fullmatch(r"[A-Za-z0-9_.@:-]+", unit):
            raise EmbeddingError(f"--enable {unit!r} is no name of a unit")
        units.append(unit)
    if not files and package is None and not options.firmware:
        raise EmbeddingError("there is nothing to install: give --package, --config or --firmware")
    firmware = load_wanted(options.settings).chosen(options.features) if options.firmware else ()
    return Contents(
        package,
        tuple(files),
        tuple(units),
        tuple(f"{s.key} {s.value} {s.compare} {'if_known' if s.if_known else 'needed'}" for s in firmware),
        tuple(_assignment(each) for each in options.set),
    )


def _config(text: str) -> tuple[EmbeddedFile, str]:
    nic, equals, path = text.partition("=")
    if not equals:
        return embed(Path(text), "/etc/pulse/dpu.toml", PUBLIC), ""
    if not _NIC.fullmatch(nic):
        raise EmbeddingError(f"--config {text}: {nic!r} is no name of a network interface")
    return embed(Path(path), f"/etc/pulse/dpu/{nic}.toml", PUBLIC), f"@{nic}"


def _certificates(options: argparse.Namespace) -> list[EmbeddedFile]:
    if options.key and not options.cert:
        raise EmbeddingError("--key is there without --cert, to which it belongs")
    files = []
    for source, name, private in (
        (options.ca, "/etc/pulse/tls/ca.pem", False),
        (options.cert, "/etc/pulse/tls/cert.pem", False),
        (options.key, _KEY_PATH, True),
    ):
        if source:
            file = embed(source, name, SECRET if private else PUBLIC)
            check_pem(file, private)
            files.append(file)
    return files


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or key not in _KNOWN_KEYS.split():
        raise EmbeddingError(
            f"--set {key}: the installer knows no such key; it knows {', '.join(sorted(_KNOWN_KEYS.split()))}"
        )
    return key, value


def bf_cfg(contents: Contents) -> str:
    """Return the text of the bf.cfg."""
    key = _KEY_PATH if any(file.target == _KEY_PATH for file in contents.settings) else ""
    listed = "".join(
        f"#   {file.target} {file.mode:04o} {len(file.content)} bytes {file.sha256}\n"
        for file in contents.files
    )
    package = contents.package
    return "\n".join(
        [
            "#!/bin/bash\n# Made by firmware_cfg/bfcfg.py of Pulse: change its inputs rather than this file.",
            f"# It carries:\n{listed}",
            *(f"{name}={shlex.quote(value)}" for name, value in contents.assignments),
            f"PULSE_PACKAGE={package.target if package else ''}",
            f"PULSE_KEY={key}",
            f"PULSE_UNITS=({' '.join(contents.units)})",
            f"PULSE_FIRMWARE=({' '.join(shlex.quote(entry) for entry in contents.firmware)})",
            "",
            _HOOKS.read_text(encoding="utf-8"),
            unpack_function("pulse_unpack", (package,) if package else ()),
            unpack_function("pulse_unpack_settings", contents.settings),
            "# The last line: without it the file was cut on its way.\nPULSE_COMPLETE=yes\n",
        ]
    )


def _check_syntax(text: str) -> None:
    try:
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    except OSError:
        return  # no bash here; the installer checks it the same way
    if done.returncode:
        raise EmbeddingError(f"bash does not take what was made: {done.stderr.strip()}")


def _write(path: Path, text: str, *, secret: bool) -> None:
    # A new file each time, so that it never has the mode of an older one that others may read.
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        new.replace(path)
    except OSError as error:
        raise EmbeddingError(f"{path} cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
