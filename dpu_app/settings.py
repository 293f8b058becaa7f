# SPDX-License-Identifier: Apache-2.0
"""Settings of a program: a flag wins over the environment, that over the file, that over the default.

They are the fields of a dataclass made by `setting`; a `Catalogue` of them reads and checks values.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts",
}
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


class SettingsError(Exception):
    """A setting that cannot be used; the message names it, where it stands, and what may stand there."""


def setting(
    default: Any, key: str, help_text: str, least: float = 0, most: float = 0, choices: tuple[str, ...] = ()
) -> Any:
    """Make a field of a dataclass a setting; a `most` of 0 bounds nothing."""
    metadata = {"key": key, "help": help_text, "least": least, "most": most or None, "choices": choices}
    return field(default=default, metadata=metadata)


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
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    def taken(self, value: Any, where: str) -> Any:
        """Return a value out of a file. Raises SettingsError."""
        if self.kind is float and type(value) is int:
            value = float(value)
        if self.kind is tuple and type(value) is list and all(type(each) is str for each in value):
            value = tuple(value)
        if type(value) is not self.kind:
            raise SettingsError(f"{where}: {self.key} is {value!r}; it must be {_KINDS[self.kind]}")
        return value

    def read(self, text: str, where: str) -> Any:
        """Return the value of a text. Raises SettingsError."""
        readers: dict[type, Callable[[str], Any]] = {
            str: str,
            int: int,
            float: float,
            bool: lambda truth: _TRUTHS[truth.lower()],
        }
        try:
            return readers[self.kind](text)
        except (ValueError, KeyError):
            raise SettingsError(f"{where} is {text!r}; it must be {_KINDS[self.kind]}") from None

    def check(self, value: Any, where: str = "") -> None:
        """Raise SettingsError when the value is out of its range."""
        if self.most is not None and not self.least <= value <= self.most:
            raise SettingsError(f"{where}{self.key} is {value}; it must be {self.least:g} to {self.most:g}")
        if self.choices and value not in self.choices:
            raise SettingsError(
                f"{where}{self.key} is {value!r}; it must be one of {', '.join(self.choices)}"
            )


def settings_of(kind: type) -> tuple[Setting, ...]:
    """The settings among the fields of a dataclass."""
    return tuple(
        Setting(each.name, each.metadata["key"], type(each.default), each.default, each.metadata["help"],
                each.metadata["least"], each.metadata["most"], each.metadata["choices"])
        for each in fields(kind)
        if each.metadata
    )  # fmt: skip


class Catalogue:
    """The settings of a program; its environment variables are `prefix` and the key."""

    def __init__(self, settings: Iterable[Setting], prefix: str, elsewhere: Collection[str] = ()) -> None:
        self.settings = tuple(settings)
        self._by_key = {each.key: each for each in self.settings}
        self._prefix = prefix
        self._elsewhere = {f"{prefix}{name}" for name in elsewhere}
        self._by_variable = {prefix + each.key.replace(".", "_").upper(): each for each in self.settings}

    def from_table(self, content: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the values, by field, of what a file says. Raises SettingsError."""
        values: dict[str, Any] = {}
        for key, value in _flattened(content, ""):
            found = _known(key, self._by_key, where)
            values[found.name] = found.taken(value, where)
        return values

    def from_environment(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of variables with the prefix. Raises SettingsError."""
        values: dict[str, Any] = {}
        for variable, text in environment.items():
            if variable.startswith(self._prefix) and variable not in self._elsewhere:
                found = _known(variable, self._by_variable, "the environment")
                values[found.name] = found.read(text, f"environment variable {variable}")
        return values

    def from_text(self, key: str, text: str, where: str) -> dict[str, Any]:
        """Return the value of one setting that a flag gives as text. Raises SettingsError."""
        found = _known(key, self._by_key, where)
        return {found.name: found.read(text, where)}

    def check(self, values: object, where: str = "") -> None:
        """Raise SettingsError when a field of the dataclass is out of its range."""
        for each in self.settings:
            each.check(getattr(values, each.name), where)


def read_table(file: Path) -> dict[str, Any]:
    """Return what a TOML file says. Raises SettingsError."""
    try:
        content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"the settings {file} are no TOML: {error}") from error
    return content


def _known(name: str, known: Mapping[str, Setting], where: str) -> Setting:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    asked = f"; did you mean {near[0]}?" if near else ""
    raise SettingsError(f"{where}: there is no setting {name}{asked}")


def _flattened(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
