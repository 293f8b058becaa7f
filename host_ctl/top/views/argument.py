# SPDX-License-Identifier: Apache-2.0
"""What a verdict rests on, step by step; what has been done about an incident."""

from __future__ import annotations

from host_ctl.present.argument.steps import argue
from host_ctl.present.units import digits, share
from host_ctl.top.lines import EMPTY, Line, Span, clip, line, paragraph
from host_ctl.top.snapshot import Snapshot, clean
from host_ctl.top.views.incidents import moment


def verdict(snapshot: Snapshot, name: str, width: int) -> list[Line]:
    """The argument that ``pulse explain`` tells."""
    try:
        argument = argue(dict(snapshot.report), name)
    except (KeyError, TypeError, ValueError, AttributeError):
        return [clip(line(Span(f" There is no verdict {name} any more.", "warn")), width)]
    lines = paragraph(clean(argument.claim), width - 1, "accused", " ")
    for number, step in enumerate(argument.steps, 1):
        lines += [EMPTY, clip(line(Span(f" {number}. {step.question}", "head")), width)]
        for answer in step.answers:
            lines += paragraph(clean(answer), width - 1, "", "   ")
        for figure in step.figures:
            norm = f" (norm {figure.norm})" if figure.norm else ""
            text = f"{clean(figure.name).replace('_', ' ')}: {figure.value}{norm}"
            lines += paragraph(text, width - 1, "", "   ")
            lines += paragraph(figure.text, width - 1, "dim", "     ")
    return lines


def incident(snapshot: Snapshot, name: str, width: int) -> list[Line]:
    """One incident with its steps and notes."""
    found = next((i for i in snapshot.incidents if i.id == name), None)
    if found is None:
        return [clip(line(Span(f" There is no incident {name} any more.", "warn")), width)]
    state = "open" if found.open else f"ended {moment(found.ended_ns or 0)}"
    if found.acknowledged:
        state += ", acknowledged"
    lines = paragraph(found.summary, width - 1, "accused", " ")
    told = (
        f"{found.id}: {found.severity}, {found.cause.replace('_', ' ')} at {found.where} in {found.job}; "
        f"{state}; since {moment(found.started_ns)}; {digits(found.lost_gpu_s)} GPU-s lost; "
        f"confidence {share(found.confidence)}"
    )
    lines += paragraph(told, width - 1, "", " ")
    lines += [EMPTY, clip(line(Span(" What happened (a acknowledges, n writes a note)", "head")), width)]
    if not found.steps:
        lines.append(clip(line(Span(" being read ...", "dim")), width))
    for step in found.steps:
        lines += paragraph(step, width - 1, "", " ")
    return lines
