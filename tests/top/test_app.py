# SPDX-License-Identifier: Apache-2.0
"""The dashboard with keys, mouse, prompts and a source that tells new things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from host_ctl.present.details import Curve
from host_ctl.top.app import Setup, TopApp
from host_ctl.top.snapshot import Connection, Snapshot
from host_ctl.top.sources.source import Wanted
from host_ctl.top.theme import NAMES
from tests.top.made import NOW, healthy, live, session
from tests.top.running import HeldSource, play, screen, settle


def test_keys_go_through_views_and_q_ends_it() -> None:
    source = HeldSource(session())

    async def keys(app: TopApp, pilot: Pilot[None]) -> None:
        assert "NICs of node2" in screen(app)
        await pilot.press("2")
        assert "8 of 8 NICs" in screen(app)
        await pilot.press("enter")
        assert "node2/mlx5_0" in screen(app)
        await pilot.press("escape", "7")
        assert "can be trusted" in " ".join(screen(app).split())
        await pilot.press("question_mark")
        assert "command palette" in screen(app)
        await pilot.press("q")

    app = play(source, keys)
    assert app.return_code == 0
    assert ("stop",) in source.asked


def test_what_is_told_comes_to_the_screen_and_a_pause_holds_it() -> None:
    source = HeldSource(live())

    async def pause(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("space")
        source.tell(live(health="ok", headline="all is well"))
        await settle(pilot)
        assert "PAUSED" in screen(app)
        assert "node2 slows" in screen(app)
        source.tell(
            live(health="ok", headline="all is well", connection=Connection("refused", NOW.s - 3, NOW.s))
        )
        await settle(pilot)
        assert "NO CONNECTION" in screen(app)
        await pilot.press("space")
        await settle(pilot)
        assert "all is well" in screen(app)

    play(source, pause)


def test_only_lines_that_changed_are_painted_again() -> None:
    source = HeldSource(session())

    async def paint(app: TopApp, pilot: Pilot[None]) -> None:
        lines = list(app._canvas._lines)
        assert app._canvas.show(lines, app._theme_name) == 0
        source.tell(session(headline="another sentence"))
        await settle(pilot)
        changed = [k for k, (a, b) in enumerate(zip(lines, app._canvas._lines, strict=False)) if a != b]
        assert 0 in changed
        assert app._canvas._lines[-1] == lines[-1]

    play(source, paint)


def test_a_curve_is_asked_for_once_and_shown_when_it_comes() -> None:
    source = HeldSource(session())
    wanted = Wanted("job-1", "node0/mlx5_0", 38)

    async def curve(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("2", "G", "k", "k", "enter")
        await settle(pilot)
        assert app.shown[1].opened == ("nic:node0/mlx5_0",)
        assert source.asked.count(("want", wanted)) == 1
        assert "being read" in screen(app)
        source.tell_curve(wanted, Curve("job-1", "node0/mlx5_0", 38, 0, 100_000, (0.0, 120.0, 60.0)))
        await settle(pilot)
        assert "most 120 Gbit/s" in screen(app)

    play(source, curve)


def test_an_incident_is_acknowledged_and_noted_by_hand() -> None:
    source = HeldSource(live())

    async def write(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("6", "a")
        await pilot.press(*"mine", "enter")
        await pilot.press("n", *"fan", "enter")
        await pilot.press("n", *"not this", "escape")
        await pilot.press("enter")
        assert app.shown[1].opened == ("incident:i7",)

    play(source, write)
    said = [each for each in source.asked if each[0] in ("acknowledge", "note", "look into")]
    assert said == [("acknowledge", "i7", "mine"), ("note", "i7", "fan"), ("look into", "i7")]


@pytest.mark.parametrize(("made", "setup"), [(session, Setup()), (live, Setup(read_only=True))])
def test_nothing_is_acknowledged_where_that_cannot_be(made: Callable[[], Snapshot], setup: Setup) -> None:
    source = HeldSource(made())

    async def write(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("6", "a")
        assert not app.query_one("#prompt", Input).display

    play(source, write, setup=setup)
    assert not [each for each in source.asked if each[0] == "acknowledge"]


def test_names_in_prompts_are_text() -> None:
    hostile = replace(live().incidents[0], id="[red]i7[/]")

    async def ask(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("6", "a")
        await settle(pilot)
        assert "[red]i7[/]" in str(app.query_one("#prompt", Input)._border_title)

    play(HeldSource(live(incidents=(hostile,))), ask)


def test_the_filter_is_typed_below() -> None:
    async def filtered(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"node1", "enter")
        await settle(pilot)
        assert "2 of 8 NICs" in screen(app)

    play(HeldSource(session()), filtered)


def test_the_mouse_chooses_tabs_heads_and_rows() -> None:
    async def clicks(app: TopApp, pilot: Pilot[None]) -> None:
        lines = screen(app).splitlines()
        bar = next(y for y, line in enumerate(lines) if "1 Overview" in line)
        await pilot.click(app._canvas, offset=(lines[bar].index("NICs"), bar))
        assert app.shown[1].tab == "nics"
        lines = screen(app).splitlines()
        head = next(y for y, line in enumerate(lines) if "Gbit/s" in line)
        await pilot.click(app._canvas, offset=(lines[head].index("Gbit/s"), head))
        assert app.shown[1].sort == "rate"
        row = next(y for y, line in enumerate(screen(app).splitlines()) if "node0/mlx5_1" in line)
        await pilot.click(app._canvas, offset=(8, row))
        assert app.shown[1].selected == "nic:node0/mlx5_1"
        await pilot.click(app._canvas, offset=(2, len(lines) - 1))  # the key of help in the last line
        assert app.shown[1].help

    play(HeldSource(session()), clicks)


@pytest.mark.slow
def test_the_palette_finds_commands() -> None:
    async def palette(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("colon", *"safe-light")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await pilot.pause(0.1)
        assert app._theme_name == "safe-light"

    play(HeldSource(session()), palette)


@pytest.mark.slow
def test_every_theme_paints_and_they_differ() -> None:
    pictures: list[str] = []

    async def themes(app: TopApp, pilot: Pilot[None]) -> None:
        for name in NAMES:
            app.use_theme(name)
            await settle(pilot)
            pictures.append(app.export_screenshot())

    play(HeldSource(session()), themes)
    assert len(set(pictures)) == len(NAMES)


def test_without_colours_no_colour_is_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def mono(app: TopApp, pilot: Pilot[None]) -> None:
        for y in range(len(app._canvas._lines)):
            for segment in app._canvas.render_line(y):
                assert segment.style is None or segment.style.color is None
        await pilot.press("t")
        assert "NO_COLOR" in screen(app)

    play(HeldSource(session()), mono, setup=Setup(theme="mono"))


def test_the_screen_and_the_evidence_are_written(tmp_path: Path) -> None:
    source = HeldSource(session())

    async def write(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("S", "e")

    play(source, write, setup=Setup(folder=tmp_path))
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".svg", ".txt"]
    assert "node2 slows job-1" in next(tmp_path.glob("*.txt")).read_text(encoding="utf-8")
    assert ("evidence", "pulse-evidence") in source.asked


def test_a_terminal_that_changes_its_size_is_filled() -> None:
    async def resize(app: TopApp, pilot: Pilot[None]) -> None:
        for size in ((80, 24), (200, 60), (30, 8), (120, 36)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            lines = screen(app).splitlines()
            assert (len(lines[-1]), len(lines)) == size

    play(HeldSource(healthy()), resize)
