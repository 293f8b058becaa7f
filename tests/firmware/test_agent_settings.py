# SPDX-License-Identifier: Apache-2.0
"""The settings that are shipped for the agent, as the agent reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "firmware_cfg" / "dpu.toml"


def test_the_agent_takes_the_shipped_settings_and_those_that_are_suggested(tmp_path: Path) -> None:
    config = pytest.importorskip("dpu_app.service.config", reason="the service is not in this tree")
    shipped = config.load_config(FILE, {}, {})
    assert shipped.interface == "enp3s0f0s88"
    text = FILE.read_text(encoding="utf-8")
    full = tmp_path / "full.toml"
    full.write_text(re.sub(r"(?m)^# (?=\[|\w+ = )", "", text), encoding="utf-8")
    suggested = config.load_config(full, {}, {})
    assert suggested.machine == "node3"
    assert suggested.publishing().cert_file == Path("/etc/pulse/tls/cert.pem")
