# SPDX-License-Identifier: Apache-2.0
"""The ``pulse`` command: says in one clear line when this Python is too old, then hands over to typer."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``pulse``."""
    if sys.version_info < (3, 11):
        sys.exit("pulse needs Python 3.11 or newer; only pulse-dpu runs on 3.10")
    from host_ctl.cli.app import run

    run()


if __name__ == "__main__":
    main()
