# SPDX-License-Identifier: Apache-2.0
"""The dashboard over a source that a test holds in its hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from textual.pilot import Pilot

from host_ctl.present.details import Curve
from host_ctl.top.app import Setup, TopApp
from host_ctl.top.lines import text_of
from host_ctl.top.snapshot import Snapshot
from host_ctl.top.sources.source import Listener, Wanted
from tests.top.made import NOW


@dataclass
class HeldSource:
    """Tells what the test tells, and notes what is asked of it."""

    snapshot: Snapshot
    asked: list[tuple[object, ...]] = field(default_factory=list)
    listener: Listener | None = None

    def first(self) -> Snapshot:
        return self.snapshot

    def start(self, listener: Listener) -> None:
        self.listener = listener
        listener.snapshot(self.snapshot)

    def want(self, wanted: Wanted) -> None:
        self.asked.append(("want", wanted))

    def look_into(self, incident: str) -> None:
        self.asked.append(("look into", incident))

    def acknowledge(self, incident: str, text: str) -> None:
        self.asked.append(("acknowledge", incident, text))

    def note(self, incident: str, text: str) -> None:
        self.asked.append(("note", incident, text))

    def evidence(self, folder: Path, snapshot: Snapshot) -> None:
        self.asked.append(("evidence", folder.name.partition("-2")[0]))

    def stop(self) -> None:
        self.asked.append(("stop",))

    def tell(self, snapshot: Snapshot) -> None:
        assert self.listener is not None
        self.listener.snapshot(snapshot)

    def tell_curve(self, wanted: Wanted, curve: Curve | None) -> None:
        assert self.listener is not None
        self.listener.curve(wanted, curve)


Play = Callable[[TopApp, "Pilot[None]"], Awaitable[None]]


def play(
    source: HeldSource, play_it: Play, *, size: tuple[int, int] = (120, 36), setup: Setup | None = None
) -> TopApp:
    """Run the dashboard without a terminal while a test plays with it."""
    given = replace(setup or Setup(), refresh_s=0.1, clock=lambda: NOW)
    app = TopApp(source, given)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            await play_it(app, pilot)

    asyncio.run(run())
    return app


async def settle(pilot: Pilot[None]) -> None:
    """Let what was told come to the screen."""
    await pilot.pause()
    await pilot.pause(0.15)


def screen(app: TopApp) -> str:
    """The text of the canvas."""
    return "\n".join(text_of(line) for line in app._canvas._lines)
