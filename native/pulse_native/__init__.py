# SPDX-License-Identifier: Apache-2.0
"""Compiled part of Pulse: capture reader, RoCEv2 parser and flow meter."""

from pulse_native._core import (
    OUTCOME_NAMES,
    CaptureReader,
    PacketBatch,
    __version__,
    icrc,
    record_dtypes,
)
from pulse_native.capture_stats import CaptureStats

__all__ = [
    "OUTCOME_NAMES",
    "CaptureReader",
    "CaptureStats",
    "PacketBatch",
    "__version__",
    "icrc",
    "record_dtypes",
]
