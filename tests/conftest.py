# SPDX-License-Identifier: Apache-2.0
"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# Tests assert what the code does, never how long it takes on a busy machine.
settings.register_profile("pulse", deadline=None)
settings.load_profile("pulse")
