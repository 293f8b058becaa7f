# SPDX-License-Identifier: Apache-2.0
"""Chooses what a look analyses: enough iterations for the sequential test, no more than can be afforded."""

from __future__ import annotations

from dataclasses import dataclass

from host_ctl.live.intake import Arrived, Intake, NicName
from host_ctl.live.limits import WindowLimits

_LEAST_SPAN_NS = 4_000_000_000
_GROWTH = 1.5
_WIDE = 4
_IN_PART = 2  # the first and the last iteration
_ROUGHLY = 1.15  # iterations vary


@dataclass(frozen=True, slots=True)
class Wish:
    """What the last looks learned: the longest iteration of a job, and since when a fault is under way.

    ``wide``: look further back than usual, for what repeats may be part of something longer that repeats.
    """

    iteration_ns: int = 0
    onset_ns: int | None = None
    last_span_ns: int = 0
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """Frames that touch [begin, end) of the controller's clock, by NIC, oldest first.

    ``wanted_ns`` is the span that was wished for; ``cut`` tells that the budget made it shorter.
    """

    begin_ns: int
    end_ns: int
    frames: dict[NicName, list[Arrived]]
    bytes: int
    missing: int
    wanted_ns: int
    cut: bool


def choose_window(
    intake: Intake, end_ns: int, limits: WindowLimits, wish: Wish, budget_bytes: int, floor_ns: int
) -> Window:
    """The window that ends at a time; it never reaches before ``floor_ns``, whatever is wished for."""
    wanted_ns = min(_span(limits, wish, end_ns), limits.most_ns)
    least_ns = round((limits.least_iterations + _IN_PART) * wish.iteration_ns * _ROUGHLY)
    if wish.onset_ns is not None and end_ns - wish.onset_ns <= least_ns:
        least_ns += end_ns - wish.onset_ns  # as much of before as of after
    begin_ns = max(end_ns - wanted_ns, floor_ns)
    begin_ns, cut = _afforded(intake, begin_ns, end_ns, min(budget_bytes, limits.most_bytes))
    if cut and end_ns - begin_ns < least_ns:
        # Fewer iterations would tell nothing: then rather look less often.
        begin_ns, _ = _afforded(intake, max(end_ns - least_ns, floor_ns), end_ns, limits.most_bytes)
    frames = {nic.name: nic.overlapping(begin_ns, end_ns) for nic in intake}
    missing = sum(nic.missing(frames[nic.name]) for nic in intake)
    size = sum(each.size for held in frames.values() for each in held)
    return Window(begin_ns, end_ns, frames, size, missing, wanted_ns, cut)


def _span(limits: WindowLimits, wish: Wish, end_ns: int) -> int:
    if not wish.iteration_ns:
        # Nothing is known of any job: longer and longer, until one shows.
        return max(_LEAST_SPAN_NS, round(wish.last_span_ns * _GROWTH))
    span_ns = max(round(limits.iterations * wish.iteration_ns * _ROUGHLY), _LEAST_SPAN_NS)
    if wish.wide:
        span_ns *= _WIDE
    if wish.onset_ns is not None:
        # What was before the fault tells it apart: it stays in sight for as long as that can be afforded.
        span_ns = max(span_ns, end_ns - wish.onset_ns + span_ns // 2)
    return span_ns


def _afforded(intake: Intake, begin_ns: int, end_ns: int, budget_bytes: int) -> tuple[int, bool]:
    """The begin, later where the frames from there on would be too many, and whether it had to be."""
    inside = [each for nic in intake for each in nic.overlapping(begin_ns, end_ns)]
    inside.sort(key=lambda each: each.key.begin_ns, reverse=True)
    held = 0
    for each in inside:
        held += each.size
        if held > budget_bytes and each.key.end_ns < end_ns:
            return min(each.key.end_ns, end_ns - 1), True
    return begin_ns, False
