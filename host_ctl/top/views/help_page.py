# SPDX-License-Identifier: Apache-2.0
"""The keys, and what characters and colours mean."""

from __future__ import annotations

from host_ctl.attribute.states import WaitState
from host_ctl.top.glyphs import HEALTH_WORD, STATE_TEXT, Glyphs
from host_ctl.top.lines import EMPTY, Line, Span, clip, line
from host_ctl.top.views.heat import legend

KEYS = (
    ("1 ... 7, Tab", "views: overview, NICs, grid, blame, operators, incidents, data quality"),
    ("j k, arrows", "the cursor; PgUp PgDn by a page, g G to either end"),
    ("enter, esc", "all about what is under the cursor, and back"),
    ("[ ]", "an iteration earlier or later; { } ten; 0 the first, $ the latest"),
    ("space", "pause (live) or play (recorded)"),
    ("+ -", "zoom the time of heatmaps and rates"),
    ("m", "machines or NICs in the overview; the other grid"),
    ("J", "the next job"),
    ("/", "filter NICs: a regular expression, ! before it for all others"),
    ("s < > R", "sort by the next column, the one before, the other way round"),
    ("c", "choose columns"),
    ("a n", "acknowledge an incident, write a note (live)"),
    ("e", "write the evidence: report, page, trace"),
    ("S", "write the screen as SVG and text"),
    ("t", "the next theme"),
    (": ctrl+p", "command palette"),
    ("? q", "this page, quit"),
)


def help_page(width: int, glyphs: Glyphs) -> list[Line]:
    """Everything on one page."""
    lines = [clip(line(Span(" Keys", "head"), Span("  (the mouse works too: click, wheel)", "dim")), width)]
    lines += [clip(line(Span(f"  {key:<14}", "key"), text), width) for key, text in KEYS]
    lines += [EMPTY, clip(line(Span(" Health", "head")), width)]
    spans = [Span("  ")]
    for health in ("ok", "degraded", "failed", "unsure"):
        spans += [
            Span(f" {glyphs.health[health]} {HEALTH_WORD[health]} ", f"strip-{health}-word"),
            Span("  "),
        ]
    lines += [clip(tuple(spans), width), EMPTY, clip(line(Span(" Lost time, as a share", "head")), width)]
    lines += [clip(legend(glyphs), width), EMPTY]
    lines.append(clip(line(Span(" Marks", "head")), width))
    marks = ((glyphs.accused, "blamed by a verdict"), (glyphs.possible, "candidate"))
    lines.append(clip(line("  ", *(Span(f"{mark} {text}   ", "accused") for mark, text in marks)), width))
    lines += [EMPTY, clip(line(Span(" Wait states of what a NIC sends", "head")), width)]
    for state, text in STATE_TEXT.items():
        mine = (
            " (charged to the NIC itself)" if state in (WaitState.NOT_STARTED, WaitState.WAIT_SENDER) else ""
        )
        lines.append(
            clip(line("  ", Span(glyphs.state[state] * 3, f"state{int(state)}"), f" {text}{mine}"), width)
        )
    return lines
