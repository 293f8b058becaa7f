# SPDX-License-Identifier: Apache-2.0
"""Settings of the controller: a flag wins over the environment, that over the file, that over the default."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpu_app.settings import Catalogue, SettingsError, read_table, setting, settings_of
from dpu_app.wire.frame import MAX_FRAME_BYTES
from dpu_app.wire.transport import DEFAULT_PORT
from host_ctl.api.server import ApiConfig, is_loopback
from host_ctl.errors import InputError, UsageError
from host_ctl.history.frames import HistoryConfig
from host_ctl.incidents.desk import DeskConfig
from host_ctl.incidents.hooks.config import HookConfig, read_hooks
from host_ctl.incidents.tracker import Persistence
from host_ctl.ingest.limits import IngestLimits
from host_ctl.ingest.server import Listen
from host_ctl.ingest.tls import TlsFiles
from host_ctl.live.limits import LiveLimits, WindowLimits, WorkerOrder

PREFIX = "PULSE_CONTROLLER_"
_EVERYWHERE = ("", "::", "0.0.0.0")  # noqa: S104  recognised, not listened on
_LEVELS = ("debug", "info", "warning", "error")
_MIB, _GIB = 1 << 20, 1 << 30
_HELD_WINDOWS = 4  # of the largest: frames are only pointed to until a window opens them


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """All settings; the key of each, as files and flags have it, is in its metadata."""

    address: str = setting(
        f"127.0.0.1:{DEFAULT_PORT}", "listen.address", "HOST:PORT for DPUs; [::]:PORT or 0.0.0.0:PORT for all"
    )
    plaintext: bool = setting(False, "listen.plaintext", "no TLS; only on an address of this machine alone")
    plaintext_to_network: bool = setting(
        False, "listen.plaintext_to_network", "no TLS on any address: anybody may read and forge"
    )
    ca_file: str = setting("", "tls.ca_file", "CA of the DPUs' certificates, PEM")
    cert_file: str = setting("", "tls.cert_file", "own certificate, PEM")
    key_file: str = setting("", "tls.key_file", "key of the own certificate, PEM")
    reload_s: float = setting(
        10.0, "tls.reload_s", "how often changed certificates are looked for", 0.1, 86400
    )
    connections: int = setting(1024, "limits.connections", "connections at a time", 1, 65536)
    connections_per_machine: int = setting(
        32, "limits.connections_per_machine", "connections of one machine at a time", 1, 4096
    )
    handshakes: int = setting(
        256, "limits.handshakes", "TLS handshakes at a time; the oldest gives way", 1, 65536
    )
    handshake_s: float = setting(
        10.0, "limits.handshake_s", "time for a handshake, and for a greeting", 0.1, 300
    )
    message_s: float = setting(
        30.0, "limits.message_s", "time in which a message must arrive whole", 0.1, 3600
    )
    silence_s: float = setting(15.0, "limits.silence_s", "silence after which a connection ends", 1, 3600)
    nics_per_machine: int = setting(64, "limits.nics_per_machine", "NICs that a machine may have", 1, 1024)
    frame_mib: int = setting(16, "limits.frame_mib", "largest frame, MiB", 1, MAX_FRAME_BYTES // _MIB)
    tables_mib: int = setting(256, "limits.tables_mib", "largest frame after decompression, MiB", 1, 4096)
    frames_per_s: float = setting(100.0, "limits.frames_per_s", "frames per second of one NIC", 1, 10000)
    mib_per_s: float = setting(32.0, "limits.mib_per_s", "MiB per second of one NIC", 0.1, 10000)
    pending_mib: int = setting(
        256, "limits.pending_mib", "frames in memory that wait for the disk, MiB", 1, 65536
    )
    history: str = setting("", "history.directory", "folder in which frames are kept")
    history_gib: float = setting(
        50.0, "history.max_gib", "most that is kept, GiB; the oldest goes", 0.001, 1e6
    )
    segment_mib: int = setting(64, "history.segment_mib", "size of the history's files, MiB", 1, 4096)
    gather_ms: float = setting(
        10.0, "history.gather_ms", "frames of that time are made durable together", 0, 40
    )
    analysis: bool = setting(True, "analysis.enabled", "analyse what comes in")
    every_s: float = setting(1.0, "analysis.every_s", "traffic between two looks, at least", 0.01, 3600)
    look_cpu_s: float = setting(
        3.0, "analysis.look_cpu_s", "processor time that a look may take; its window is as long", 0.1, 600
    )
    cpu_share: float = setting(
        1.0, "analysis.cpu_share", "of one processor that looks take in the long run", 0.01, 1
    )
    iterations: int = setting(60, "analysis.iterations", "iterations that a look wants to see", 12, 1000)
    least_iterations: int = setting(
        8, "analysis.least_iterations", "iterations that it needs, whatever they cost", 6, 100
    )
    window_s: float = setting(1800.0, "analysis.window_s", "longest time that a look covers", 1, 86400)
    window_mib: int = setting(128, "analysis.window_mib", "most frames that a look covers, MiB", 1, 4096)
    deadline_s: float = setting(
        3.0, "analysis.deadline_s", "how long an interval waits for frames that are late", 0.1, 300
    )
    open_looks: int = setting(
        3, "incidents.open_looks", "a slowness opens an incident when it was seen in so many looks", 1, 100
    )
    open_of: int = setting(5, "incidents.open_of", "of so many last looks", 1, 100)
    open_iterations: int = setting(
        20,
        "incidents.open_iterations",
        "or in two in a row with so many iterations between; 0: never",
        0,
        10_000,
    )
    stop_looks: int = setting(
        2, "incidents.stop_looks", "a stop opens one when it was seen in so many looks", 1, 100
    )
    stop_of: int = setting(3, "incidents.stop_of", "of so many last looks", 1, 100)
    end_looks: int = setting(
        5, "incidents.end_looks", "an incident ends when it was not seen in so many looks", 1, 10_000
    )
    end_s: float = setting(30.0, "incidents.end_s", "nor for so many seconds", 0, 86400)
    end_iterations: int = setting(
        20, "incidents.end_iterations", "nor for so many iterations of its job", 0, 10_000
    )
    reopen_s: float = setting(
        300.0, "incidents.reopen_s", "what comes back within so many seconds is the same incident", 0, 604800
    )
    gone_s: float = setting(
        600.0, "incidents.gone_s", "incidents of a job that is not there end after so many seconds", 1, 604800
    )
    keep_days: float = setting(
        365.0, "incidents.keep_days", "ended incidents are kept for so many days", 1, 36500
    )
    api_address: str = setting(
        "127.0.0.1:7472", "api.address", "HOST:PORT of API, health and metrics; empty: none"
    )
    api_url: str = setting("", "api.url", "how people reach it, for links; default: by the address")
    api_token_file: str = setting("", "api.token_file", "file with the token that clients must send")
    api_cert_file: str = setting(
        "", "api.cert_file", "certificate of the API; default: that of tls, for other addresses than loopback"
    )
    api_key_file: str = setting("", "api.key_file", "its key")
    api_client_ca_file: str = setting("", "api.client_ca_file", "CA of certificates that clients must have")
    api_streams: int = setting(32, "api.streams", "readers of the event stream at a time", 1, 1024)
    hooks: tuple[HookConfig, ...] = ()
    log_level: str = setting("info", "log.level", "debug, info, warning or error", choices=_LEVELS)
    log_json: bool = setting(False, "log.json", "log lines as JSON objects")

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

    def api(self) -> ApiConfig | None:
        """Where the API is; None for nowhere. Raises UsageError."""
        if not self.api_address:
            return None
        host, port = split_address("api.address", self.api_address)
        config = ApiConfig(
            host,
            port,
            self.api_link(),
            self.api_streams,
            token_file=_path(self.api_token_file),
            cert_file=_path(self.api_cert_file),
            key_file=_path(self.api_key_file),
            client_ca_file=_path(self.api_client_ca_file),
        )
        own = config.cert_file is not None or config.key_file is not None
        if not own and (not config.is_local or config.client_ca_file is not None):
            config = replace(config, cert_file=_path(self.cert_file), key_file=_path(self.key_file))
        config.check()
        return config

    def api_link(self) -> str:
        """How people reach the API, as far as the settings tell. Raises UsageError."""
        if self.api_url or not self.api_address:
            return self.api_url or "http://localhost"
        host, port = split_address("api.address", self.api_address)
        scheme = "https" if self.api_cert_file or self.api_client_ca_file or not is_loopback(host) else "http"
        name = socket.gethostname() if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
        return f"{scheme}://{name}:{port}"

    def incidents(self) -> DeskConfig:
        """When incidents open and end, and who is told. Raises UsageError."""
        persistence = Persistence(
            open_looks=self.open_looks,
            open_of=self.open_of,
            open_iterations=self.open_iterations,
            stop_looks=self.stop_looks,
            stop_of=self.stop_of,
            end_looks=self.end_looks,
            end_s=self.end_s,
            end_iterations=self.end_iterations,
            reopen_s=self.reopen_s,
            gone_s=self.gone_s,
        )
        for least, of in (("open_looks", "open_of"), ("stop_looks", "stop_of")):
            if getattr(self, least) > getattr(self, of):
                raise UsageError(f"incidents.{least} is more than incidents.{of}: none would ever open")
        return DeskConfig(Path(self.history), persistence, self.keep_days, self.hooks, self.api_link())


SETTINGS = settings_of(ControllerSettings)
_CATALOGUE = Catalogue(SETTINGS, PREFIX, elsewhere=("CONFIG",))


def load_settings(
    file: Path | None, environment: Mapping[str, str], flags: Sequence[str]
) -> ControllerSettings:
    """Return the settings; `flags` are texts KEY=VALUE. Raises UsageError or InputError, naming it."""
    try:
        content = {} if file is None else read_table(file)
    except SettingsError as error:
        raise InputError(str(error)) from error
    try:
        hooks = read_hooks(content.pop("hooks", []), str(file))
        values: dict[str, Any] = {"hooks": hooks}
        values |= _CATALOGUE.from_table(content, str(file)) | _CATALOGUE.from_environment(environment)
        for flag in flags:
            key, equals, text = flag.partition("=")
            if not equals:
                raise UsageError(f"--set {flag}: expected KEY=VALUE")
            values |= _CATALOGUE.from_text(key, text, f"--set {key}")
        settings = ControllerSettings(**values)
        _CATALOGUE.check(settings)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    if not settings.history:
        raise UsageError("history.directory is not set: name the folder in which frames are to be kept")
    settings.listen().check()
    settings.tls()
    settings.api()
    settings.incidents()
    return settings


def split_address(key: str, address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [IPV6]:PORT; an empty host means all. Raises UsageError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and host[0] + host[-1] != "[]"):
        raise UsageError(f"{key} is {address!r}; it must be HOST:PORT or [IPV6]:PORT")
    return host.strip("[]"), int(port)


def _path(name: str) -> Path | None:
    return Path(name) if name else None
