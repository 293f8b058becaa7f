# SPDX-License-Identifier: Apache-2.0
"""A machine to try things on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.firmware.fakes import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty machine; skips where the fakes cannot work."""
    for tool in ("bash", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}, in which the fake commands are written")
    return Machine(tmp_path)
