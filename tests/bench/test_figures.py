# SPDX-License-Identifier: Apache-2.0
"""Figures of the causes are drawn from runs, and the documentation has one for each."""

from __future__ import annotations

from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.__main__ import main
from bench.figures.report import FIGURES
from bench.figures.style import sampled
from host_ctl.diagnose.verdict import Cause

DOCS = Path(__file__).parents[2] / "docs"
MOST_BYTES = 60_000
WITHOUT = {"switch_port", "unknown"}  # the one looks like congestion, the other like nothing


def test_every_cause_has_a_figure() -> None:
    assert set(FIGURES) == set(get_args(Cause)) - WITHOUT


@pytest.mark.parametrize("cause", FIGURES)
def test_the_documentation_shows_the_figure_and_it_is_small(cause: str) -> None:
    assert f"(figures/{cause}.svg)" in (DOCS / "diagnosis.md").read_text()
    assert (DOCS / "figures" / f"{cause}.svg").stat().st_size < MOST_BYTES


def test_a_run_gives_the_same_figure_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("first", "second"):
        assert main(["figures", "--out", str(tmp_path / name), "--cause", "hang"]) == 0
    first, second = ((tmp_path / name / "hang.svg").read_bytes() for name in ("first", "second"))
    assert first == second
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert b"sends nothing more" in first, "text stays text"


def test_an_unknown_cause_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "--out", str(tmp_path), "--cause", "gremlins"]) == 2
    assert "no figure of gremlins" in capsys.readouterr().err


def test_many_points_are_thinned_evenly() -> None:
    x, y = sampled(np.arange(1000), np.arange(1000) * 2, most=11)
    assert len(x) == 11
    assert (x[0], x[-1]) == (0, 999)
    assert (y == 2 * x).all()
