# SPDX-License-Identifier: Apache-2.0
"""What the report rests on: clocks, losses, what is missing; how to make it again; itself as JSON."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from typing import Any

from host_ctl.present.html.parts import bullets, details, section, table
from host_ctl.present.markup import Markup, Part, join, tag
from host_ctl.present.units import duration, moment, size

_MOST_WARNINGS, _MOST_CLOCKS = 200, 256
_MOST_PLAIN_BYTES = 256 << 10  # larger reports are embedded compressed
_BASES = {
    "measured": "measured against others", "ptp": "claimed by PTP", "coarse": "coarse, by system clocks",
    "coupled": "assumed, by coupled operators", "none": "tied to no other",
}  # fmt: skip


def data_quality(report: dict[str, Any]) -> Markup:
    """Clocks and losses of every capture, what is missing, and warnings."""
    found = report["data_quality"]
    lost = sum(i["lost"] for i in report["inputs"])
    loose = sum(i["clock"]["uncertainty_ns"] is None for i in report["inputs"])
    counted = (
        f"{len(report['inputs'])} captures; {lost:,} packets lost by them; {loose} clocks tied to no other."
    )
    parts: list[Part] = [tag("p", counted)]
    parts.append(tag("h3", "Missing"))
    parts.append(
        bullets(found["missing"]) if found["missing"] else tag("p", "Nothing is known to be missing.")
    )
    parts.append(tag("h3", "Warnings"))
    warnings = found["warnings"]
    if not warnings:
        parts.append(tag("p", "None."))
    else:
        shown = bullets(warnings[:_MOST_WARNINGS])
        more = f"and {len(warnings) - _MOST_WARNINGS} more in the JSON report"
        parts.append(shown if len(warnings) <= 12 else details(f"{len(warnings)} warnings", shown))
        parts.append(tag("p", more) if len(warnings) > _MOST_WARNINGS else None)
    parts.append(tag("h3", "Captures and clocks"))
    parts.append(_clocks(report["inputs"]))
    return section("quality", "Data quality: how far to trust this", *parts)


def _clocks(inputs: list[dict[str, Any]]) -> Markup:
    worst = sorted(inputs, key=lambda i: (-i["lost"], -(i["clock"]["uncertainty_ns"] or 1 << 62)))
    chosen = inputs if len(inputs) <= _MOST_CLOCKS else worst[:_MOST_CLOCKS]
    head = (
        "capture",
        "packets",
        "lost",
        "mode",
        "offset",
        "drift",
        "uncertainty",
        "bound",
        "basis",
        "component",
    )
    body = [(_name(i), f"{i['packets']:,}", _lost(i["lost"]), i["mode"], *_clock(i["clock"])) for i in chosen]
    text = (
        "Offset and drift are against the first clock of the component; the bound holds by causality alone."
    )
    return join(
        (tag("p", text, class_="soft"), table("Captures and their clocks", head, body, (1, 2, 4, 5, 6, 7, 9)))
    )


def _name(one: dict[str, Any]) -> str:
    return f"{one['machine']}/{one['nic']}" if one["nic"] else str(one["machine"])


def _lost(count: int) -> Part:
    return tag("span", f"{count:,}", class_="bad") if count else "0"


def _clock(clock: dict[str, Any]) -> tuple[Part, ...]:
    errors = [clock["uncertainty_ns"], clock["bound_ns"]]
    known = ["not known" if e is None else f"± {duration(e)}" if e else "reference" for e in errors]
    basis: Part = _BASES[clock["basis"]]
    if clock["basis"] == "none":
        basis = tag("span", basis, class_="bad")
    between = clock.get("between")
    if between is not None:
        basis = join(
            (
                basis,
                f"; to other components {_BASES[between['basis']]}, ± {duration(between['uncertainty_ns'])}",
            )
        )
    return (
        duration(clock["offset_ns"]),
        f"{clock['drift_ppm']:.2f} ppm",
        *known,
        basis,
        str(clock["component"]),
    )


def reproduce(report: dict[str, Any], command: str, version: str, made_ns: int) -> Markup:
    """The command line, the version, and the inputs as they were."""
    body = [
        (
            _name(i),
            moment(i["first_ns"]),
            duration(i["last_ns"] - i["first_ns"]),
            f"{i['packets']:,}",
            f"{i['flows']:,}",
        )
        for i in report["inputs"][:_MOST_CLOCKS]
    ]
    head = ("capture", "first packet (its own clock)", "length", "packets", "flows")
    return section(
        "reproduce",
        "How to reproduce",
        tag("p", "This report was made by:"),
        tag("pre", tag("code", command)),
        tag("p", f"with Pulse {version}, {moment(made_ns)}. The same inputs give the same report."),
        details("Inputs", table("Inputs", head, body, (2, 3, 4))),
    )


def download(report: dict[str, Any]) -> Markup:
    """The JSON report inside of the page; no network is needed to get it."""
    text = json.dumps(report, separators=(",", ":")).encode()
    kind, name, content = "application/json", "pulse-report.json", text
    if len(text) > _MOST_PLAIN_BYTES:
        kind, name, content = "application/gzip", "pulse-report.json.gz", gzip.compress(text, mtime=0)
    href = f"data:{kind};base64,{b64encode(content).decode()}"
    link = tag("a", f"Save the report as {name} ({size(len(content))})", href=href, download=name)
    return section(
        "json",
        "The report as JSON",
        tag("p", link, class_="screen"),
        tag(
            "p",
            "All figures of this page, schema pulse.report/1; ",
            tag("code", "pulse explain"),
            " reads it.",
        ),
    )
