# SPDX-License-Identifier: Apache-2.0
"""Ports and small disks, as the controller's tests have them."""

from __future__ import annotations

from tests.controller.conftest import free_port, small_disk

__all__ = ["free_port", "small_disk"]
