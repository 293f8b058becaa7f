# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses as plain data for JSON, and back."""

from __future__ import annotations

import json
import types
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_Made = TypeVar("_Made")
_UNIONS = (Union, types.UnionType)


def to_json(value: Any) -> str:
    """Return dataclasses, or what consists of them, as JSON on one line."""
    return json.dumps(value, default=asdict, separators=(",", ":"), allow_nan=False)


def build(kind: type[_Made], plain: Any) -> _Made:
    """Return what `to_json` has written. Raises TypeError, KeyError or ValueError otherwise."""
    made: _Made = _built(kind, plain)
    return made


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    found = get_type_hints(kind)
    return {each.name: found[each.name] for each in fields(kind)}


def _built(kind: Any, plain: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        return kind(**{name: _built(hint, plain[name]) for name, hint in hints_of(kind).items()})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        chosen = next(each for each in arguments if each is not type(None))
        return None if plain is None else _built(chosen, plain)
    if origin in (tuple, list):
        return origin(_built(arguments[0], each) for each in plain)
    if origin is Literal:
        if plain not in arguments:
            raise ValueError(f"{plain!r} is none of {arguments}")
        return plain
    if kind is float and type(plain) is int:
        return float(plain)
    if not isinstance(plain, kind):
        raise TypeError(f"{plain!r} is no {kind.__name__}")
    return plain
