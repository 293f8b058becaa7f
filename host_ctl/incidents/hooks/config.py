# SPDX-License-Identifier: Apache-2.0
"""Settings of a hook: whom to tell, how, and of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpu_app.settings import Catalogue, SettingsError, setting, settings_of
from host_ctl.diagnose.verdict import Severity
from host_ctl.errors import UsageError
from host_ctl.incidents.records import Incident

_KINDS = ("alertmanager", "webhook", "command", "syslog")
_SEVERITIES: tuple[Severity, ...] = ("notice", "fail_slow", "fail_stop")
_FACILITIES = ("daemon", "user", *(f"local{number}" for number in range(8)))
MOST_HOOKS = 16


@dataclass(frozen=True, slots=True)
class HookConfig:
    """One hook; its keys stand in a table of `[[hooks]]`."""

    name: str = setting("", "name", "how log, metrics and API call it")
    kind: str = setting("", "kind", ", ".join(_KINDS), choices=_KINDS)
    severity: str = setting("fail_slow", "severity", "the least that is told", choices=_SEVERITIES)
    updates: bool = setting(True, "updates", "tell also what changes while an incident is open")
    repeat_s: float = setting(
        0.0, "repeat_s", "tell open incidents again after; 0: never, for Alertmanager 60", 0, 86400
    )
    timeout_s: float = setting(10.0, "timeout_s", "time for one attempt", 0.1, 600)
    give_up_s: float = setting(86400.0, "give_up_s", "for how long failed attempts are repeated", 1, 604800)
    queue: int = setting(1000, "queue", "most that waits; the oldest goes", 1, 100_000)
    url: str = setting("", "url", "where to post; of Alertmanager without /api/v2/alerts")
    headers_file: str = setting(
        "", "headers_file", "file of lines NAME: VALUE that are sent along, as tokens are"
    )
    ca_file: str = setting("", "ca_file", "CA of the receiver's certificate; default: the system's")
    cert_file: str = setting("", "cert_file", "own certificate for the receiver, PEM")
    key_file: str = setting("", "key_file", "key of the own certificate, PEM")
    command: tuple[str, ...] = setting((), "command", "program and arguments; gets the JSON on its input")
    address: str = setting("", "address", "udp:HOST:PORT, tcp:HOST:PORT or unix:PATH of a syslog server")
    facility: str = setting("daemon", "facility", "syslog facility", choices=_FACILITIES)

    @property
    def keeps_state(self) -> bool:
        """Whether the receiver forgets what it is not told again."""
        return self.kind == "alertmanager"

    @property
    def repeats_s(self) -> float:
        """After what time an open incident is told again; 0 for never."""
        return self.repeat_s or (60.0 if self.keeps_state else 0.0)

    def wants(self, incident: Incident) -> bool:
        """Whether it is to be told of an incident."""
        return _SEVERITIES.index(incident.identity.severity) >= _SEVERITIES.index(self.severity)


SETTINGS = settings_of(HookConfig)
_CATALOGUE = Catalogue(SETTINGS, "")
_ONLY_FOR = {
    "url": ("alertmanager", "webhook"),
    "headers_file": ("alertmanager", "webhook"),
    "ca_file": ("alertmanager", "webhook"),
    "cert_file": ("alertmanager", "webhook"),
    "key_file": ("alertmanager", "webhook"),
    "command": ("command",),
    "address": ("syslog",),
}
_NEEDED = {"alertmanager": "url", "webhook": "url", "command": "command", "syslog": "address"}


def read_hooks(tables: Any, where: str) -> tuple[HookConfig, ...]:
    """Return the hooks that `[[hooks]]` of a file names. Raises UsageError."""
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise UsageError(f"{where}: hooks are tables [[hooks]]")
    hooks = tuple(_hook(table, f"{where}: hook {number}") for number, table in enumerate(tables, 1))
    _check_names(hooks, where)
    return hooks


def split_syslog_address(address: str) -> tuple[str, str, int]:
    """Return kind, host or path, and port of a syslog server's address. Raises ValueError."""
    kind, _, rest = address.partition(":")
    if kind == "unix" and rest:
        return kind, rest, 0
    host, colon, port = rest.rpartition(":")
    if (
        kind not in ("udp", "tcp")
        or not colon
        or not host
        or not port.isdecimal()
        or not 0 < int(port) < 65536
    ):
        raise ValueError(f"{address!r} is not udp:HOST:PORT, tcp:HOST:PORT or unix:PATH")
    return kind, host.strip("[]"), int(port)


def _hook(table: Mapping[str, Any], where: str) -> HookConfig:
    try:
        hook = HookConfig(**_CATALOGUE.from_table(table, where))
        if not hook.name:
            raise SettingsError(f"{where}: name is not set")
        where = f"{where} ({hook.name}): "
        _CATALOGUE.check(hook, where)
        _check(hook, where)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    return hook


def _check(hook: HookConfig, where: str) -> None:
    needed = _NEEDED[hook.kind]
    if not getattr(hook, needed):
        raise SettingsError(f"{where}a hook of kind {hook.kind} needs {needed}")
    for key, kinds in _ONLY_FOR.items():
        if getattr(hook, key) and hook.kind not in kinds:
            raise SettingsError(f"{where}{key} is of hooks of kind {' and '.join(kinds)}")
    if hook.kind == "syslog":
        try:
            split_syslog_address(hook.address)
        except ValueError as error:
            raise SettingsError(f"{where}address {error}") from error
    if hook.url:
        _check_url(hook, where)
    for key in ("headers_file", "ca_file", "cert_file", "key_file"):
        if getattr(hook, key) and not Path(getattr(hook, key)).is_file():
            raise SettingsError(f"{where}{key} {getattr(hook, key)} is no file")


def _check_url(hook: HookConfig, where: str) -> None:
    try:
        parts = urlsplit(hook.url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"{where}url is {hook.url!r}; it must be http://HOST:PORT/PATH or https://...")
    if parts.username or parts.password:
        raise SettingsError(f"{where}url holds a password: put the header Authorization into headers_file")
    if parts.scheme == "http" and (hook.ca_file or hook.cert_file):
        raise SettingsError(f"{where}certificates are set, but url is no https://")
    if bool(hook.cert_file) != bool(hook.key_file):
        raise SettingsError(f"{where}cert_file and key_file belong together")


def _check_names(hooks: Sequence[HookConfig], where: str) -> None:
    names = [hook.name for hook in hooks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{where}: two hooks are called {twice[0]}")
    if len(hooks) > MOST_HOOKS:
        raise UsageError(f"{where}: there are {len(hooks)} hooks; {MOST_HOOKS} at most")
