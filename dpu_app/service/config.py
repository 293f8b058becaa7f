# SPDX-License-Identifier: Apache-2.0
"""Settings of the service: a flag wins over the environment, that over the file, that over the default."""

from __future__ import annotations

import difflib
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dpu_app.capture.afpacket import CaptureConfig
from dpu_app.meter.metering import MeteringConfig
from dpu_app.service.publisher import ControllerConfig, check_plaintext, split_address
from dpu_app.service.spool import SpoolConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT_PREFIX = "PULSE_DPU_"
_ELSEWHERE = {f"{ENVIRONMENT_PREFIX}CONFIG"}
_MIB = 1 << 20


class ConfigError(Exception):
    """A setting that cannot be used; the message names it, where it stands, and what may stand there."""


def _setting(default: Any, key: str, help_text: str) -> Any:
    return field(default=default, metadata={"key": key, "help": help_text})


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """All settings; the key of each, as the file and the flags have it, is in its metadata."""

    interface: str = _setting("", "interface", "network interface to capture on, for example p0")
    machine: str = _setting("", "machine", "name of the machine; default: the host name")
    nic: str = _setting("", "nic", "name of the NIC; default: its RDMA device, else the interface")
    addresses: str = _setting(
        "", "addresses", "IP addresses of the NIC, with commas; default: the interface's"
    )
    mode: str = _setting("all", "capture.mode", "all packets, or steered: all but the middles of messages")
    rings: int = _setting(1, "capture.rings", "rings among which the kernel shares the packets")
    ring_mib: int = _setting(16, "capture.ring_mib", "memory of each ring, MiB")
    promiscuous: bool = _setting(True, "capture.promiscuous", "take packets to others' addresses too")
    outgoing: bool = _setting(True, "capture.outgoing", "take packets that this machine sends too")
    ptp4l: str = _setting("/var/run/ptp4l", "capture.ptp4l", "management socket of ptp4l; empty: never ask")
    interval_s: float = _setting(
        1.0, "meter.interval_s", "a frame for each interval of this length, 0.01 to 60"
    )
    window_us: int = _setting(8, "meter.window_us", "width of the windows of bytes and packets")
    max_flows: int = _setting(16_384, "meter.max_flows", "flows that are kept apart")
    controller: str = _setting("", "controller.address", "HOST or HOST:PORT; empty: keep frames, send none")
    server_name: str = _setting("", "controller.server_name", "name in its certificate; default: HOST")
    ca_file: str = _setting("", "controller.ca_file", "CA of its certificate; default: the system's")
    cert_file: str = _setting("", "controller.cert_file", "own certificate, PEM")
    key_file: str = _setting("", "controller.key_file", "key of the own certificate, PEM")
    plaintext: bool = _setting(False, "controller.plaintext", "no TLS; to addresses of this machine only")
    plaintext_to_network: bool = _setting(
        False,
        "controller.plaintext_to_network",
        "no TLS to other machines either: anybody may read and forge",
    )
    spool_directory: str = _setting("", "spool.directory", "where frames wait on disk; empty: in memory only")
    spool_memory_mib: int = _setting(16, "spool.memory_mib", "frames that wait in memory, MiB")
    spool_disk_mib: int = _setting(512, "spool.disk_mib", "frames that wait on disk, MiB")
    status_socket: str = _setting(
        "", "status.socket", "UNIX socket that tells status and metrics; empty: none"
    )
    log_level: str = _setting("info", "log.level", "debug, info, warning or error")

    @property
    def machine_name(self) -> str:
        """The machine's name, the host's unless it is set."""
        return self.machine or socket.gethostname().partition(".")[0]

    def capture(self) -> CaptureConfig:
        """Settings of the capture."""
        return CaptureConfig(
            self.interface,
            steered=self.mode == "steered",
            rings=self.rings,
            ring_bytes=self.ring_mib * _MIB,
            promiscuous=self.promiscuous,
            outgoing=self.outgoing,
        )

    def metering(self) -> MeteringConfig:
        """Settings of the meter."""
        return MeteringConfig(
            interval_ns=round(self.interval_s * 1e9),
            window_ns=self.window_us * 1000,
            max_flows=self.max_flows,
            silent_frames=True,
        )

    def spool(self) -> SpoolConfig:
        """Settings of the spool."""
        directory = Path(self.spool_directory) if self.spool_directory else None
        return SpoolConfig(directory, self.spool_memory_mib * _MIB, self.spool_disk_mib * _MIB)

    def publishing(self) -> ControllerConfig | None:
        """Settings of the connection; None without a controller."""
        if not self.controller:
            return None
        return ControllerConfig(
            address=self.controller,
            server_name=self.server_name or None,
            ca_file=Path(self.ca_file) if self.ca_file else None,
            cert_file=Path(self.cert_file) if self.cert_file else None,
            key_file=Path(self.key_file) if self.key_file else None,
            plaintext=self.plaintext or self.plaintext_to_network,
            plaintext_to_network=self.plaintext_to_network,
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as users see it."""

    name: str
    key: str
    kind: type
    default: Any
    help: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return ENVIRONMENT_PREFIX + self.key.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + self.key.replace(".", "-").replace("_", "-")


SETTINGS = tuple(
    Setting(each.name, each.metadata["key"], type(each.default), each.default, each.metadata["help"])
    for each in fields(ServiceConfig)
)
_BY_KEY = {setting.key: setting for setting in SETTINGS}


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> ServiceConfig:
    """Return the settings; `flags` go by key. Raises ConfigError."""
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in _ELSEWHERE:
            setting = by_variable.get(variable) or _unknown(variable, by_variable, "the environment")
            values[setting.name] = _from_text(setting, text, f"environment variable {variable}")
    for key, text in flags.items():
        setting = _BY_KEY[key]
        values[setting.name] = _from_text(setting, text, f"flag {setting.flag}")
    config = ServiceConfig(**values)
    _check(config)
    return config


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the settings {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the settings {file} are no TOML: {error}") from error
    values: dict[str, Any] = {}
    for key, value in _flattened(content, ""):
        setting = _BY_KEY.get(key) or _unknown(key, _BY_KEY, str(file))
        if setting.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not setting.kind:
            raise ConfigError(f"{file}: {key} is {value!r}; it must be {_KINDS[setting.kind]}")
        values[setting.name] = value
    return values


def _flattened(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        found += (
            _flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
        )
    return found


_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def _from_text(setting: Setting, text: str, where: str) -> Any:
    readers: dict[type, Callable[[str], Any]] = {
        str: str,
        int: int,
        float: float,
        bool: lambda truth: _TRUTHS[truth.lower()],
    }
    try:
        return readers[setting.kind](text)
    except (ValueError, KeyError):
        raise ConfigError(f"{where} is {text!r}; it must be {_KINDS[setting.kind]}") from None


def _unknown(name: str, known: Mapping[str, Setting], where: str) -> Setting:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    raise ConfigError(f"{where}: there is no setting {name}" + (f"; did you mean {near[0]}?" if near else ""))


_RANGES: Mapping[str, tuple[float, float]] = {
    "rings": (1, 64),
    "ring_mib": (1, 4096),
    "interval_s": (0.01, 60),
    "window_us": (1, 64),
    "max_flows": (1, 1 << 20),
    "spool_memory_mib": (1, 4096),
    "spool_disk_mib": (1, 1 << 20),
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("all", "steered"),
    "log_level": ("debug", "info", "warning", "error"),
}


def _check(config: ServiceConfig) -> None:
    for setting in SETTINGS:
        value = getattr(config, setting.name)
        if setting.name in _RANGES:
            least, most = _RANGES[setting.name]
            if not least <= value <= most:
                raise ConfigError(f"{setting.key} is {value}; it must be {least:g} to {most:g}")
        if setting.name in _CHOICES and value not in _CHOICES[setting.name]:
            raise ConfigError(
                f"{setting.key} is {value!r}; it must be one of {', '.join(_CHOICES[setting.name])}"
            )
    if not config.interface:
        raise ConfigError(
            "there is no interface: set it in the file, as PULSE_DPU_INTERFACE or by --interface"
        )
    _check_controller(config)


def _check_controller(config: ServiceConfig) -> None:
    controller = config.publishing()
    if controller is None:
        return
    try:
        split_address(controller.address)
    except ValueError as error:
        raise ConfigError(f"controller.address: {error}") from error
    if controller.plaintext:
        try:
            check_plaintext(controller)
        except ValueError as error:
            raise ConfigError(f"controller.plaintext: {error}") from error
    elif controller.cert_file is None:
        raise ConfigError(
            "the controller asks for a certificate: set controller.cert_file and controller.key_file"
        )
