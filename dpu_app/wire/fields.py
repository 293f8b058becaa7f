# SPDX-License-Identifier: Apache-2.0
"""Reads the fields of a decoded msgpack map that nobody vouches for."""

from __future__ import annotations

from collections.abc import Mapping

from dpu_app.wire.errors import FrameFormatError

MAX_TEXT = 256


class FieldReader:
    """Typed access to the fields of a frame; every method raises FrameFormatError, naming the field."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def _get(self, name: str) -> object:
        if name not in self._fields:
            raise FrameFormatError(f"field {name} is missing")
        return self._fields[name]

    def has(self, name: str) -> bool:
        """Tell whether the field is there and not nil."""
        return self._fields.get(name) is not None

    def text(self, name: str) -> str:
        """Return a string of at most `MAX_TEXT` characters."""
        return self.as_text(name, self._get(name))

    def integer(self, name: str, *, signed: bool = False) -> int:
        """Return an integer within 64 bits, not negative unless `signed`."""
        return self.as_integer(name, self._get(name), signed=signed)

    def boolean(self, name: str) -> bool:
        """Return a truth value."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise FrameFormatError(f"field {name} is no truth value")
        return value

    def array(self, name: str, least: int, most: int) -> list[object]:
        """Return an array of `least` to `most` elements."""
        return self.as_array(name, self._get(name), least, most)

    def mapping(self, name: str, most: int) -> dict[str, object]:
        """Return a map of at most `most` entries with text keys."""
        value = self._get(name)
        if not isinstance(value, dict) or len(value) > most:
            raise FrameFormatError(f"field {name} is no map of at most {most} entries")
        return {self.as_text(name, key): element for key, element in value.items()}

    def counts(self, name: str, most: int) -> dict[str, int]:
        """Return a map of names to counts."""
        return {key: self.as_integer(name, value) for key, value in self.mapping(name, most).items()}

    @staticmethod
    def as_text(name: str, value: object) -> str:
        """Return `value`, found in field `name`, as a string."""
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise FrameFormatError(
                f"field {name} holds something other than text of at most {MAX_TEXT} characters"
            )
        return value

    @staticmethod
    def as_integer(name: str, value: object, *, signed: bool = False) -> int:
        """Return `value`, found in field `name`, as an integer."""
        least, most = (-(2**63), 2**63 - 1) if signed else (0, 2**64 - 1)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise FrameFormatError(
                f"field {name} holds something other than an integer from {least} to {most}"
            )
        return value

    @staticmethod
    def as_array(name: str, value: object, least: int, most: int) -> list[object]:
        """Return `value`, found in field `name`, as a list."""
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise FrameFormatError(f"field {name} holds something other than {least} to {most} elements")
        return value
