# SPDX-License-Identifier: Apache-2.0
"""Views as text: each at three sizes, and what must hold at any size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from host_ctl.top.glyphs import UNICODE
from host_ctl.top.keys import press
from host_ctl.top.lines import length, text_of
from host_ctl.top.snapshot import Connection, Snapshot
from host_ctl.top.state import TABS, UiState
from host_ctl.top.views.detail import Curves
from host_ctl.top.views.frame import frame
from tests.top.goldens import agrees
from tests.top.made import HOSTILE, ITERATIONS, NOW, ONSET, SIZES, healthy, live, names_of, of_names, session

DETAILS = (
    "nic:node2/mlx5_0",
    "machine:node2",
    "edge:node2/mlx5_0>node2/mlx5_1>g1",
    "operator:0",
    "verdict:v1",
)
STATES = {
    **{tab: UiState(tab=tab) for tab in TABS},
    **{target.partition(":")[0]: UiState(opened=(target,)) for target in DETAILS},
    "help": UiState(help=True),
    "columns": UiState(tab="nics", picking=True),
}


def curves_of(snapshot: Snapshot) -> Curves:
    return {(c.job, c.nic, c.iteration): c for c in snapshot.curves}


def shown(snapshot: Snapshot, state: UiState, width: int = 120, height: int = 36) -> str:
    lines = frame(snapshot, state, width, height, NOW, curves_of(snapshot))
    assert len(lines) == height
    assert {length(line) for line in lines} == {width}
    return "\n".join(text_of(line) for line in lines)


def row_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if name in line)


@pytest.mark.parametrize("view", STATES)
def test_each_view_has_this_text_at_three_sizes(view: str) -> None:
    texts = [f"{w} x {h}\n{shown(session(), STATES[view], w, h)}\n" for w, h in SIZES]
    agrees(f"{view}.txt", "".join("\n".join(t.rstrip() for t in text.split("\n")) for text in texts))


@pytest.mark.parametrize("view", ["overview", "incidents", "incident", "data"])
def test_a_live_controller_has_this_text(view: str) -> None:
    state = UiState(opened=("incident:i7",)) if view == "incident" else UiState(tab=view)
    agrees(f"live-{view}.txt", "\n".join(t.rstrip() for t in shown(live(), state).split("\n")) + "\n")


@pytest.mark.parametrize("size", [(40, 10), (57, 13), (80, 24), (300, 100), (20, 5), (1, 1)])
@pytest.mark.parametrize("made", [session, live, healthy])
def test_every_view_fills_any_screen_exactly(size: tuple[int, int], made: object) -> None:
    assert callable(made)
    snapshot = made()
    for state in STATES.values():
        shown(snapshot, state, *size)
        shown(replace(snapshot, jobs=(), verdicts=(), captures=()), state, *size)


def test_the_verdict_is_on_top_of_every_view() -> None:
    for state in STATES.values():
        first = shown(session(), state).splitlines()[0]
        assert first.startswith(" ▲ DEGRADED  node2 slows job-1")


def test_stale_missing_and_nothing_are_three_different_characters() -> None:
    text = shown(session(), UiState(grid=1))
    assert "╌" * 20 in row_of(text, "node1/mlx5_1")
    assert UNICODE.missing * ITERATIONS in row_of(text, "node3/mlx5_1")
    assert "no capture" in row_of(text, "node3/mlx5_1")
    table = shown(session(), UiState(tab="nics"))
    assert "no capt." in row_of(table, "node3/mlx5_1")
    assert "stale" in row_of(table, "node1/mlx5_1")
    assert "no capt." not in row_of(table, "node0/mlx5_1")


def test_the_heatmap_turns_where_the_fault_begins() -> None:
    row = row_of(shown(session(), UiState(grid=1)), "node2/mlx5_0")
    cells = row[row.index("mlx5_0") + len("mlx5_0 ") :]
    assert len(set(cells[:ONSET])) == 1
    assert len(set(cells[2 * ONSET : 2 * ONSET + 2 * ONSET])) == 1
    assert cells[0] != cells[2 * ONSET]


def test_ascii_shows_the_same_without_any_other_character() -> None:
    for state in STATES.values():
        text = shown(session(), replace(state, ascii=True))
        assert text.isascii()
        assert "! DEGRADED" in text


def test_hostile_names_are_text_and_cannot_steer_the_terminal() -> None:
    nics = [f"{HOSTILE}/mlx5_0", *names_of(3, 1)]
    snapshot = of_names(nics, slow=nics[0])
    for state in (*STATES.values(), UiState(opened=(f"nic:{snapshot.jobs[0].nics[0]}",))):
        text = shown(snapshot, state)
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[red]no?[31mde?" in shown(snapshot, UiState())


def test_a_controller_that_is_gone_is_said_and_the_picture_is_stale() -> None:
    gone = live(connection=Connection("connection refused", NOW.s - 90, NOW.s + 4), taken_s=NOW.s - 95)
    text = shown(gone, UiState())
    assert "NO CONNECTION for 90.0 s, asked again in 4 s: connection refused" in text
    assert "STALE 95 s" in text


def test_a_filter_chooses_nics_and_says_so() -> None:
    for wanted, left in (("node1", 2), ("!node1", 6), ("mlx5_0$", 4), ("[", 0)):
        text = shown(session(), UiState(tab="nics", filter=wanted))
        assert f" {left} of 8 NICs" in text
        assert f"filter: {wanted}" in text


def test_what_is_not_known_sorts_last_either_way() -> None:
    for ascending in (True, False):
        text = shown(session(), UiState(tab="nics", sort="lost", ascending=ascending))
        rows = [line for line in text.splitlines() if "/mlx5_" in line]
        assert {"node1/mlx5_1", "node3/mlx5_1"} == {r[4:].split()[0] for r in rows[-2:]}


def test_pipelines_are_shown_as_stages_by_replicas_and_machines_by_rails() -> None:
    snapshot = of_names(names_of(4, 2), slow="node2/mlx5_0", pipelines=True)
    text = shown(snapshot, UiState(tab="grid"))
    assert "stage by replica" in text
    assert "▶" in row_of(text, "stage 2")
    other = press("m", snapshot, UiState(tab="grid"))
    assert other is not None
    assert "machine by rail" in shown(snapshot, other)


def test_a_thousand_nics_show_only_what_fits() -> None:
    snapshot = of_names(names_of(128, 8), slow="node100/mlx5_3")
    assert "node100" in row_of(shown(snapshot, UiState()), "▶")
    assert shown(snapshot, UiState(tab="nics")).count("/mlx5_") == 36 - 4 - 1 - 2


def test_the_clocks_are_judged_by_what_the_verdict_rests_on() -> None:
    text = shown(session(), UiState(tab="data"))
    told = " ".join(text.split())
    assert "7 of 7 are known, the worst to +/- 640 ns" in told
    assert "12,500 times that: they can be trusted." in told


def test_a_rate_curve_zooms_to_what_was_sent() -> None:
    state = UiState(opened=("nic:node2/mlx5_0",))
    assert "312 us a column" in shown(session(), state)
    closer = press("plus", session(), press("plus", session(), state) or state)
    assert closer is not None
    text = shown(session(), closer)
    assert "104 us a column" in text
    axis = text.splitlines()[next(k for k, t in enumerate(text.splitlines()) if "a column" in t) + 5]
    assert axis.split()[:2] == ["4.58", "ms"]  # 60 bins of 104 us around the 30 in which it sent
