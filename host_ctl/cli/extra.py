# SPDX-License-Identifier: Apache-2.0
"""What ``pulse analyze`` writes besides its report: a page and a trace."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from host_ctl.cli.files import check_writable, write_whole
from host_ctl.errors import UsageError

if TYPE_CHECKING:
    from host_ctl.present.analysed import Analysed

_LONGEST_S = 1e6


@dataclass(frozen=True, slots=True)
class Extra:
    """Files to write, if any, and how many seconds the trace is to hold."""

    html: Path | None
    perfetto: Path | None
    window_s: float | None

    def check(self) -> None:
        """Raise UsageError or OutputError before the work rather than after it."""
        if self.window_s is not None:
            if self.perfetto is None:
                raise UsageError("--perfetto-window says how much --perfetto FILE writes: give that too")
            if not isfinite(self.window_s) or not 0 < self.window_s <= _LONGEST_S:
                raise UsageError(f"--perfetto-window {self.window_s}: expected seconds above 0")
        for path, option in ((self.html, "--html"), (self.perfetto, "--perfetto")):
            if path is not None:
                check_writable(path, option)

    def write(self, analysis: Analysed, command: Sequence[str]) -> None:
        """Write what was asked for; says on stderr where a trace had to be cut shorter."""
        if self.html is not None:
            from host_ctl.present.html.page import Origin, build_html

            line = shlex.join(["pulse", *command[1:]])
            page = build_html(analysis, Origin(line, _version(), time.time_ns()))
            write_whole(self.html, page.encode("utf-8", "replace"), "--html")
        if self.perfetto is not None:
            from host_ctl.present.perfetto.trace import MOST_SLICES, build_trace

            trace = build_trace(analysis, self.window_s)
            write_whole(self.perfetto, trace.data, "--perfetto")
            held = trace.end_ns - trace.begin_ns
            if held < trace.wanted_ns:
                print(
                    f"pulse: the trace holds {held / 1e9:.3f} s of {trace.wanted_ns / 1e9:.3f} s: "
                    f"more would be over {MOST_SLICES:,} slices",
                    file=sys.stderr,
                )


def _version() -> str:
    try:
        return version("pulse-rdma")
    except PackageNotFoundError:
        return "unknown"
