# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of dataclasses, and dataclasses out of what a request says, by the same types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from host_ctl.api.errors import ApiError
from host_ctl.incidents.plain import build, hints_of

Schema = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Any: {},
}
_UNIONS = (Union, UnionType)
# Of a field's metadata what a schema may say.
_KEYWORDS = ("description", "minimum", "maximum", "minLength", "maxLength", "pattern")


def about(description: str, default: Any = MISSING, **keywords: Any) -> Any:
    """Make a field that says more than its type."""
    metadata = {"description": description} | keywords
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


class Components:
    """The schemas that a document refers to by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type; dataclasses become components."""
        if is_dataclass(kind) and isinstance(kind, type):
            return self._component(kind)
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in _UNIONS:
            chosen = [self.of(each) for each in arguments if each is not type(None)]
            return {"anyOf": [*chosen, {"type": "null"}]} if type(None) in arguments else {"anyOf": chosen}
        if origin is tuple:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is Literal:
            return {"type": "string", "enum": list(arguments)}
        raise TypeError(f"there is no schema of {kind}")

    def _component(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.schemas:
            self.schemas[name] = {}
            described = {each.name: each for each in fields(kind)}
            self.schemas[name] = {
                "type": "object",
                "description": " ".join((kind.__doc__ or "").replace("``", "").split()),
                "properties": {
                    key: self.of(hint) | keywords_of(described[key]) for key, hint in hints_of(kind).items()
                },
                "required": [key for key, each in described.items() if each.default is MISSING],
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}


def keywords_of(described: Field[Any]) -> Schema:
    """What a field says beyond its type."""
    return {key: described.metadata[key] for key in _KEYWORDS if key in described.metadata}


def read_body(kind: type, body: bytes) -> Any:
    """Return the dataclass that JSON describes. Raises ApiError."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "the body is no JSON") from error
    if not isinstance(plain, dict):
        raise ApiError(400, "the body must be a JSON object")
    return _made(kind, plain, "")


def read_query(kind: type, query: Mapping[str, str]) -> Any:
    """Return the dataclass whose fields a query string names. Raises ApiError."""
    hints = hints_of(kind)
    plain: dict[str, Any] = {}
    for key, text in query.items():
        if key not in hints:
            raise ApiError(400, f"there is no parameter {key}; there are {', '.join(hints)}")
        plain[key] = text
        if int in (hints[key], *get_args(hints[key])):
            if not text.removeprefix("-").isdecimal() or len(text) > 20:
                raise ApiError(400, f"{key} is {text!r}; it must be a whole number")
            plain[key] = int(text)
    return _made(kind, plain, "parameter ")


def _made(kind: type, plain: dict[str, Any], what: str) -> Any:
    known = {each.name: each for each in fields(kind)}
    unknown = [key for key in plain if key not in known]
    if unknown:
        raise ApiError(400, f"there is no {what}{unknown[0]}; there are {', '.join(known)}")
    for name, each in known.items():
        if name not in plain:
            if each.default is MISSING:
                raise ApiError(400, f"{what}{name} is missing")
            plain[name] = each.default
        elif plain[name] is not None:
            _check(f"{what}{name}", plain[name], each)
    try:
        return build(kind, plain)
    except (TypeError, ValueError, KeyError) as error:
        raise ApiError(400, str(error)) from error


def _check(name: str, value: Any, described: Field[Any]) -> None:
    said = described.metadata
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and not said.get("minimum", value) <= value <= said.get("maximum", value):
        raise ApiError(400, f"{name} is {value}; it must be {said.get('minimum')} to {said.get('maximum')}")
    if isinstance(value, str) and not said.get("minLength", 0) <= len(value) <= said.get(
        "maxLength", len(value)
    ):
        raise ApiError(
            400, f"{name} must have {said.get('minLength', 0)} to {said.get('maxLength')} characters"
        )
