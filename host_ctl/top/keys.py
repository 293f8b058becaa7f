# SPDX-License-Identifier: Apache-2.0
"""What keys and clicks do to what is seen: pure functions from one state to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from host_ctl.top.snapshot import Snapshot
from host_ctl.top.state import TABS, UiState, iterations_of, job_of
from host_ctl.top.views import nics
from host_ctl.top.views.frame import targets, under_cursor

_PAGE = 10
_MOST_ZOOM = 10

Change = Callable[[Snapshot, UiState], UiState]


def press(key: str, snapshot: Snapshot, state: UiState) -> UiState | None:
    """The state after a key (as Textual names it); None where the key means nothing here."""
    state = replace(state, note="")
    if state.picking and key in ("space", "enter"):
        return toggled(state)
    if key in ("escape", "backspace"):
        return back(state)
    if key == "question_mark":
        return replace(state, help=not state.help, offset=0)
    if key.isdecimal() and "1" <= key <= str(len(TABS)):
        return to_tab(state, TABS[int(key) - 1])
    if key in ("tab", "shift+tab"):
        step = 1 if key == "tab" else -1
        return to_tab(state, TABS[(TABS.index(state.tab) + step) % len(TABS)])
    change = _CHANGES.get(key)
    return None if change is None else change(snapshot, state)


def to_tab(state: UiState, tab: str) -> UiState:
    """Show a tab, from its begin."""
    return replace(state, tab=tab, opened=(), selected="", offset=0, help=False, picking=False)


def back(state: UiState) -> UiState:
    """Close what is on top; the cursor is where it was opened from."""
    if state.help or state.picking:
        return replace(state, help=False, picking=False, offset=0)
    if state.opened:
        return replace(state, opened=state.opened[:-1], selected=state.opened[-1], offset=0)
    return replace(state, filter="") if state.filter else state


def move(steps: int) -> Change:
    """The cursor up or down; texts scroll."""

    def change(snapshot: Snapshot, state: UiState) -> UiState:
        names = targets(snapshot, state)
        if not names or (state.opened and abs(steps) == _PAGE):
            return replace(state, offset=max(0, state.offset + steps), selected="")
        here = under_cursor(snapshot, state)
        at = names.index(here) + steps
        if state.opened and at < 0:
            return replace(state, selected="", offset=0)
        return replace(state, selected=names[max(0, min(len(names) - 1, at))])

    return change


def enter(snapshot: Snapshot, state: UiState) -> UiState:
    """Open what is under the cursor."""
    here = under_cursor(snapshot, state)
    return open_target(state, here) if here and not state.help else state


def open_target(state: UiState, target: str) -> UiState:
    """Show all about something."""
    if target.partition(":")[0] not in ("nic", "machine", "edge", "operator", "verdict", "incident"):
        return state
    if state.opened and state.opened[-1] == target:
        return state
    return replace(state, opened=(*state.opened, target)[-8:], selected="", offset=0, help=False)


def click(target: str, snapshot: Snapshot, state: UiState) -> UiState:
    """What a click on something with a meaning does: choose it, and open it when it was chosen already."""
    kind, _, name = target.partition(":")
    state = replace(state, note="")
    if kind == "tab" and name in TABS:
        return to_tab(state, name)
    if kind == "sort":
        same = state.sort == name
        return replace(state, sort=name, ascending=not state.ascending if same else name == nics.NAME)
    if kind == "column":
        return toggled(replace(state, selected=target))
    if target in targets(snapshot, state):
        return open_target(state, target) if state.selected == target else replace(state, selected=target)
    return open_target(state, target)


def in_time(steps: int) -> Change:
    """Look at an earlier or later iteration; after the latest one comes the present again."""

    def change(snapshot: Snapshot, state: UiState) -> UiState:
        job = job_of(snapshot, state)
        if job is None:
            return state
        first, end = iterations_of(job)
        if end <= first:
            return replace(state, note="there is nothing by iteration in this source")
        at = (end - 1 if state.at is None else state.at) + steps
        if at >= end and steps > 0:
            return replace(state, at=None, playing=False)
        return replace(state, at=min(max(at, first), end - 1), paused=state.paused or snapshot.kind == "live")

    return change


def _pause(snapshot: Snapshot, state: UiState) -> UiState:
    if snapshot.kind == "live":
        return replace(state, paused=not state.paused, at=None if state.paused else state.at)
    if state.playing:
        return replace(state, playing=False)
    job = job_of(snapshot, state)
    first, end = iterations_of(job) if job is not None else (0, 0)
    if end <= first:
        return replace(state, note="there is nothing by iteration to play")
    return replace(state, playing=True, at=first if state.at in (None, end - 1) else state.at)


def _latest(_: Snapshot, state: UiState) -> UiState:
    return replace(state, at=None, playing=False)


def _sort(steps: int) -> Change:
    def change(_: Snapshot, state: UiState) -> UiState:
        order = [nics.NAME, *state.columns]
        at = order.index(state.sort) if state.sort in order else 0
        sort = order[(at + steps) % len(order)]
        return replace(state, sort=sort, ascending=sort == nics.NAME, note=f"sorted by {sort}")

    return change


def toggled(state: UiState) -> UiState:
    """Show or hide the column under the cursor; the order is that of the list."""
    name = list(nics.COLUMNS)[nics.picked(state)]
    shown = set(state.columns) ^ {name}
    return replace(state, columns=tuple(c for c in nics.COLUMNS if c in shown))


def _next_job(snapshot: Snapshot, state: UiState) -> UiState:
    if len(snapshot.jobs) < 2:
        return replace(state, note="there is one job only" if snapshot.jobs else "there is no job")
    number = (state.job + 1) % len(snapshot.jobs)
    note = f"job {snapshot.jobs[number].id}"
    return replace(state, job=number, selected="", opened=(), at=None, note=note)


def _zoom(steps: int) -> Change:
    def change(_: Snapshot, state: UiState) -> UiState:
        if state.opened:
            return replace(state, closer=max(0, min(_MOST_ZOOM, state.closer + steps)))
        return replace(state, zoom=max(0, min(_MOST_ZOOM, state.zoom + steps)))

    return change


def _picking(_: Snapshot, state: UiState) -> UiState:
    return replace(state, picking=True, selected=f"column:{next(iter(nics.COLUMNS))}", offset=0)


_FAR = 1 << 30
_CHANGES: dict[str, Change] = {
    "j": move(1), "down": move(1), "k": move(-1), "up": move(-1),
    "pagedown": move(_PAGE), "pageup": move(-_PAGE), "ctrl+d": move(_PAGE), "ctrl+u": move(-_PAGE),
    "g": move(-_FAR), "home": move(-_FAR), "G": move(_FAR), "end": move(_FAR),
    "enter": enter, "l": enter, "right": enter, "h": lambda _, s: back(s), "left": lambda _, s: back(s),
    "left_square_bracket": in_time(-1), "right_square_bracket": in_time(1),
    "left_curly_bracket": in_time(-10), "right_curly_bracket": in_time(10),
    "0": in_time(-_FAR), "dollar_sign": _latest,
    "space": _pause,
    "s": _sort(1), "greater_than_sign": _sort(1), "less_than_sign": _sort(-1),
    "R": lambda _, s: replace(s, ascending=not s.ascending),
    "c": _picking,
    "plus": _zoom(1), "minus": _zoom(-1),
    "m": lambda _, s: replace(s, grid=s.grid + 1, selected=""),
    "J": _next_job,
}  # fmt: skip
