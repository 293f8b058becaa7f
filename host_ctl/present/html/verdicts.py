# SPDX-License-Identifier: Apache-2.0
"""The verdict first: one sentence, who and since when and at what cost, then the argument of each verdict."""

from __future__ import annotations

from typing import Any

from host_ctl.present.argument.steps import Argument, count, place
from host_ctl.present.html.parts import bullets, details, facts, table
from host_ctl.present.markup import Markup, Part, join, tag
from host_ctl.present.units import digits, duration, moment, share

WORDS = {"ok": "OK", "degraded": "DEGRADED", "failed": "FAILED", "unsure": "UNSURE"}
_SEVERITY = {"fail_slow": "slows the job", "fail_stop": "stops the job", "notice": "notice, accuses nobody"}
_SCOPES = {
    "gpu": "one GPU", "nic": "one NIC", "machine": "one machine", "link": "a link, either end",
    "path": "the network, no machine", "stage": "a pipeline stage", "none": "nobody in particular",
}  # fmt: skip


def headline(report: dict[str, Any], sentence: str) -> Markup:
    """The health and the verdict in one sentence, then the first facts."""
    health = report["health"]
    badge = tag("p", tag("span", WORDS[health], class_=f"badge {health}"), class_="key")
    return join((badge, tag("h1", sentence), facts(_facts(report))))


def _facts(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    verdicts = report["verdicts"]
    faults = [v for v in verdicts if v["severity"] != "notice"]
    if not faults:
        return _without_fault(report)
    first = faults[0]
    more = f"and {count(len(faults) - 1, 'other verdict')}" if len(faults) > 1 else ""
    lost = sum(v["lost_gpu_seconds"] for v in faults)
    cause = first["cause"].replace("_", " ")
    slow = "" if first["slowdown"] is None else f"iterations take {first['slowdown']:.2f} times as long"
    still = "the job stands still" if first["severity"] == "fail_stop" else slow
    before = "since the first iteration seen" if first["onset_iteration"] <= 0 else moment(first["onset_ns"])
    return [
        (
            "Who",
            place(first) if first["machine"] or first["scope"] == "link" else "No machine is at fault",
            more,
        ),
        ("What", cause, _SCOPES[first["scope"]]),
        ("Since", f"iteration {first['onset_iteration']}", before),
        ("Cost", f"{digits(lost)} GPU-seconds", still),
        ("Confidence", share(first["confidence"]), f"certain at iteration {first['detected_iteration']}"),
    ]


def _without_fault(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    unsure = report["health"] == "unsure"
    who = ("Not known", "nobody is accused on what there is") if unsure else ("No machine is at fault", "")
    jobs = report["jobs"]
    seen = [f"{j['iterations']} iterations of {duration(j['iteration_s'] * 1e9)}" for j in jobs]
    notices = [v["cause"].replace("_", " ") for v in report["verdicts"]]
    found = [
        ("Who", *who),
        ("Looked at", count(len(jobs), "job"), "; ".join(seen[:3])),
        ("Captures", count(len(report["inputs"]), "NIC"),
         f"{sum(i['packets'] for i in report['inputs']):,} packets"),
    ]  # fmt: skip
    if notices:
        found.append(("Notices", ", ".join(notices), "they accuse nobody"))
    missing = report["data_quality"]["missing"]
    if missing:
        found.append(("Missing", f"{len(missing)}", "see Data quality"))
    return found


def verdict_text(verdict: dict[str, Any], argument: Argument) -> Markup:
    """One verdict in words and figures."""
    parts: list[Part] = [
        tag("p", verdict["summary"]),
        facts(_verdict_facts(verdict)),
        _candidates(verdict),
        _evidence(argument),
        details("The argument step by step", argument_text(argument)),
    ]
    return join(parts)


def _verdict_facts(v: dict[str, Any]) -> list[tuple[str, str, str]]:
    slow = "" if v["slowdown"] is None else f"iterations take {v['slowdown']:.2f} times as long"
    return [
        ("Where", place(v), _SCOPES[v["scope"]]),
        ("Cause", v["cause"].replace("_", " "), _SEVERITY[v["severity"]]),
        ("Since", f"iteration {v['onset_iteration']}", moment(v["onset_ns"])),
        ("Cost", f"{digits(v['lost_gpu_seconds'])} GPU-seconds", slow),
        ("Confidence", share(v["confidence"]), f"certain at iteration {v['detected_iteration']}"),
    ]


def _candidates(verdict: dict[str, Any]) -> Markup:
    if not verdict["candidates"]:
        return tag(
            "p", "No machine is a candidate: the cause lies in the network, or in nobody in particular."
        )
    body = [
        (c["machine"], c["nic"] or "all of its NICs", share(c["probability"]))
        for c in verdict["candidates"][:16]
    ]
    return table("Candidates", ("machine", "NIC", "probability"), body, (2,))


def _evidence(argument: Argument) -> Markup:
    body = [
        (f.name.replace("_", " "), f.value, f.norm or "none", f"{f.text}; norm: {f.against}")
        for step in argument.steps
        for f in step.figures
    ]
    return table("Evidence", ("figure", "value", "norm", "what it measures"), body, (1, 2))


def argument_text(argument: Argument) -> Markup:
    """The steps of an argument; figures stand in the evidence already."""
    items = [
        tag("li", tag("h4", step.question), bullets(step.answers)) for step in argument.steps if step.answers
    ]
    return tag("ol", *items, class_="argument")
