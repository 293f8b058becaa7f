# SPDX-License-Identifier: Apache-2.0
"""Runs ``pulse``, and a small recorded session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import pulse
from tests.live.sessions import small_session

__all__ = ["folder", "pulse"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of four machines, of which node1 becomes slow."""
    return small_session(tmp_path_factory.mktemp("session"), "slow_compute")
