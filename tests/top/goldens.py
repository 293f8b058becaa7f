# SPDX-License-Identifier: Apache-2.0
"""Pictures that were looked at once: kept beside the tests, and compared.

PULSE_GOLDEN=write makes them anew; what has changed shows in the difference of the commit.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def agrees(name: str, content: str) -> None:
    """Compare with what is kept."""
    path = GOLDEN / name
    if os.environ.get("PULSE_GOLDEN") == "write":
        path.write_text(content, encoding="utf-8")
    assert content == path.read_text(encoding="utf-8"), (
        f"{name} differs; PULSE_GOLDEN=write keeps the new one"
    )
