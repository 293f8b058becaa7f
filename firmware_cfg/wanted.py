# SPDX-License-Identifier: Apache-2.0
"""What is wanted of a card's firmware, read from `settings.toml` and checked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "pulse.firmware/1"
DEFAULT_FILE = Path(__file__).with_name("settings.toml")
_TEXTS = ("key", "compare", "need", "reason", "cost", "source")
_OPTIONAL = {"name": str, "feature": str, "if_known": bool}


class SettingsError(Exception):
    """A settings file that cannot be used; the message names the entry and what must change."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One wanted value, as the file has it."""

    key: str
    value: int
    compare: str
    need: str
    reason: str
    cost: str
    source: str
    name: str = ""
    feature: str = ""
    if_known: bool = False

    def accepts(self, number: int | None, text: str) -> bool:
        """Return whether a card's value is right; `number` is None where the tool prints a name alone."""
        if number is None:
            return bool(self.name) and text.casefold() == self.name.casefold()
        return number >= self.value if self.compare == "at_least" else number == self.value


@dataclass(frozen=True, slots=True)
class Watched:
    """A parameter that is shown and never set."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The whole file."""

    settings: tuple[Setting, ...]
    watched: tuple[Watched, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names that `--with` takes."""
        return tuple(sorted({setting.feature for setting in self.settings if setting.feature}))

    def chosen(self, features: Iterable[str]) -> tuple[Setting, ...]:
        """Return the core settings and those of `features`. Raises SettingsError for an unknown one."""
        asked = set(features)
        unknown = sorted(asked - set(self.features))
        if unknown:
            raise SettingsError(
                f"no setting belongs to feature {unknown[0]!r}; there are: {', '.join(self.features) or '-'}"
            )
        return tuple(s for s in self.settings if s.need == "core" or s.feature in asked)


def load_wanted(file: Path = DEFAULT_FILE) -> Wanted:
    """Read the settings file. Raises SettingsError."""
    content = _parsed(file)
    if content.get("schema") != SCHEMA:
        raise SettingsError(f"{file}: schema is {content.get('schema')!r}; this program reads {SCHEMA!r}")
    settings = tuple(_setting(entry, file) for entry in _entries(content, "setting", file))
    watched = tuple(_watched(entry, file) for entry in _entries(content, "watched", file))
    keys = [setting.key for setting in settings] + [entry.key for entry in watched]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise SettingsError(f"{file}: {twice[0]} is there twice; keep one entry")
    if not settings:
        raise SettingsError(f"{file}: there is no [[setting]]")
    return Wanted(settings, watched)


def _parsed(file: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise SettingsError(
                "Python below 3.11 reads TOML with the package tomli, which is missing: "
                "apt install python3-tomli, or pip install tomli"
            ) from error
    try:
        content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings {file} are no TOML: {error}") from error
    return content


def _entries(content: Mapping[str, Any], table: str, file: Path) -> list[dict[str, Any]]:
    entries = content.get(table, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError(f"{file}: {table} must be written as [[{table}]]")
    return entries


def _setting(entry: dict[str, Any], file: Path) -> Setting:
    where = f"{file}: setting {entry.get('key', '(without key)')}"
    for field in _TEXTS:
        if not isinstance(entry.get(field), str) or not entry[field]:
            raise SettingsError(f"{where}: {field} must be there and be text")
    if type(entry.get("value")) is not int or entry["value"] < 0:
        raise SettingsError(f"{where}: value must be a whole number from 0 on")
    for field, kind in _OPTIONAL.items():
        if field in entry and type(entry[field]) is not kind:
            raise SettingsError(f"{where}: {field} must be {'true or false' if kind is bool else 'text'}")
    unknown = sorted(set(entry) - set(_TEXTS) - set(_OPTIONAL) - {"value"})
    if unknown:
        raise SettingsError(f"{where}: there is no field {unknown[0]!r}")
    if entry["compare"] not in ("equal", "at_least"):
        raise SettingsError(f"{where}: compare is {entry['compare']!r}; it must be 'equal' or 'at_least'")
    if entry["need"] not in ("core", "optional"):
        raise SettingsError(f"{where}: need is {entry['need']!r}; it must be 'core' or 'optional'")
    if (entry["need"] == "optional") != bool(entry.get("feature")):
        raise SettingsError(f"{where}: an optional setting names its feature, a core setting names none")
    return Setting(**entry)


def _watched(entry: dict[str, Any], file: Path) -> Watched:
    if set(entry) != {"key", "reason"} or not all(isinstance(value, str) for value in entry.values()):
        raise SettingsError(f"{file}: a [[watched]] entry has a key and a reason, both text")
    return Watched(**entry)
