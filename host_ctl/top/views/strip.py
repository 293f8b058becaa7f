# SPDX-License-Identifier: Apache-2.0
"""What is always on top: the verdict in one sentence, its figures, and whether the picture is current."""

from __future__ import annotations

from host_ctl.present.units import digits, duration, share
from host_ctl.top.glyphs import HEALTH_WORD, Glyphs
from host_ctl.top.lines import Line, Span, apart, clip, length, wrap
from host_ctl.top.snapshot import Snapshot, VerdictView
from host_ctl.top.state import TAB_TEXT, TABS, UiState, iterations_of, job_of
from host_ctl.top.views.incidents import moment

_OLD_S = 10.0
_SENTENCE_LINES = 2


def strip(snapshot: Snapshot, state: UiState, width: int, now_s: float, glyphs: Glyphs) -> list[Line]:
    """Health and sentence, then what it costs and how sure it is, then what the picture is of."""
    role = f"strip-{snapshot.health}"
    word = f" {glyphs.health[snapshot.health]} {HEALTH_WORD[snapshot.health]} "
    text = snapshot.headline or snapshot.loading
    told = wrap(text, max(10, width - len(word) - 2), _SENTENCE_LINES) or [""]
    lines = [clip((Span(word, f"{role}-word"), Span(f" {told[0]}", role)), width)]
    lines += [clip((Span(" " * (len(word) + 1) + more, role),), width) for more in told[1:]]
    facts = _facts(snapshot, state)
    if facts:
        lines.append(clip((Span(f" {facts}", "facts"),), width))
    connection = snapshot.connection
    if connection.lost:
        since = duration(max(0.0, now_s - connection.since_s) * 1e9)
        again = f"asked again in {max(0.0, connection.retry_s - now_s):.0f} s"
        said = f" {glyphs.health['failed']} NO CONNECTION for {since}, {again}: {connection.lost}"
        lines.append(clip((Span(said, "alarm"),), width))
    elif snapshot.problems:
        lines.append(clip((Span(f" ! {'; '.join(snapshot.problems)}", "warn"),), width))
    return lines


def _facts(snapshot: Snapshot, state: UiState) -> str:
    verdicts = [v for v in snapshot.verdicts if v.severity != "notice"]
    if not verdicts:
        return _quiet(snapshot)
    first = verdicts[0]
    facts = [first.id, f"confidence {share(first.confidence)}", _since(snapshot, first)]
    if first.slowdown is not None:
        facts.append(f"iterations {first.slowdown:.2f}x")
    facts.append(_cost(snapshot, first))
    facts += [text for text in (_against_clocks(snapshot, first),) if text]
    if len(verdicts) > 1:
        facts.append(f"and {len(verdicts) - 1} more verdicts (6)")
    if state.at is not None and state.at < first.onset_iteration:
        facts.insert(0, f"iteration {state.at} is before the onset")
    return " | ".join(facts)


def _since(snapshot: Snapshot, verdict: VerdictView) -> str:
    """Iterations of a live window have no numbers that last; a recorded session's clock may be any."""
    if snapshot.kind == "live" and verdict.onset_ns > 0:
        return f"since {moment(verdict.onset_ns)}"
    return f"since iteration {verdict.onset_iteration}"


def _cost(snapshot: Snapshot, verdict: VerdictView) -> str:
    """What it has cost; live, a look sees the last of it, and the incident all."""
    if snapshot.kind != "live":
        return f"{digits(verdict.lost_gpu_s)} GPU-s lost"
    for incident in snapshot.incidents:
        if incident.open and (incident.cause, incident.where) == (verdict.cause, verdict.where):
            return f"{digits(incident.lost_gpu_s)} GPU-s lost ({incident.id})"
    return f"{digits(verdict.lost_gpu_s)} GPU-s lost in this look"


def _quiet(snapshot: Snapshot) -> str:
    jobs = [
        f"{job.id}: {len(job.nics)} NICs of {len(job.machines)} machines, "
        f"{job.iterations} iterations of {duration(job.iteration_s * 1e9)}"
        for job in snapshot.jobs
    ]
    return " | ".join(jobs)


