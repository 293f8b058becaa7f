# SPDX-License-Identifier: Apache-2.0
"""What keys and clicks do, without a terminal."""

from __future__ import annotations

from dataclasses import replace

from host_ctl.top.keys import click, press
from host_ctl.top.snapshot import Snapshot
from host_ctl.top.state import TABS, UiState
from host_ctl.top.views.frame import under_cursor
from host_ctl.top.views.nics import rows_of
from tests.top.made import ITERATIONS, live, session


def pressed(snapshot: Snapshot, *keys: str, state: UiState | None = None) -> UiState:
    state = state or UiState()
    for key in keys:
        state = press(key, snapshot, state) or state
    return state


def test_numbers_and_tab_go_through_the_views() -> None:
    for number, tab in enumerate(TABS, 1):
        assert pressed(session(), str(number)).tab == tab
    assert pressed(session(), "tab").tab == "nics"
    assert pressed(session(), "shift+tab").tab == "data"


def test_the_cursor_begins_at_the_accused_and_enter_opens_it() -> None:
    opened = pressed(session(), "enter")
    assert opened.opened == ("machine:node2",)
    deeper = pressed(session(), "enter", "enter")
    assert deeper.opened[-1] == "nic:node2/mlx5_0"
    assert pressed(session(), "enter", "enter", "escape", "escape").opened == ()


def test_the_cursor_stays_with_its_nic_when_the_order_changes() -> None:
    state = pressed(session(), "2", "j")
    chosen = under_cursor(session(), state)
    turned = pressed(session(), "R", state=state)
    assert rows_of(session(), turned) != rows_of(session(), state)
    assert under_cursor(session(), turned) == chosen


def test_the_cursor_stops_at_both_ends() -> None:
    names = [f"nic:{row.name}" for row in rows_of(session(), UiState(tab="nics"))]
    assert under_cursor(session(), pressed(session(), "2", "G")) == names[-1]
    assert under_cursor(session(), pressed(session(), "2", "G", "j", "j")) == names[-1]
    assert under_cursor(session(), pressed(session(), "2", "g", "k")) == names[0]


def test_brackets_step_through_iterations_and_past_the_end_is_the_present() -> None:
    assert pressed(session(), "left_square_bracket").at == ITERATIONS - 2
    assert pressed(session(), *["left_curly_bracket"] * 20).at == 0
    assert pressed(session(), "0", "right_square_bracket").at == 1
    assert pressed(session(), "left_square_bracket", *["right_square_bracket"] * 2).at is None


def test_stepping_back_holds_a_live_picture() -> None:
    state = pressed(live(), "left_square_bracket")
    assert state.paused
    assert not pressed(live(), "space", state=state).paused


def test_space_plays_a_recorded_session_from_its_begin() -> None:
    state = pressed(session(), "space")
    assert (state.playing, state.at) == (True, 0)
    assert not pressed(session(), "space", state=state).playing


def test_columns_are_chosen_from_a_list() -> None:
    state = pressed(session(), "2", "c", "space")
    assert "lost" not in state.columns
    assert "lost" in pressed(session(), "space", state=state).columns
    assert not pressed(session(), "escape", state=state).picking


def test_sorting_goes_through_the_columns_that_are_shown() -> None:
    state = pressed(session(), "2", "s")
    assert state.sort == "share"
    assert pressed(session(), "less_than_sign", "less_than_sign", state=state).sort == "name"


def test_a_click_sorts_chooses_and_opens() -> None:
    state = UiState(tab="nics")
    once = click("sort:cnp", session(), state)
    assert (once.sort, once.ascending) == ("cnp", False)
    assert click("sort:cnp", session(), once).ascending
    chosen = click("nic:node1/mlx5_0", session(), state)
    assert chosen.selected == "nic:node1/mlx5_0"
    assert click("nic:node1/mlx5_0", session(), chosen).opened == ("nic:node1/mlx5_0",)
    assert click("tab:data", session(), state).tab == "data"


def test_help_and_zoom_and_unknown_keys() -> None:
    assert pressed(session(), "question_mark").help
    assert not pressed(session(), "question_mark", "escape").help
    assert pressed(session(), "plus", "plus", "minus").zoom == 1
    assert press("f12", session(), UiState()) is None


def test_nothing_breaks_while_there_is_no_job() -> None:
    empty = replace(session(), jobs=(), verdicts=())
    keys = ("j", "k", "G", "enter", "left_square_bracket", "0", "space", "m", "J", "plus", "s", "c", "escape")
    for tab in "1234567":
        pressed(empty, tab, *keys)
