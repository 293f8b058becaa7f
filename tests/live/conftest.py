# SPDX-License-Identifier: Apache-2.0
"""Small sessions, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.sessions import FAULTS, small_session


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small job per fault."""
    return {fault: small_session(tmp_path_factory.mktemp(fault), fault) for fault in FAULTS}
