# SPDX-License-Identifier: Apache-2.0
"""Settings of the controller: a flag wins over the environment, that over the file, that over the default."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import tomllib

from dpu_app.wire.frame import MAX_FRAME_BYTES
from dpu_app.wire.transport import DEFAULT_PORT
from host_ctl.errors import InputError, UsageError
from host_ctl.history.frames import HistoryConfig
from host_ctl.ingest.limits import IngestLimits
from host_ctl.ingest.server import Listen
from host_ctl.ingest.tls import TlsFiles
from host_ctl.live.limits import LiveLimits, WindowLimits, WorkerOrder

PREFIX = "PULSE_CONTROLLER_"
_ELSEWHERE = f"{PREFIX}CONFIG"
_MIB, _GIB = 1 << 20, 1 << 30
_HELD_WINDOWS = 4  # of the largest: frames are only pointed to until a window opens them


def _setting(default: Any, key: str, help_text: str, least: float = 0, most: float = 0) -> Any:
    return field(
        default=default, metadata={"key": key, "help": help_text, "least": least, "most": most or None}
    )


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """All settings; the key of each, as files and flags have it, is in its metadata."""

    address: str = _setting(
        f"127.0.0.1:{DEFAULT_PORT}", "listen.address", "HOST:PORT for DPUs; [::]:PORT or 0.0.0.0:PORT for all"
    )
    plaintext: bool = _setting(False, "listen.plaintext", "no TLS; only on an address of this machine alone")
    plaintext_to_network: bool = _setting(
        False, "listen.plaintext_to_network", "no TLS on any address: anybody may read and forge"
    )
    ca_file: str = _setting("", "tls.ca_file", "CA of the DPUs' certificates, PEM")
    cert_file: str = _setting("", "tls.cert_file", "own certificate, PEM")
    key_file: str = _setting("", "tls.key_file", "key of the own certificate, PEM")
    reload_s: float = _setting(
        10.0, "tls.reload_s", "how often changed certificates are looked for", 0.1, 86400
    )
    connections: int = _setting(1024, "limits.connections", "connections at a time", 1, 65536)
    connections_per_machine: int = _setting(
        32, "limits.connections_per_machine", "connections of one machine at a time", 1, 4096
    )
    handshakes: int = _setting(
        256, "limits.handshakes", "TLS handshakes at a time; the oldest gives way", 1, 65536
    )
    handshake_s: float = _setting(
        10.0, "limits.handshake_s", "time for a handshake, and for a greeting", 0.1, 300
    )
    message_s: float = _setting(
        30.0, "limits.message_s", "time in which a message must arrive whole", 0.1, 3600
    )
    silence_s: float = _setting(15.0, "limits.silence_s", "silence after which a connection ends", 1, 3600)
    nics_per_machine: int = _setting(64, "limits.nics_per_machine", "NICs that a machine may have", 1, 1024)
    frame_mib: int = _setting(16, "limits.frame_mib", "largest frame, MiB", 1, MAX_FRAME_BYTES // _MIB)
    tables_mib: int = _setting(256, "limits.tables_mib", "largest frame after decompression, MiB", 1, 4096)
    frames_per_s: float = _setting(100.0, "limits.frames_per_s", "frames per second of one NIC", 1, 10000)
    mib_per_s: float = _setting(32.0, "limits.mib_per_s", "MiB per second of one NIC", 0.1, 10000)
    pending_mib: int = _setting(
        256, "limits.pending_mib", "frames in memory that wait for the disk, MiB", 1, 65536
    )
    history: str = _setting("", "history.directory", "folder in which frames are kept")
    history_gib: float = _setting(
        50.0, "history.max_gib", "most that is kept, GiB; the oldest goes", 0.001, 1e6
    )
    segment_mib: int = _setting(64, "history.segment_mib", "size of the history's files, MiB", 1, 4096)
    gather_ms: float = _setting(
        10.0, "history.gather_ms", "frames of that time are made durable together", 0, 40
    )
    analysis: bool = _setting(True, "analysis.enabled", "analyse what comes in")
    every_s: float = _setting(1.0, "analysis.every_s", "traffic between two looks, at least", 0.01, 3600)
    look_cpu_s: float = _setting(
        3.0, "analysis.look_cpu_s", "processor time that a look may take; its window is as long", 0.1, 600
    )
    cpu_share: float = _setting(
        1.0, "analysis.cpu_share", "of one processor that looks take in the long run", 0.01, 1
    )
    iterations: int = _setting(60, "analysis.iterations", "iterations that a look wants to see", 12, 1000)
    least_iterations: int = _setting(
        8, "analysis.least_iterations", "iterations that it needs, whatever they cost", 6, 100
    )
    window_s: float = _setting(1800.0, "analysis.window_s", "longest time that a look covers", 1, 86400)
    window_mib: int = _setting(128, "analysis.window_mib", "most frames that a look covers, MiB", 1, 4096)
    deadline_s: float = _setting(
        3.0, "analysis.deadline_s", "how long an interval waits for frames that are late", 0.1, 300
    )
    status: str = _setting(
        "127.0.0.1:7472", "status.address", "HOST:PORT of health and metrics, this machine alone; empty: none"
    )
    log_level: str = _setting("info", "log.level", "debug, info, warning or error")
    log_json: bool = _setting(False, "log.json", "log lines as JSON objects")

    def listen(self) -> Listen:
        """Where to listen for DPUs. Raises UsageError."""
        host, port = split_address("listen.address", self.address)
        plain = self.plaintext or self.plaintext_to_network
        return Listen(host, port, plain, self.plaintext_to_network)

    def tls(self) -> TlsFiles | None:
        """Files of the certificates; None with plain text. Raises UsageError when some are missing."""
        if self.plaintext or self.plaintext_to_network:
            return None
        files = {"tls.ca_file": self.ca_file, "tls.cert_file": self.cert_file, "tls.key_file": self.key_file}
        missing = [key for key, value in files.items() if not value]
        if missing:
            raise UsageError(
                f"{missing[0]} is not set: pulse certs makes certificates, docs/controller.md how"
            )
        return TlsFiles(*(Path(value) for value in files.values()))

    def limits(self) -> IngestLimits:
        """What is taken from peers."""
        return IngestLimits(
            connections=self.connections,
            connections_per_machine=self.connections_per_machine,
            handshakes=self.handshakes,
            handshake_s=self.handshake_s,
            message_s=self.message_s,
            nics_per_machine=self.nics_per_machine,
            frame_bytes=self.frame_mib * _MIB,
            table_bytes=self.tables_mib * _MIB,
            frames_per_s=self.frames_per_s,
            bytes_per_s=self.mib_per_s * _MIB,
            pending_bytes=self.pending_mib * _MIB,
            silence_s=self.silence_s,
        )

    def keeping(self) -> HistoryConfig:
        """Where frames are kept."""
        return HistoryConfig(
            Path(self.history), round(self.history_gib * _GIB), round(self.segment_mib * _MIB)
        )

    def looking(self) -> WorkerOrder | None:
        """What live analysis is to do; None when nothing."""
        if not self.analysis:
            return None
        window = WindowLimits(
            self.iterations, self.least_iterations, round(self.window_s * 1e9), self.window_mib * _MIB
        )
        limits = LiveLimits(
            window=window,
            every_ns=round(self.every_s * 1e9),
            look_s=self.look_cpu_s,
            deadline_ns=round(self.deadline_s * 1e9),
            held_bytes=_HELD_WINDOWS * self.window_mib * _MIB,
        )
        return WorkerOrder(Path(self.history), limits, self.cpu_share)

    def status_address(self) -> tuple[str, int] | None:
        """Where health and metrics are told; None for nowhere. Raises UsageError."""
        if not self.status:
            return None
        host, port = split_address("status.address", self.status)
        if host != "localhost":
            try:
                local = ipaddress.ip_address(host).is_loopback
            except ValueError:
                local = False
            if not local:
                raise UsageError(
                    f"status.address {self.status}: only addresses of this machine alone may be told"
                )
        return host, port


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as users see it."""

    name: str
    key: str
    kind: type
    default: Any
    help: str
    least: float
    most: float | None

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.key.replace(".", "_").upper()


