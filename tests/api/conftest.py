# SPDX-License-Identifier: Apache-2.0
"""Certificates, as the controller's tests have them."""

from __future__ import annotations

from tests.controller.conftest import pki

__all__ = ["pki"]
