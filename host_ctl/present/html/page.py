# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs nothing beside it: no script, no font, no network."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from host_ctl.diagnose.verdict import Verdict
from host_ctl.present.analysed import Analysed, AnalysedJob
from host_ctl.present.argument.steps import argue, place
from host_ctl.present.attribution import Attribution, attribute
from host_ctl.present.headline import headline as sentence
from host_ctl.present.html.job_pictures import job_pictures
from host_ctl.present.html.parts import section
from host_ctl.present.html.quality import data_quality, download, reproduce
from host_ctl.present.html.verdict_pictures import verdict_pictures
from host_ctl.present.html.verdicts import WORDS, argument_text, headline, verdict_text
from host_ctl.present.markup import Markup, Part, join, tag
from host_ctl.present.report import report_of

_MOST_JOBS, _MOST_PICTURED = 3, 4
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a report comes from: the command line, the version, when it was made (ns since 1970)."""

    command: str
    version: str
    made_ns: int


def build_html(analysis: Analysed, origin: Origin) -> str:
    """The page of an analysis."""
    report = report_of(analysis)
    first = sentence(analysis.health, analysis.verdicts, analysis.missing, len(analysis.jobs))
    body: list[Part] = [headline(report, f"{first}."), _contents(report)]
    body += _verdicts_and_jobs(analysis, report)
    body += [data_quality(report), reproduce(report, origin.command, origin.version, origin.made_ns)]
    body.append(download(report))
    return _document(f"{WORDS[analysis.health]}: {first}", body)


def _verdicts_and_jobs(analysis: Analysed, report: dict[str, Any]) -> list[Part]:
    """Every verdict in words, with pictures where there are few; then the pictures of the jobs."""
    found: list[Part] = []
    if not report["verdicts"]:
        argument = argue(report, None)
        found.append(section("why", "Why nobody is accused", argument_text(argument)))
    numbered = [(f"v{n}", v) for n, v in enumerate(analysis.verdicts, 1)]
    jobs = _shown_jobs(analysis, numbered)
    made = {one.job.id: _made(analysis, one) for one in jobs}
    for number, (name, verdict) in enumerate(numbered):
        of_job = next((one for one in jobs if one.job.id == verdict.job), None)
        pictures: Part = None
        if of_job is not None and number < _MOST_PICTURED:
            pictures = verdict_pictures(name, of_job, *made[verdict.job], verdict)
        plain = report["verdicts"][number]
        heading = f"Verdict {name}: {plain['cause'].replace('_', ' ')}, {place(plain)}"
        found.append(section(name, heading, verdict_text(plain, argue(report, name)), pictures))
    for one in jobs:
        own = [(name, v) for name, v in numbered if v.job == one.job.id]
        pictures = job_pictures(one, *made[one.job.id], own)
        usual = None if own else verdict_pictures(f"{one.job.id}-usual", one, *made[one.job.id], None)
        text = _job_text(report, one.job.id)
        found.append(section(one.job.id, f"The whole job: {one.job.id}", tag("p", text), pictures, usual))
    rest = len(analysis.jobs) - len(jobs)
    if rest > 0:
        found.append(tag("p", f"{rest} more jobs without pictures are in the JSON report."))
    return found


def _made(analysis: Analysed, one: AnalysedJob) -> tuple[Attribution, Any]:
    attribution = attribute(analysis.traffic, one.program)
    return attribution, attribution.stretches()


def _shown_jobs(analysis: Analysed, numbered: list[tuple[str, Verdict]]) -> list[AnalysedJob]:
    """Jobs with verdicts come first, then the largest."""
    order = [v.job for _, v in numbered]
    known = sorted(
        analysis.jobs, key=lambda one: order.index(one.job.id) if one.job.id in order else len(order)
    )
    return known[:_MOST_JOBS]


def _job_text(report: dict[str, Any], name: str) -> str:
    job = next(j for j in report["jobs"] if j["id"] == name)
    groups = ", ".join(
        f"{g['id']} ({'' if g['dimension'] == 'unknown' else g['dimension'] + ' '}{g['algorithm']}, "
        f"{len(g['members'])} NICs)"
        for g in job["groups"][:8]
    )
    more = f" and {len(job['groups']) - 8} more" if len(job["groups"]) > 8 else ""
    return (
        f"{len(job['nics'])} NICs of {len(job['machines'])} machines, {job['iterations']} iterations. "
        f"Groups: {groups}{more}."
    )


def _contents(report: dict[str, Any]) -> Markup:
    """Links to the parts, for who reads on."""
    named = [(v["id"], f"Verdict {v['id']}") for v in report["verdicts"][:8]] or [
        ("why", "Why nobody is accused")
    ]
    jobs = [(j["id"], j["id"]) for j in report["jobs"][:_MOST_JOBS]]
    rest = [("quality", "Data quality"), ("reproduce", "How to reproduce"), ("json", "JSON")]
    links: list[Part] = []
    for number, (target, text) in enumerate((*named, *jobs, *rest)):
        links += [" · " if number else None, tag("a", text, href=f"#{target}")]
    return tag("nav", tag("p", *links), aria_label="Parts of this report", class_="screen")


def _document(title: str, body: list[Part]) -> str:
    style = files("host_ctl.present.html").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    page = tag("html", head, tag("body", _PATTERNS, tag("main", join(body))), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _pattern(name: str, size: int, d: str) -> Markup:
    return tag("pattern", tag("path", d=d), id=name, width=size, height=size, patternUnits="userSpaceOnUse")


_PATTERNS = tag(
    "svg",
    _pattern("hatch", 6, "M-1 1l2-2M0 6l6-6M5 7l2-2"),
    _pattern("cross", 8, "M0 0l8 8M8 0l-8 8"),
    _pattern("unknown", 4, "M0 2h4"),
    class_="defs",
    aria_hidden="true",
)
"""Looks that are no colours, which all pictures of the page refer to."""
