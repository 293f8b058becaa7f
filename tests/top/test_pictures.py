# SPDX-License-Identifier: Apache-2.0
"""The screen as SVG, colours and all: each view at three sizes beside pictures that were looked at."""

from __future__ import annotations

import gzip
import os
import re
from importlib.metadata import version

import pytest
from textual.pilot import Pilot

from host_ctl.top.app import TopApp
from host_ctl.top.state import TABS
from tests.top.goldens import GOLDEN
from tests.top.made import SIZES, session
from tests.top.running import HeldSource, play, settle

TEXTUAL = "8.2.8"
KEYS = {tab: (str(number),) for number, tab in enumerate(TABS, 1)} | {
    "nic": ("2", "enter"),
    "help": ("question_mark",),
}
QUICK = [("overview", (120, 36))]
ALL = [
    pytest.param(
        view, size, marks=[] if (view, size) in QUICK else [pytest.mark.slow], id=f"{view}-{size[0]}"
    )
    for view in KEYS
    for size in SIZES
]


def normalised(svg: str) -> str:
    """Without what Textual draws by chance: the number in the names of classes; a line for each element."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(r">\s*<", ">\n<", svg)


@pytest.mark.skipif(
    version("textual") != TEXTUAL, reason=f"pictures are of Textual {TEXTUAL}: others draw otherwise"
)
@pytest.mark.parametrize(("view", "size"), ALL)
def test_each_view_looks_like_this(view: str, size: tuple[int, int]) -> None:
    pictures: list[str] = []

    async def take(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press(*KEYS[view])
        await settle(pilot)
        pictures.append(normalised(app.export_screenshot()))

    play(HeldSource(session()), take, size=size)
    # Compressed: uncompressed all of them would be the largest part of the sources.
    path = GOLDEN / f"{view}-{size[0]}x{size[1]}.svg.gz"
    if os.environ.get("PULSE_GOLDEN") == "write":
        path.write_bytes(gzip.compress(pictures[0].encode(), mtime=0))
    assert pictures[0] == gzip.decompress(path.read_bytes()).decode(), f"{path.name} differs"