def _against_clocks(snapshot: Snapshot, verdict: VerdictView) -> str:
    """How the effect compares with the error of the clocks: below it nothing counts."""
    errors = [c.clock.uncertainty_ns for c in snapshot.captures if c.clock.uncertainty_ns is not None]
    effect = next((f.value * 1e3 for f in verdict.evidence if f.unit == "us"), None)
    if not errors or effect is None:
        return ""
    return f"effect {duration(effect)}, clocks +/- {duration(max(errors))}"


def tab_bar(snapshot: Snapshot, state: UiState, width: int, now_s: float) -> Line:
    """The tabs, and at the right what the picture is of and how old it is."""
    left: list[Span] = []
    for number, name in enumerate(TABS, 1):
        text = "Verdicts" if name == "incidents" and snapshot.kind != "live" else TAB_TEXT[name]
        role = "tab-on" if name == state.tab else "tab"
        left.append(Span(f" {number} {text} " if width >= 100 else f" {number}{text}", role, f"tab:{name}"))
    right = status(snapshot, state, now_s)
    room = width - length(tuple(left)) - 1
    return apart(tuple(left), clip((right,), min(room, len(right.text))) if room > 8 else (), width)


def status(snapshot: Snapshot, state: UiState, now_s: float) -> Span:
    """Live or recorded, paused or not, and the iteration that is looked at."""
    job = job_of(snapshot, state)
    last = iterations_of(job)[1] - 1 if job is not None else -1
    at = f"it {last if state.at is None else state.at}/{last}" if last >= 0 else ""
    if snapshot.loading:
        return Span(snapshot.loading, "warn")
    if state.playing:
        return Span(f"PLAYING {at}", "good")
    if snapshot.kind != "live":
        return Span(f"recorded {at}" if at else "recorded", "dim")
    if state.paused:
        return Span(f"PAUSED {at}", "warn")
    age_s = now_s - snapshot.taken_s
    old = snapshot.connection.lost or age_s > _OLD_S
    return Span(f"STALE {age_s:.0f} s" if old else f"LIVE {age_s:.0f} s ago", "bad" if old else "good")


def footer(snapshot: Snapshot, state: UiState, width: int) -> Line:
    """A note, or the keys that do something here."""
    if state.note:
        return clip((Span(f" {state.note}", "note"),), width)
    out: list[Span] = []
    for key, text in _keys(snapshot, state):
        out += [Span(f" {key}", "key", f"key:{key}"), Span(f" {text} ", "dim", f"key:{key}")]
        if length(tuple(out)) > width:
            out = out[:-2]
            break
    return clip(tuple(out), width)


def _keys(snapshot: Snapshot, state: UiState) -> list[tuple[str, str]]:
    if state.help:
        return [("esc", "back"), ("j", "down"), ("k", "up"), ("q", "quit")]
    if state.picking:
        return [("space", "show or hide"), ("j", "down"), ("k", "up"), ("esc", "done")]
    keys = [("?", "help"), ("q", "quit")]
    keys += [("esc", "back")] if state.opened else [("enter", "detail")]
    keys += [("[", "earlier"), ("]", "later")]
    keys.append(("space", "go on" if state.paused or state.playing else _pause(snapshot)))
    if state.tab == "nics" and not state.opened:
        keys += [("/", "filter"), ("s", "sort"), ("R", "reverse"), ("c", "columns")]
    if state.tab in ("overview", "grid") and not state.opened:
        keys += [("+", "zoom"), ("m", "other rows" if state.tab == "overview" else "other grid")]
    if snapshot.kind == "live" and state.tab == "incidents":
        keys += [("a", "acknowledge"), ("n", "note")]
    keys += [("e", "evidence"), ("S", "screenshot"), ("t", "theme"), (":", "commands")]
    return keys


def _pause(snapshot: Snapshot) -> str:
    return "pause" if snapshot.kind == "live" else "play"
