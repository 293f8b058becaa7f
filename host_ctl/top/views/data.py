# SPDX-License-Identifier: Apache-2.0
"""How far to trust the picture: clocks, losses, who is late or silent, what is missing."""

from __future__ import annotations

from host_ctl.present.units import digits, duration
from host_ctl.top.glyphs import Glyphs
from host_ctl.top.lines import EMPTY, Line, Span, aimed, clip, fit, line, paragraph, selected, visible
from host_ctl.top.snapshot import CaptureView, Snapshot
from host_ctl.top.state import UiState, job_of
from host_ctl.top.views.heat import accused_targets, cursor

_MOST_REMARKS = 6


def data(
    snapshot: Snapshot, state: UiState, width: int, height: int, glyphs: Glyphs, now_ns: int
) -> list[Line]:
    """The answer first, then what is missing or odd, then every capture with its clock."""
    lines = [each for text, role in answers(snapshot) for each in paragraph(text, width - 1, role, " ")]
    remarks = [f"missing: {m}" for m in snapshot.missing] + list(snapshot.warnings)
    for remark in remarks[:_MOST_REMARKS]:
        lines += paragraph(f"- {remark}", width - 1, "warn", " ")[:2]
    if len(remarks) > _MOST_REMARKS:
        lines.append(line(Span(f" - and {len(remarks) - _MOST_REMARKS} more (e writes all)", "dim")))
    lines.append(EMPTY)
    name = max(10, min(28, max((len(c.name) for c in snapshot.captures), default=0) + 1))
    head = (
        f"   {fit('capture', name)} {'clock':<9} {'+/-':>9} {'bound':>9} {'offset':>9} {'drift':>10} "
        f"{'not seen':>9} {'packets':>11} {'mode':<8} last frame"
    )
    lines.append(clip(line(Span(head, "head")), width))
    names = targets(snapshot, state)
    job = job_of(snapshot, state)
    accused = accused_targets(snapshot, job) if job is not None else frozenset()
    at = cursor(names, state.selected, accused)
    captures = {c.name: c for c in snapshot.captures}
    for k in visible(len(names), at, max(1, height - len(lines))):
        nic = names[k].partition(":")[2]
        content = aimed(_row(snapshot, nic, captures.get(nic), name, glyphs, now_ns), names[k])
        lines.append(selected(content, width) if k == at else clip(content, width))
    return lines


def targets(snapshot: Snapshot, state: UiState) -> tuple[str, ...]:
    """Every capture and every agent that sent none, those in trouble first."""
    captures = sorted(snapshot.captures, key=_trouble)
    known = {c.name for c in captures}
    absent = [a.name for a in snapshot.agents if a.name not in known]
    return tuple(f"nic:{name}" for name in (*absent, *(c.name for c in captures)))


def _trouble(one: CaptureView) -> tuple[bool, int, float]:
    """Unrelated clocks, losses, great uncertainty come first."""
    return one.clock.uncertainty_ns is not None, -one.lost, -(one.clock.uncertainty_ns or 0)


def answers(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Whether clocks and captures can be trusted, in a sentence each with its role."""
    captures = snapshot.captures
    if not captures:
        return [("Nothing has been captured yet.", "warn")]
    known = [c.clock.uncertainty_ns for c in captures if c.clock.uncertainty_ns is not None]
    loose = len(captures) - len(known)
    components = len({c.clock.component for c in captures})
    effect = next(
        (f.value * 1e3 for v in snapshot.verdicts for f in v.evidence if f.unit == "us" and f.value > 0), None
    )
    if not known:
        told = [
            (
                f"Clocks: none of {len(captures)} is tied to another: lateness across NICs means nothing.",
                "bad",
            )
        ]
    else:
        worst = max(known)
        text = f"Clocks: {len(known)} of {len(captures)} are known, the worst to +/- {duration(worst)}"
        enough = effect is None or worst < effect
        if effect is not None and worst:
            text += f"; the verdict rests on {duration(effect)}, {digits(effect / worst)} times that"
        verdict = "they can be trusted" if enough and not loose else "be careful"
        told = [(f"{text}: {verdict}.", "good" if enough and not loose else "warn")]
    if components > 1:
        told.append(_between(captures, components))
    lost = sum(c.lost for c in captures)
    packets = sum(c.packets for c in captures)
    told.append(
        (f"Losses: captures did not see {lost:,} packets of {packets + lost:,}.", "warn" if lost else "good")
    )
    away = [a.name for a in snapshot.agents if not a.connected]
    if snapshot.silent or away:
        names = ", ".join((*snapshot.silent, *away)[:6])
        told.append((f"Silent or away: {names}.", "bad"))
    return told


def _between(captures: tuple[CaptureView, ...], components: int) -> tuple[str, str]:
    basis = sorted({c.clock.between for c in captures if c.clock.between})
    widths = [c.clock.between_ns for c in captures if c.clock.between_ns is not None]
    text = f"{components} sets of clocks never meet on the wire"
    if basis and widths:
        return f"{text}; they are related by {', '.join(basis)}, to +/- {duration(max(widths))}.", "dim"
    return f"{text}; nothing relates them.", "warn"


def _row(
    snapshot: Snapshot, nic: str, capture: CaptureView | None, name: int, glyphs: Glyphs, now_ns: int
) -> Line:
    agent = next((a for a in snapshot.agents if a.name == nic), None)
    heard = ""
    if agent is not None:
        age = (
            f"{duration(max(0, now_ns - agent.last_received_ns))} ago" if agent.last_received_ns else "never"
        )
        heard = "silent, " + age if agent.silent else age if agent.connected else f"away, {age}"
        if agent.missing:
            heard += f", {agent.missing} frames missing"
    role = "bad" if agent is not None and (agent.silent or not agent.connected) else "dim"
    if capture is None:
        return line(Span(f" {glyphs.missing} ", "missing"), Span(fit(nic, name, glyphs.ellipsis)),
                    Span(" nothing of it in this look", "missing"), Span(f"  {heard}", role))  # fmt: skip
    clock = capture.clock
    error = "none" if clock.uncertainty_ns is None else duration(clock.uncertainty_ns)
    bound = "none" if clock.bound_ns is None else duration(clock.bound_ns)
    return line(
        Span("   "),
        Span(fit(nic, name, glyphs.ellipsis)),
        Span(f" {clock.basis:<9}", "bad" if clock.basis == "none" else ""),
        Span(f" {error:>9}", "bad" if clock.uncertainty_ns is None else ""),
        Span(f" {bound:>9} {duration(clock.offset_ns):>9} {clock.drift_ppm:>6.2f} ppm"),
        Span(f" {capture.lost:>9,}", "warn" if capture.lost else ""),
        Span(f" {capture.packets:>11,} {fit(capture.mode, 8)} "),
        Span(heard, role),
    )
