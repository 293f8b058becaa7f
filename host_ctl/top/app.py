# SPDX-License-Identifier: Apache-2.0
"""The dashboard: takes snapshots from a source, keys from the user, and shows the frame of both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.markup import escape
from textual.screen import Screen
from textual.widgets import Input

from host_ctl.present.details import Curve
from host_ctl.top.canvas import Canvas
from host_ctl.top.keys import click, in_time, move, press
from host_ctl.top.lines import text_of
from host_ctl.top.snapshot import Snapshot
from host_ctl.top.sources.source import Listener, Source, Wanted
from host_ctl.top.state import TAB_TEXT, TABS, UiState, job_of
from host_ctl.top.theme import NAMES, theme_of
from host_ctl.top.views.detail import Curves, wanted_curve
from host_ctl.top.views.frame import Clock, frame, job_for, under_cursor

REFRESHES_S = 0.25
"""Ages and what came meanwhile are shown four times a second at most; keys at once."""
_PLAY_S = 0.25
_MOST_CURVES = 512


@dataclass(frozen=True, slots=True)
class Setup:
    """How the dashboard begins. ``clock`` is there for tests."""

    theme: str = NAMES[0]
    ascii: bool = False
    read_only: bool = False
    refresh_s: float = REFRESHES_S
    folder: Path = Path()
    clock: Callable[[], Clock] = lambda: Clock(time.monotonic(), time.time_ns())


class TopApp(App[None]):
    """One canvas over the whole screen, and a prompt below it while something is asked."""

    TITLE = "pulse top"
    BINDINGS: ClassVar[list[BindingType]] = [("ctrl+c", "quit", "Quit")]
    CSS = """
    Screen { layout: vertical; }
    #prompt { dock: bottom; height: 3; display: none; }
    """

    def __init__(self, source: Source, setup: Setup) -> None:
        super().__init__(ansi_color=True if theme_of(setup.theme).base.startswith("ansi") else None)
        self.theme = theme_of(setup.theme).base
        self._source = source
        self._setup = setup
        self._state = UiState(ascii=setup.ascii, read_only=setup.read_only)
        self._snapshot = source.first()
        self._waiting: Snapshot | None = None
        self._curves: Curves = {}
        self._theme_name = theme_of(setup.theme).name
        self._canvas = Canvas(self._theme_name)
        self._asked: Callable[[str], None] | None = None
        self._dirty = True
        self._played_s = 0.0

    @property
    def shown(self) -> tuple[Snapshot, UiState]:
        """What is on the screen."""
        return self._snapshot, self._state

    def compose(self) -> ComposeResult:
        """The canvas and the prompt."""
        yield self._canvas
        yield Input(id="prompt")

    def on_mount(self) -> None:
        """Begin to listen and to paint."""
        self._canvas.focus()
        self._source.start(Listener(self._from_thread(self._take), self._from_thread(self._take_curve),
                                    self._from_thread(self._say)))  # fmt: skip
        self.set_interval(self._setup.refresh_s, self._tick)
        self._paint()

    def on_unmount(self) -> None:
        """Let the source end."""
        self._source.stop()

    def _from_thread(self, take: Callable[..., None]) -> Callable[..., None]:
        """Hand on what another thread tells, without making it wait."""

        def told(*about: object) -> None:
            if self.is_running:
                self.call_later(take, *about)

        return told

    def _take(self, snapshot: Snapshot) -> None:
        if self._state.paused and self._snapshot.jobs:
            self._waiting = snapshot
            # That the controller is gone is told even while the picture stands still.
            self._snapshot = replace(self._snapshot, connection=snapshot.connection)
        else:
            self._snapshot, self._waiting = snapshot, None
            self._adopt_curves(snapshot)
        self._dirty = True

    def _adopt_curves(self, snapshot: Snapshot) -> None:
        if snapshot.kind == "live":
            self._curves = {}
        for curve in snapshot.curves:
            self._curves[curve.job, curve.nic, curve.iteration] = curve

    def _take_curve(self, wanted: Wanted, curve: Curve | None) -> None:
        if len(self._curves) >= _MOST_CURVES:
            self._curves.pop(next(iter(self._curves)))
        self._curves[wanted.job, wanted.nic, wanted.iteration] = curve
        self._dirty = True

    def _say(self, text: str) -> None:
        self._state = replace(self._state, note=text)
        self._dirty = True

    def _tick(self) -> None:
        now_s = self._setup.clock().s
        if self._state.playing and now_s - self._played_s >= _PLAY_S:
            self._played_s = now_s
            self._state = in_time(1)(self._snapshot, self._state)
            self._dirty = True
        if self._dirty or self._snapshot.kind == "live" or self._snapshot.loading:
            self._paint()

    def _paint(self) -> None:
        self._dirty = False
        width, height = self._canvas.size
        if not width or not height:
            return  # there is no screen yet; its size comes as an event
        self._want_curve()
        lines = frame(self._snapshot, self._state, width, height, self._setup.clock(), self._curves)
        self._canvas.show(lines, self._theme_name)

    def _want_curve(self) -> None:
        if not self._state.opened or not self._state.opened[-1].startswith("nic:"):
            return
        name = self._state.opened[-1].removeprefix("nic:")
        job = job_for(self._snapshot, self._state, "nic", name)
        if job is None:
            return
        iteration = wanted_curve(self._snapshot, job, self._state, name, self._curves)
        if iteration is None or (job.id, name, iteration) in self._curves:
            return
        if self._asking != (job.id, name, iteration):
            self._asking = (job.id, name, iteration)
            self._source.want(Wanted(job.id, name, iteration))

    _asking: tuple[str, str, int] | None = None

    def on_canvas_resized(self) -> None:
        """Another size is another frame."""
        self._paint()

    def on_key(self, event: events.Key) -> None:
        """Keys that ask or write something are done here, all others change what is seen."""
        if self._asked is not None:
            if event.key == "escape":
                self._close_prompt()
            return
        if len(self.screen_stack) > 1:
            return
        if self._command(event.key):
            event.stop()
            event.prevent_default()
            return
        was = self._state
        after = press(event.key, self._snapshot, self._state)
        if after is not None:
            self._state = after
            self._go_on_after(was)
            event.stop()
            event.prevent_default()
            self._paint()

    def _go_on_after(self, was: UiState) -> None:
        """A pause that is over shows what came meanwhile; an incident that is opened is read."""
        if was.paused and not self._state.paused and self._waiting is not None:
            self._take(self._waiting)
        if self._state.opened != was.opened and self._state.opened:
            kind, _, name = self._state.opened[-1].partition(":")
            if kind == "incident":
                self._source.look_into(name)

    def _command(self, key: str) -> bool:
        commands: dict[str, Callable[[], object]] = {
            "q": self.exit, "colon": self.action_command_palette, "t": self.next_theme,
            "slash": self.ask_filter, "S": self.write_screen, "e": self.write_evidence,
            "r": self.write_evidence, "a": self.acknowledge, "n": self.write_note,
        }  # fmt: skip
        command = commands.get(key)
        if command is not None:
            command()
        return command is not None

    def on_canvas_clicked(self, event: Canvas.Clicked) -> None:
        """A click on a key in the last line presses it; on anything else chooses or opens it."""
        kind, _, name = event.target.partition(":")
        if kind == "key":
            self.simulate_key(_KEY_NAMES.get(name, name))
            return
        was = self._state
        self._state = click(event.target, self._snapshot, self._state)
        self._go_on_after(was)
        self._paint()

    def on_canvas_turned(self, event: Canvas.Turned) -> None:
        """The wheel moves the cursor."""
        self._state = move(event.steps)(self._snapshot, self._state)
        self._paint()

    def next_theme(self) -> None:
        """The next one; without colours there is only one."""
        if self.no_color:
            self._note("NO_COLOR is set: there are no colours to choose")
            return
        self.use_theme(NAMES[(NAMES.index(self._theme_name) + 1) % len(NAMES)])

    def use_theme(self, name: str) -> None:
        """Show everything in a theme."""
        chosen = theme_of(name)
        self._theme_name = chosen.name
        self.ansi_color = True if chosen.base.startswith("ansi") else None
        self.theme = chosen.base
        self._note(f"theme {chosen.name}")

    def _note(self, text: str) -> None:
        self._say(text)
        self._paint()

    def _ask(self, title: str, value: str, then: Callable[[str], None]) -> None:
        prompt = self.query_one("#prompt", Input)
        prompt.border_title = escape(title)  # names in it are text
        prompt.value = value
        prompt.display = True
        prompt.focus()
        self._asked = then

    def _close_prompt(self) -> None:
        self._asked = None
        self.query_one("#prompt", Input).display = False
        self._canvas.focus()
        self.call_after_refresh(self._paint)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do what was asked for."""
        then = self._asked
        self._close_prompt()
        if then is not None:
            then(event.value.strip())

    def ask_filter(self) -> None:
        """Choose rows of the table of NICs."""
        self._ask(
            "NICs that fit (regular expression; ! for all others; empty: all)",
            self._state.filter,
            self._filter,
        )

    def _filter(self, text: str) -> None:
        self._state = replace(self._state, filter=text, tab="nics", opened=(), help=False, selected="")

    def write_screen(self) -> None:
        """The screen as SVG and as text."""
        stem = f"pulse-top-{time.strftime('%Y%m%d-%H%M%S')}"
        width, height = self._canvas.size
        lines = frame(self._snapshot, self._state, width, height, self._setup.clock(), self._curves)
        text = "\n".join(text_of(line).rstrip() for line in lines) + "\n"
        try:
            (self._setup.folder / f"{stem}.svg").write_text(self.export_screenshot(), encoding="utf-8")
            (self._setup.folder / f"{stem}.txt").write_text(text, encoding="utf-8")
        except OSError as error:
            self._note(f"the screen cannot be written: {error.strerror or error}")
        else:
            self._note(f"written: {stem}.svg and .txt")

    def write_evidence(self) -> None:
        """What there is to hand on."""
        folder = self._setup.folder / f"pulse-evidence-{time.strftime('%Y%m%d-%H%M%S')}"
        self._source.evidence(folder, self._snapshot)

    def _incident(self) -> str | None:
        """The incident that is open or under the cursor, if one may write about it."""
        if self._snapshot.kind != "live":
            self._note("a recorded session has no incidents")
            return None
        if self._state.read_only:
            self._note("--read-only: nothing is acknowledged or noted")
            return None
        target = self._state.opened[-1] if self._state.opened else under_cursor(self._snapshot, self._state)
        kind, _, name = target.partition(":")
        if kind != "incident":
            self._note("choose an incident first: 6 lists them")
            return None
        return name

    def acknowledge(self) -> None:
        """Take an incident on."""
        name = self._incident()
        if name is not None:
            self._ask(f"Acknowledge {name}: what do you do about it? (esc: not)", "",
                      lambda text: self._source.acknowledge(name, text))  # fmt: skip

    def write_note(self) -> None:
        """Write something about an incident."""
        name = self._incident()
        if name is not None:
            self._ask(f"Note for {name} (esc: none)", "",
                      lambda text: self._source.note(name, text) if text else None)  # fmt: skip

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette lists."""
        for number, tab in enumerate(TABS, 1):
            yield SystemCommand(f"View: {TAB_TEXT[tab]}", f"key {number}", self._presser(str(number)))
        for name in NAMES:
            yield SystemCommand(f"Theme: {name}", "key t", lambda name=name: self.use_theme(name))
        yield SystemCommand("Filter NICs", "key /", self.ask_filter)
        yield SystemCommand("Columns of NICs", "key c", self._presser("2", "c"))
        yield SystemCommand("Evidence: write it", "key e", self.write_evidence)
        yield SystemCommand("Screenshot: write it", "key S", self.write_screen)
        yield SystemCommand("Pause or play", "key space", self._presser("space"))
        yield SystemCommand("Go to the latest iteration", "key $", self._presser("dollar_sign"))
        yield SystemCommand(
            "Go to the onset", "the iteration in which the gravest verdict begins", self.to_onset
        )
        yield SystemCommand("Help", "key ?", self._presser("question_mark"))
        yield SystemCommand("Quit", "key q", self.exit)

    def _presser(self, *keys: str) -> Callable[[], None]:
        def pressed() -> None:
            for key in keys:
                self._state = press(key, self._snapshot, self._state) or self._state
            self._paint()

        return pressed

    def to_onset(self) -> None:
        """Look at the iteration in which the fault begins."""
        job = job_of(self._snapshot, self._state)
        mine = [v for v in self._snapshot.verdicts if job is not None and v.job == job.id]
        if not mine:
            self._note("there is no verdict, so no onset")
            return
        self._state = replace(self._state, at=max(0, mine[0].onset_iteration))
        self._paint()


_KEY_NAMES = {
    "?": "question_mark", "[": "left_square_bracket", "]": "right_square_bracket", "/": "slash", "+": "plus",
    ":": "colon", "esc": "escape",
}  # fmt: skip


def default_theme() -> str:
    """Without colours where the environment says so."""
    return "mono" if os.environ.get("NO_COLOR") else os.environ.get("PULSE_THEME", NAMES[0])
