# SPDX-License-Identifier: Apache-2.0
"""The part of Helm's template language that the chart uses; anything else in a template is an error."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\|[ ]|\S+')


def render(template: str, values: dict[str, Any], release: str) -> str:
    """Render one template."""
    scope = {"Values": values, "Release": {"Name": release}}
    tokens: list[tuple[str, str]] = []
    at = 0
    strip_next = False
    for action in _ACTION.finditer(template):
        text = template[at : action.start()]
        if strip_next:
            text = text.lstrip()
        if action[1]:
            text = text.rstrip()
        tokens += [("text", text), ("action", action[2])]
        strip_next = bool(action[3])
        at = action.end()
    rest = template[at:]
    tokens.append(("text", rest.lstrip() if strip_next else rest))
    out: list[str] = []
    shown: list[bool] = []
    for kind, content in tokens:
        if kind == "action" and content.startswith("if "):
            shown.append(bool(_value(content[3:], scope)))
        elif kind == "action" and content == "else":
            shown[-1] = not shown[-1]
        elif kind == "action" and content == "end":
            shown.pop()
        elif all(shown):
            out.append(content if kind == "text" else str(_value(content, scope)))
    if shown:
        raise ValueError("an `if` has no `end`")
    return "".join(out)


def _value(expression: str, scope: dict[str, Any]) -> Any:
    first, *others = expression.split(" | ")
    value = _call(_WORD.findall(first), scope)
    for each in others:
        name, *arguments = each.split()
        if name == "quote" and not arguments:
            value = json.dumps(str(value))
        elif name == "nindent" and len(arguments) == 1:
            space = " " * int(arguments[0])
            value = "\n" + "\n".join(space + line if line else line for line in str(value).split("\n"))
        else:
            raise ValueError(f"the renderer knows no `| {each}`")
    return value


def _call(words: list[str], scope: dict[str, Any]) -> Any:
    if len(words) == 1:
        return _look_up(words[0], scope)
    arguments = [_look_up(word, scope) for word in words[1:]]
    if words[0] == "toYaml" and len(arguments) == 1:
        return yaml.safe_dump(arguments[0], default_flow_style=False).rstrip("\n")
    if words[0] == "printf":
        return arguments[0] % tuple(arguments[1:])
    raise ValueError(f"the renderer knows no {words[0]!r}")


def _look_up(word: str, scope: dict[str, Any]) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if not word.startswith("."):
        raise ValueError(f"the renderer knows no {word!r}")
    value: Any = scope
    for name in word[1:].split("."):
        value = value[name]  # a name that is not there is an error, as with `helm lint --strict`
    return value
