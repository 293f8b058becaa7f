# SPDX-License-Identifier: Apache-2.0
"""Small simulated jobs, made once."""

from __future__ import annotations

import pytest

from tests.host_ctl.jobs import FAULTS, Recording, simulate


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """One small job per fault."""
    return {fault: simulate(fault, tmp_path_factory.mktemp(fault)) for fault in FAULTS}
