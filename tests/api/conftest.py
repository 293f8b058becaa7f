# SPDX-License-Identifier: Apache-2.0
"""Certificates, ports and the command, as other tests have them."""

from __future__ import annotations

from tests.cli.conftest import pulse
from tests.controller.conftest import free_port, pki

__all__ = ["free_port", "pki", "pulse"]