SETTINGS = tuple(
    Setting(each.name, each.metadata["key"], type(each.default), each.default, each.metadata["help"],
            each.metadata["least"], each.metadata["most"])
    for each in fields(ControllerSettings)
)  # fmt: skip
_BY_KEY = {setting.key: setting for setting in SETTINGS}
_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_LEVELS = ("debug", "info", "warning", "error")


def load_settings(
    file: Path | None, environment: Mapping[str, str], flags: Sequence[str]
) -> ControllerSettings:
    """Return the settings; `flags` are texts KEY=VALUE. Raises UsageError or InputError, naming it."""
    values: dict[str, Any] = {} if file is None else _from_file(file)
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != _ELSEWHERE:
            setting = by_variable.get(variable) or _unknown(variable, by_variable, "the environment")
            values[setting.name] = _from_text(setting, text, f"environment variable {variable}")
    for flag in flags:
        key, equals, text = flag.partition("=")
        if not equals:
            raise UsageError(f"--set {flag}: expected KEY=VALUE")
        setting = _BY_KEY.get(key) or _unknown(key, _BY_KEY, f"--set {flag}")
        values[setting.name] = _from_text(setting, text, f"--set {key}")
    settings = ControllerSettings(**values)
    _check(settings)
    return settings


def split_address(key: str, address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [IPV6]:PORT; an empty host means all. Raises UsageError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and host[0] + host[-1] != "[]"):
        raise UsageError(f"{key} is {address!r}; it must be HOST:PORT or [IPV6]:PORT")
    return host.strip("[]"), int(port)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the settings {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the settings {file} are no TOML: {error}") from error
    values: dict[str, Any] = {}
    for key, value in _flattened(content, ""):
        setting = _BY_KEY.get(key) or _unknown(key, _BY_KEY, str(file))
        if setting.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not setting.kind:
            raise UsageError(f"{file}: {key} is {value!r}; it must be {_KINDS[setting.kind]}")
        values[setting.name] = value
    return values


def _flattened(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = prefix + name
        found += _flattened(value, f"{key}.") if isinstance(value, dict) else [(key, value)]
    return found


def _from_text(setting: Setting, text: str, where: str) -> Any:
    readers: dict[type, Callable[[str], Any]] = {
        str: str, int: int, float: float, bool: lambda truth: _TRUTHS[truth.lower()]
    }  # fmt: skip
    try:
        return readers[setting.kind](text)
    except (ValueError, KeyError):
        raise UsageError(f"{where} is {text!r}; it must be {_KINDS[setting.kind]}") from None


def _unknown(name: str, known: Mapping[str, Setting], where: str) -> NoReturn:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    raise UsageError(f"{where}: there is no setting {name}" + (f"; did you mean {near[0]}?" if near else ""))


def _check(settings: ControllerSettings) -> None:
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        if setting.most is not None and not setting.least <= value <= setting.most:
            raise UsageError(f"{setting.key} is {value}; it must be {setting.least:g} to {setting.most:g}")
    if settings.log_level not in _LEVELS:
        raise UsageError(f"log.level is {settings.log_level!r}; it must be one of {', '.join(_LEVELS)}")
    if not settings.history:
        raise UsageError("history.directory is not set: name the folder in which frames are to be kept")
    settings.listen().check()
    settings.tls()
    settings.status_address()
