# SPDX-License-Identifier: Apache-2.0
"""The example of a settings file, made of the settings themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from dpu_app.settings import Setting
from host_ctl.incidents.hooks.config import SETTINGS as HOOK_SETTINGS
from host_ctl.service.settings import SETTINGS

_HEAD = """\
# Settings of the Pulse controller, /etc/pulse/controller.toml. Every key is here with its default, and takes
# effect without the mark before it. `pulse controller --check --config FILE` looks at a file.
"""
_ABOUT = {
    "listen": "Where DPUs connect.",
    "tls": "Certificates for that; `pulse certs` makes some.",
    "limits": "What peers may ask for.",
    "history": "Where frames and incidents are kept, and how many frames.",
    "incidents": "When verdicts become incidents, and when these end.",
    "api": "API, health, metrics. Other addresses than loopback need TLS, and a token or certificates.",
    "log": "What is told on standard error.",
}
_HOOKS = """\
# Who is told of incidents: a table for each.
#[[hooks]]
#name = "alerts"
#kind = "alertmanager"
#url = "http://alertmanager.example:9093"

#[[hooks]]
#name = "page"
#kind = "command"
#command = ["/usr/local/bin/page", "--urgent"]
#severity = "fail_stop"

# All keys of a hook, of which each kind has its own; those of others must not be set.
#[[hooks]]
"""


def example_text() -> str:
    """Return the file; what must be set has a value that fits the systemd unit."""
    groups: dict[str, list[Setting]] = {}
    for each in SETTINGS:
        groups.setdefault(each.key.partition(".")[0], []).append(each)
    parts = [_HEAD]
    for name, settings in groups.items():
        about = f"# {_ABOUT[name]}\n" if name in _ABOUT else ""
        parts.append(f"{about}[{name}]\n" + "".join(_lines(settings)))
    parts.append(_HOOKS + "".join(_lines(HOOK_SETTINGS)))
    return "\n".join(parts)


def _lines(settings: Iterable[Setting]) -> Iterator[str]:
    for each in settings:
        bounds = "" if each.most is None else f", {each.least:g} to {each.most:g}"
        choices = f": {', '.join(each.choices)}" if each.choices and each.choices[0] not in each.help else ""
        yield f"# {each.help}{bounds}{choices}\n"
        name = each.key.rpartition(".")[2]
        if each.key == "history.directory":
            yield f'{name} = "/var/lib/pulse-controller"\n'
        else:
            yield f"#{name} = {_value(each.default)}\n"


def _value(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
