# SPDX-License-Identifier: Apache-2.0
"""Keeps peers from filling the log: the same thing is told once a minute, with how often it was left out."""

from __future__ import annotations

import logging
import time

_AGAIN_S = 60.0
_KEPT = 1024


class QuietLog:
    """Warnings; of more than `_KEPT` different ones in a minute the rest is told as one."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[str, tuple[float, int]] = {}

    def warn(self, text: str) -> None:
        """Warn, or count."""
        now_s, about = time.monotonic(), text
        if about not in self._told and len(self._told) >= _KEPT:
            self._told = {key: old for key, old in self._told.items() if now_s - old[0] < _AGAIN_S}
            about = about if len(self._told) < _KEPT else "other"
        at_s, left_out = self._told.get(about, (float("-inf"), 0))
        if now_s - at_s < _AGAIN_S:
            self._told[about] = at_s, left_out + 1
            return
        self._told[about] = now_s, 0
        self._log.warning("%s%s", text, f" ({left_out} more like this before)" if left_out else "")
