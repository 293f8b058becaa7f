# SPDX-License-Identifier: Apache-2.0
"""Files that a dashboard leaves behind: made in a new folder, never over what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from host_ctl.present.argument.steps import argue
from host_ctl.present.argument.text import print_argument


def new_folder(wanted: Path) -> Path:
    """Make a folder of that name, with a number after it where there is one. Raises OSError."""
    for number in range(1000):
        folder = wanted if not number else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{wanted.name} is there a thousand times")


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """The report, and the arguments of its verdicts as text. Raises OSError."""
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not report:
        return
    with (folder / "verdicts.txt").open("w", encoding="utf-8") as file:
        console = Console(file=file, width=100, highlight=False, color_system=None)
        for name in [v["id"] for v in report["verdicts"]] or [None]:
            print_argument(console, argue(report, name))
            console.print()
